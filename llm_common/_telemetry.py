"""Spans around the few operations that take time; nothing at all unless opentelemetry is installed.

Attribute values are names, counts, sizes and states. Queries, arguments, results and replies never become attributes.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Protocol, Self

__all__ = ["Attribute", "Span", "span"]

Attribute = str | bool | int | float


class Span(Protocol):
    """What the body of a `with span(...)` may do."""

    def set_attribute(self, key: str, value: Attribute) -> None:
        """Adds one fact to the span."""


class _NoSpan:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_attribute(self, key: str, value: Attribute) -> None:
        pass


_NO_SPAN = _NoSpan()


class _Tracer(Protocol):
    def __call__(self, name: str, attributes: dict[str, Attribute]) -> AbstractContextManager[Span] | None: ...


def span(name: str, **attributes: Attribute) -> AbstractContextManager[Span]:
    """A span of that name for the duration of the block.

    Exceptions pass through and are recorded by their class name alone, since their texts may hold user data.
    """
    tracer = _tracer()
    started = tracer(name, attributes) if tracer else None
    return _NO_SPAN if started is None else _named_errors(started)


@contextmanager
def _named_errors(started: AbstractContextManager[Span]) -> Iterator[Span]:
    with started as current:
        try:
            yield current
        except BaseException as exc:
            current.set_attribute("error.type", type(exc).__name__)
            raise


@cache
def _tracer() -> _Tracer | None:
    try:
        from opentelemetry import trace  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        return None
    tracer = trace.get_tracer("llm_common")
    stands_in = isinstance(tracer, trace.ProxyTracer)

    def start(name: str, attributes: dict[str, Attribute]) -> AbstractContextManager[Span] | None:
        if stands_in and getattr(trace, "_TRACER_PROVIDER", trace) is None:  # asking for it takes ten times as long
            return None  # opentelemetry is there, but so far nobody who takes spans
        return tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        )

    return start
