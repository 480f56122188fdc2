"""Spans and measurements of what takes time, and the record of what was chosen.

Names and attributes follow OpenTelemetry's GenAI conventions: open-telemetry/semantic-conventions-genai, v0.1.0 (client
inference, retrieval, memory, agent, plan and tool execution), which are in development and may change. What they have
no name for begins with `llm_common.`. Without opentelemetry nothing happens.

Attribute values are names, ids, counts, sizes and states. Queries, arguments, results and replies never become
attributes: the attributes that the conventions leave to the user's choice, all of content, are not there.

A recorder gets the finished choices of a run, as the values that they are. Without one, `record` looks up one context
variable. `llm_common.trace` has the recorder that writes files.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from itertools import islice
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from llm_common._metrics import INSTRUMENTS

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Span as RecordedSpan, Tracer

Attribute = str | bool | int | float | Sequence[str] | Sequence[float]

MAX_IDS: Final = 50
"""Most ids of what a retrieval found."""

_MAX_ID_CHARS: Final = 100
_MAX_NAME_CHARS: Final = 200

# The histogram of an operation's seconds; another one's is `gen_ai.client.operation.duration`.
_DURATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "chat": "gen_ai.client.inference.duration",
        "execute_tool": "gen_ai.execute_tool.duration",
        "invoke_agent": "gen_ai.invoke_agent.duration",
        "plan": "",
    }
)
_DIMENSIONS: Final = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.data_source.id",
    "gen_ai.tool.name",
    "gen_ai.tool.type",
    "server.address",
    "server.port",
    "error.type",
)


class Span(Protocol):
    """What the body of a `with span(...)` may call."""

    def set_attribute(self, key: str, value: Attribute) -> None:
        """Adds one fact to the span."""

    def fail(self, error_type: str) -> None:
        """Marks the span as failed with an error of that class."""

    def active(self) -> AbstractContextManager[object]:
        """Makes the span the parent of those in the block; for a detached one."""

    def dimensions(self) -> dict[str, Attribute]:
        """The attributes that measurements share with the span."""


class _NoSpan:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_attribute(self, key: str, value: Attribute) -> None:
        pass

    def fail(self, error_type: str) -> None:
        pass

    def active(self) -> AbstractContextManager[object]:
        return nullcontext()

    def dimensions(self) -> dict[str, Attribute]:
        return {}


class _Recorded:
    def __init__(self, current: "RecordedSpan", attributes: Mapping[str, Attribute]) -> None:
        self._current = current
        self._attributes = dict(attributes)

    def set_attribute(self, key: str, value: Attribute) -> None:
        self._attributes[key] = value
        self._current.set_attribute(key, value)

    def fail(self, error_type: str) -> None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - optional

        self.set_attribute("error.type", error_type)
        self._current.add_event("exception", {"exception.type": error_type})
        self._current.set_status(StatusCode.ERROR, error_type)

    def active(self) -> AbstractContextManager[object]:
        from opentelemetry.trace import use_span  # noqa: PLC0415 - optional

        return use_span(self._current, record_exception=False, set_status_on_exception=False)

    def dimensions(self) -> dict[str, Attribute]:
        return {name: self._attributes[name] for name in _DIMENSIONS if name in self._attributes}


def span(name: str, attributes: Mapping[str, Attribute] | None = None) -> AbstractContextManager[Span]:
    """A span of our own kind for the duration of the block.

    Exceptions pass through. The span ends as an error and records their class name only, since their texts may hold
    user data. A cancelled block, or one that the program's end interrupts, is no error.
    """
    return _as_step(_opened(name, attributes or {}))


def operation(
    name: str,
    target: str = "",
    attributes: Mapping[str, Attribute] | None = None,
    *,
    client: bool = False,
    detached: bool = False,
) -> AbstractContextManager[Span]:
    """A span of an operation that the conventions know, which is also timed; otherwise as `span`.

    Args:
        name: The operation, such as `chat`.
        target: What the name of the span ends with, such as the model.
        attributes: Those that are known at the beginning.
        client: Whether another process does the work.
        detached: Leaves the spans in the block to other parents: a generator must not change the context around a
            `yield`. See `Span.active`.
    """
    if name == "execute_tool":
        _count(TOOL_CALLS)
    facts = {"gen_ai.operation.name": name, **(attributes or {})}
    duration = _DURATIONS.get(name, "gen_ai.client.operation.duration")
    full_name = f"{name} {target[:_MAX_NAME_CHARS]}".rstrip()
    opened = _opened(full_name, facts, client=client, detached=detached, duration=duration)
    return opened if detached else _as_step(opened)


def _opened(
    name: str,
    attributes: Mapping[str, Attribute],
    *,
    client: bool = False,
    detached: bool = False,
    duration: str = "",
) -> AbstractContextManager[Span]:
    tracer = _tracer()
    if tracer is None:
        return _NoSpan()
    return _recorded(tracer, name, attributes, client=client, detached=detached, duration=duration)


@contextmanager
def _recorded(
    tracer: "Tracer", name: str, attributes: Mapping[str, Attribute], *, client: bool, detached: bool, duration: str
) -> Iterator[Span]:
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - optional

    started = perf_counter()
    current = tracer.start_span(name, kind=SpanKind.CLIENT if client else SpanKind.INTERNAL, attributes=attributes)
    recorded = _Recorded(current, attributes)
    try:
        with nullcontext() if detached else recorded.active():
            yield recorded
    except Exception as exc:
        recorded.fail(type(exc).__name__)
        raise
    except BaseException as exc:
        recorded.set_attribute("llm_common.ended_by", type(exc).__name__)
        raise
    finally:
        current.end()
        if duration:
            measure(duration, perf_counter() - started, recorded.dimensions())


@cache
def _tracer() -> "Tracer | None":
    """The tracer, which passes spans to a provider from the moment that the application sets one."""
    try:
        from opentelemetry import trace  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        return None
    return trace.get_tracer("llm_common")


def measure(name: str, amount: float, attributes: Mapping[str, Attribute] | None = None) -> None:
    """Adds to the counter of that name, or records in the histogram."""
    take = _taker(name)
    if take is not None:
        take(amount, attributes or {})


@cache
def _taker(name: str) -> "Callable[[float, Mapping[str, Attribute]], None] | None":
    meter = _meter()
    if meter is None:
        return None
    unit, description, buckets = INSTRUMENTS[name]
    if not buckets:
        return meter.create_counter(name, unit, description).add
    return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets).record


def _meter() -> "Meter | None":
    """The meter, whose instruments pass on to a provider from the moment that the application sets one."""
    try:
        from opentelemetry import metrics  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        return None
    return metrics.get_meter("llm_common")


def set_found(current: Span, found: Mapping[str, float | None]) -> None:
    """Sets how many items a retrieval found, and the ids of the first 50 with their scores, where there are any.

    The conventions have a place for both, `gen_ai.retrieval.documents`, but for users who ask for it.
    """
    current.set_attribute("llm_common.retrieval.count", len(found))
    ids = [*islice(found, MAX_IDS)]
    current.set_attribute("llm_common.retrieval.ids", [each[:_MAX_ID_CHARS] for each in ids])
    scores = [score for each in ids if (score := found[each]) is not None]
    if ids and len(scores) == len(ids):
        current.set_attribute("llm_common.retrieval.scores", scores)


INFERENCE_CALLS: Final = "gen_ai.invoke_agent.inference_calls"
TOOL_CALLS: Final = "gen_ai.invoke_agent.tool_calls"
_calls: ContextVar["Counter[str] | None"] = ContextVar("llm_common_calls", default=None)


@contextmanager
def counting(calls: "Counter[str]") -> Iterator[None]:
    """Counts the model calls and tool calls in the block, by the histogram of a run that they belong to."""
    token = _calls.set(calls)
    try:
        yield
    finally:
        _calls.reset(token)


def count_inference() -> None:
    """Counts one model call, if `counting`."""
    _count(INFERENCE_CALLS)


def _count(name: str) -> None:
    calls = _calls.get()
    if calls is not None:
        calls[name] += 1


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


def _as_step(opened: AbstractContextManager[Span]) -> AbstractContextManager[Span]:
    place = _place.get()
    return opened if place is None else _within(opened, place)


@contextmanager
def _within(opened: AbstractContextManager[Span], place: _Place) -> Iterator[Span]:
    token = _place.set(_Place(place.recorder, place.recorder.next_step(), place.step))
    try:
        with opened as current:
            yield current
    finally:
        _place.reset(token)
