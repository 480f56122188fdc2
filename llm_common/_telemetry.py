"""Spans around the operations that take time; no effect unless opentelemetry is installed.

Attribute values are names, counts, sizes and states. Queries, arguments, results and replies never become attributes.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

Attribute = str | bool | int | float


class Span(Protocol):
    """What the body of a `with span(...)` may call."""

    def set_attribute(self, key: str, value: Attribute) -> None:
        """Adds one fact to the span."""


class _NoSpan:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_attribute(self, key: str, value: Attribute) -> None:
        pass


def span(name: str, **attributes: Attribute) -> AbstractContextManager[Span]:
    """A span of that name for the duration of the block.

    Exceptions pass through, and set the span's status. The span records their class name only, since their texts may
    hold user data.
    """
    tracer = _tracer()
    return _NoSpan() if tracer is None else _recorded(tracer, name, attributes)


@contextmanager
def _recorded(tracer: "Tracer", name: str, attributes: dict[str, Attribute]) -> Iterator[Span]:
    from opentelemetry.trace import StatusCode  # noqa: PLC0415 - as below

    with tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except BaseException as exc:
            current.set_attribute("error.type", type(exc).__name__)
            current.set_status(StatusCode.ERROR)
            raise


@cache
def _tracer() -> "Tracer | None":
    """The tracer, which passes spans to a provider from the moment that the application sets one."""
    try:
        from opentelemetry import trace  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        return None
    return trace.get_tracer("llm_common")
