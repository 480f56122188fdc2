"""Spans, and the record of a run's decisions.

Names and attributes follow OpenTelemetry's GenAI conventions:
open-telemetry/semantic-conventions-genai, v0.1.0 (client inference, retrieval, memory, agent, plan
and tool execution), which are in development and may change. Other names begin with `llm_common.`.
Without opentelemetry or without a provider, nothing is recorded.

Attribute values are names, ids, counts, sizes and states. Queries, arguments, results and replies
never become attributes. The optional attributes of the conventions, which contain them, are never
set.

A recorder receives the decisions of a run as Python values. Without a recorder, `record` costs the
lookup of a context variable. `llm_common.trace` has the recorder that writes files.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

from llm_common._env import TRACE_DIR, read_text

if TYPE_CHECKING:
    from opentelemetry.trace import Span as RecordedSpan, Tracer, TracerProvider

Attribute = str | bool | int | float | Sequence[str] | Sequence[float]

MAX_IDS: Final = 50
"""Maximum number of retrieved ids in a span."""


class Span:
    """The span that a `with span(...)` block receives. This class records nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        pass

    def set_attributes(self, attributes: Mapping[str, Attribute]) -> None:
        """Add attributes to the span."""

    def fail(self, error_type: str) -> None:
        """Mark the span as failed with an error class."""

    def active(self) -> AbstractContextManager[object]:
        """Make a detached span the parent of the spans in the block."""
        return nullcontext()


class _Recorded(Span):
    """A span of the SDK."""

    def __init__(
        self,
        name: str,
        attributes: Mapping[str, Attribute],
        *,
        client: bool,
        detached: bool,
    ) -> None:
        # Packages of an extra, which are slow to import. `_opened` knows that they are imported.
        from opentelemetry import context, trace  # noqa: PLC0415

        self._context, self._trace = context, trace
        self._is_detached = detached
        kind = trace.SpanKind.CLIENT if client else trace.SpanKind.INTERNAL
        tracer = _tracer(trace.get_tracer_provider())
        self._current: RecordedSpan = tracer.start_span(name, kind=kind, attributes=attributes)

    def __enter__(self) -> Self:
        # A detached span leaves the context as it is: a generator would change its caller's.
        self._token = None if self._is_detached else self._attached()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, Exception):
            self.fail(kind.__name__)
        elif kind is not None:  # cancelled, or the program's end, neither of which is an error
            self.set_attributes({"llm_common.ended_by": kind.__name__})
        if self._token is not None:
            self._context.detach(self._token)
        self._current.end()

    def _attached(self) -> Any:
        return self._context.attach(self._trace.set_span_in_context(self._current))

    def set_attributes(self, attributes: Mapping[str, Attribute]) -> None:
        self._current.set_attributes(attributes)

    def fail(self, error_type: str) -> None:
        self.set_attributes({"error.type": error_type})
        # `record_exception` would add the text and the stack, which may contain user data.
        self._current.add_event("exception", {"exception.type": error_type})
        self._current.set_status(self._trace.StatusCode.ERROR, error_type)

    @contextmanager
    def active(self) -> Iterator[None]:
        token = self._attached()
        try:
            yield
        finally:
            self._context.detach(token)


def span(
    name: str, attributes: Mapping[str, Attribute] | None = None
) -> AbstractContextManager[Span]:
    """Record the block as a span with a name of the library.

    An exception passes through, and marks the span as failed with its class name only, because its
    text may contain user data. A cancellation or the program's end is not an error.
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
    """Record the block as a span of the conventions. See `span`.

    Args:
        name: The operation, such as `chat`.
        target: End of the span's name, such as the model.
        attributes: Attributes known at the start.
        client: True if another process does the work.
        detached: True does not make the span the parent of the spans in the block, because a
            generator must not change the context around a `yield`. See `Span.active`.
    """
    attributes = {"gen_ai.operation.name": name, **(attributes or {})}
    # A model may write a tool's name of any length.
    full_name = f"{name} {target[:200]}".rstrip()
    opened = _opened(full_name, attributes, client=client, detached=detached)
    return opened if detached else _as_step(opened)


def _opened(
    name: str,
    attributes: Mapping[str, Attribute],
    *,
    client: bool = False,
    detached: bool = False,
) -> AbstractContextManager[Span]:
    # An application that sets a provider has imported the API. An import here could run in a worker
    # thread, and a child that is forked during it would deadlock on the import lock.
    api = sys.modules.get("opentelemetry.trace")
    # The providers of the SDK are in `opentelemetry.sdk`, and the API's placeholder beside the API.
    if api is None or type(api.get_tracer_provider()).__module__.startswith(api.__name__):
        return Span()
    return _Recorded(name, attributes, client=client, detached=detached)


# Cached, because `get_tracer` creates a tracer at each call.
@lru_cache(maxsize=4)
def _tracer(provider: "TracerProvider") -> "Tracer":
    return provider.get_tracer("llm_common")


def retrieval_attributes(scores_by_id: Mapping[str, float | None]) -> dict[str, Attribute]:
    """Return the number of retrieved items, and the ids and scores of the first 50.

    Scores are included only if all of these items have one.
    """
    # The conventions' own attribute, `gen_ai.retrieval.documents`, is optional and never set.
    ids = [*islice(scores_by_id, MAX_IDS)]
    attributes: dict[str, Attribute] = {
        "llm_common.retrieval.count": len(scores_by_id),
        "llm_common.retrieval.ids": [item_id[:100] for item_id in ids],
    }
    scores = [score for item_id in ids if (score := scores_by_id[item_id]) is not None]
    if ids and len(scores) == len(ids):
        attributes["llm_common.retrieval.scores"] = scores
    return attributes


class Recorder(Protocol):
    """Records the decisions and calls of a run. Never raises and never blocks."""

    def next_step(self) -> int:
        """Return a number for a span of the run, greater than all before."""

    def record(self, kind: str, fields: Mapping[str, object], /, *, step: int, parent: int) -> None:
        """Record a decision or call, with the numbers of its span and the parent span.

        The run itself has the number 0.
        """


def is_traced() -> bool:
    """Return whether runs that begin now are traced, because `LLM_COMMON_TRACE_DIR` is set.

    Whoever begins a run then imports `llm_common.trace`, which imports everything that it records.
    """
    return read_text(TRACE_DIR) is not None


class _Position(NamedTuple):
    """The current span of a run, and its parent."""

    recorder: Recorder
    step: int
    parent: int


_position: ContextVar[_Position | None] = ContextVar("llm_common_trace_position", default=None)


def record(kind: str, /, **fields: object) -> None:
    """Record a decision or call of this run, if it is traced. Its values must not change."""
    position = _position.get()
    if position is not None:
        position.recorder.record(kind, fields, step=position.step, parent=position.parent)


def is_recording() -> bool:
    """Return whether `record` has an effect here."""
    return _position.get() is not None


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Record the block with a recorder, including the tasks and threads that it starts."""
    token = _position.set(_Position(recorder, 0, 0))
    try:
        yield
    finally:
        _position.reset(token)


def _as_step(opened: AbstractContextManager[Span]) -> AbstractContextManager[Span]:
    position = _position.get()
    return opened if position is None else _within(opened, position)


@contextmanager
def _within(opened: AbstractContextManager[Span], outer: _Position) -> Iterator[Span]:
    token = _position.set(_Position(outer.recorder, outer.recorder.next_step(), outer.step))
    try:
        with opened as current:
            yield current
    finally:
        _position.reset(token)
