"""Spans around the operations that take time, and the record of what was chosen in them.

Spans have no effect unless opentelemetry is installed. Attribute values are names, counts, sizes and states. Queries,
arguments, results and replies never become attributes.

A recorder gets the finished choices of a run, as the values that they are. Without one, `record` looks up one context
variable. `llm_common.trace` has the recorder that writes files.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from opentelemetry.trace import Span as RecordedSpan, Tracer

Attribute = str | bool | int | float


class Span(Protocol):
    """What the body of a `with span(...)` may call."""

    def set_attribute(self, key: str, value: Attribute) -> None:
        """Adds one fact to the span."""

    def fail(self, error_type: str) -> None:
        """Marks the span as failed with an error of that class."""


class _NoSpan:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_attribute(self, key: str, value: Attribute) -> None:
        pass

    def fail(self, error_type: str) -> None:
        pass


class _Recorded:
    def __init__(self, current: "RecordedSpan") -> None:
        self._current = current

    def set_attribute(self, key: str, value: Attribute) -> None:
        self._current.set_attribute(key, value)

    def fail(self, error_type: str) -> None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - optional

        self._current.set_attribute("error.type", error_type)
        self._current.add_event("exception", {"exception.type": error_type})
        self._current.set_status(StatusCode.ERROR, error_type)


def span(name: str, **attributes: Attribute) -> AbstractContextManager[Span]:
    """A span of that name for the duration of the block.

    Exceptions pass through. The span ends as an error and records their class name only, since their texts may hold
    user data. A cancelled block, or one that the program's end interrupts, is no error.
    """
    tracer = _tracer()
    opened = _NoSpan() if tracer is None else _recorded(tracer, name, attributes)
    place = _place.get()
    return opened if place is None else _as_step(opened, place)


@contextmanager
def _recorded(tracer: "Tracer", name: str, attributes: dict[str, Attribute]) -> Iterator[Span]:
    with tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as current:
        recorded = _Recorded(current)
        try:
            yield recorded
        except Exception as exc:
            recorded.fail(type(exc).__name__)
            raise
        except BaseException as exc:
            current.set_attribute("error.type", type(exc).__name__)
            raise


@cache
def _tracer() -> "Tracer | None":
    """The tracer, which passes spans to a provider from the moment that the application sets one."""
    try:
        from opentelemetry import trace  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        return None
    return trace.get_tracer("llm_common")


class Recorder(Protocol):
    """Takes what a run chose and did; never raises and never waits."""

    def next_step(self) -> int:
        """A number for a span of the run, greater than those before it."""

    def record(self, kind: str, facts: Mapping[str, object], /, *, step: int, parent: int) -> None:
        """Takes one choice or call, with the number of its span and of the span around that; 0 is the run."""


class _Place(NamedTuple):
    """Where in a run the code is: the span, and the span around it."""

    recorder: Recorder
    step: int
    parent: int


_place: ContextVar[_Place | None] = ContextVar("llm_common_trace_place", default=None)


def record(kind: str, /, **facts: object) -> None:
    """Hands the facts to the recorder of this run, if there is one. They must not change afterwards."""
    place = _place.get()
    if place is not None:
        place.recorder.record(kind, facts, step=place.step, parent=place.parent)


def is_recording() -> bool:
    """Whether `record` has an effect here."""
    return _place.get() is not None


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Hands what is recorded in the block to this recorder, also from tasks and threads that start in it."""
    token = _place.set(_Place(recorder, 0, 0))
    try:
        yield
    finally:
        _place.reset(token)


@contextmanager
def _as_step(opened: AbstractContextManager[Span], place: _Place) -> Iterator[Span]:
    token = _place.set(_Place(place.recorder, place.recorder.next_step(), place.step))
    try:
        with opened as current:
            yield current
    finally:
        _place.reset(token)
