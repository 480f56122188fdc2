"""Spans around the operations that take time; no effect unless opentelemetry is installed.

Attribute values are names, counts, sizes and states. Queries, arguments, results and replies never become attributes.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Protocol, Self

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
    return _NoSpan() if tracer is None else _recorded(tracer, name, attributes)


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
