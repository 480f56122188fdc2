"""Spans and measurements of what takes time, and the record of what was chosen.

Names and attributes follow OpenTelemetry's GenAI conventions:
open-telemetry/semantic-conventions-genai, v0.1.0 (client inference, retrieval, memory, agent, plan
and tool execution), which are in development and may change. What they have no name for begins with
`llm_common.`. Without opentelemetry, and until a provider is set, nothing happens.

Attribute values are names, ids, counts, sizes and states. Queries, arguments, results and replies
never become attributes: the attributes that the conventions leave to the user's choice, all of
content, are not there.

A recorder gets the finished choices of a run, as the values that they are. Without one, `record`
looks up one context variable. `llm_common.trace` subscribes with a recorder that writes files.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, lru_cache
from importlib import import_module
from itertools import islice
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

from llm_common._env import TRACE_DIR, read_text
from llm_common._metrics import INSTRUMENTS

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span as RecordedSpan, Tracer, TracerProvider

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
    "llm_common.selection.status",
    "llm_common.selection.used",
    "llm_common.selection.fallback",
)


class Span(Protocol):
    """What the body of a `with span(...)` may call."""

    def set_attribute(self, key: str, value: Attribute) -> None:
        """Adds one fact to the span."""

    def set_attributes(self, attributes: Mapping[str, Attribute]) -> None:
        """Adds several."""

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

    def set_attributes(self, attributes: Mapping[str, Attribute]) -> None:
        pass

    def fail(self, error_type: str) -> None:
        pass

    def active(self) -> AbstractContextManager[object]:
        return nullcontext()

    def dimensions(self) -> dict[str, Attribute]:
        return {}


class _Recorded:
    """A span of the SDK, and the measurement of its seconds."""

    def __init__(
        self,
        api: "_Api",
        name: str,
        attributes: Mapping[str, Attribute],
        *,
        client: bool,
        detached: bool,
        duration: str,
    ) -> None:
        self._api, self._attributes, self._duration = api, dict(attributes), duration
        self._is_detached = detached
        self._started = perf_counter()
        kind = api.trace.SpanKind.CLIENT if client else api.trace.SpanKind.INTERNAL
        tracer = _tracer(api.trace.get_tracer_provider())
        self._current: RecordedSpan = tracer.start_span(name, kind=kind, attributes=attributes)

    def __enter__(self) -> Self:
        self._token = None if self._is_detached else self._attached()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, Exception):
            self.fail(kind.__name__)
        elif kind is not None:
            self.set_attribute("llm_common.ended_by", kind.__name__)
        if self._token is not None:
            self._api.context.detach(self._token)
        self._current.end()
        if self._duration:
            measure(self._duration, perf_counter() - self._started, self.dimensions())

    def _attached(self) -> object:
        return self._api.context.attach(self._api.trace.set_span_in_context(self._current))

    def set_attribute(self, key: str, value: Attribute) -> None:
        self.set_attributes({key: value})

    def set_attributes(self, attributes: Mapping[str, Attribute]) -> None:
        self._attributes |= attributes
        self._current.set_attributes(attributes)

    def fail(self, error_type: str) -> None:
        self.set_attribute("error.type", error_type)
        self._current.add_event("exception", {"exception.type": error_type})
        self._current.set_status(self._api.trace.StatusCode.ERROR, error_type)

    @contextmanager
    def active(self) -> Iterator[None]:
        token = self._attached()
        try:
            yield
        finally:
            self._api.context.detach(token)

    def dimensions(self) -> dict[str, Attribute]:
        return {name: self._attributes[name] for name in _DIMENSIONS if name in self._attributes}


def span(
    name: str, attributes: Mapping[str, Attribute] | None = None
) -> AbstractContextManager[Span]:
    """A span of our own kind for the duration of the block.

    Exceptions pass through. The span ends as an error and records their class name only, since
    their texts may hold user data. A cancelled block, or one that the program's end interrupts, is
    no error.
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
        detached: Leaves the spans in the block to other parents: a generator must not change the
            context around a `yield`. See `Span.active`.
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
    api = _api()
    if api is None or not (
        _is_set(api.trace.get_tracer_provider())
        or (duration and _is_set(api.metrics.get_meter_provider()))
    ):
        return _NoSpan()
    return _Recorded(api, name, attributes, client=client, detached=detached, duration=duration)


def measure(name: str, amount: float, attributes: Mapping[str, Attribute] | None = None) -> None:
    """Adds to the counter of that name, or records in the histogram."""
    api = _api()
    if api is not None and _is_set(provider := api.metrics.get_meter_provider()):
        _taker(provider, name)(amount, attributes or {})


class _Api(NamedTuple):
    """The modules of opentelemetry, which is optional and slow to import."""

    context: Any
    metrics: Any
    trace: Any


def _api() -> _Api | None:
    """Return opentelemetry's modules, once the application has imported them."""
    # Who sets a provider has imported them. An import of ours would run in a thread that saves,
    # and a child that is forked meanwhile would wait for it for ever.
    if not sys.modules.get("opentelemetry.trace") and not sys.modules.get("opentelemetry.metrics"):
        return None
    return _imported_api()


@cache
def _imported_api() -> _Api:
    from opentelemetry import context, metrics, trace  # noqa: PLC0415 - an extra

    return _Api(context, metrics, trace)


def _is_set(provider: object) -> bool:
    """Whether the application has set this provider; opentelemetry's API has placeholders alone."""
    return not type(provider).__module__.startswith(
        ("opentelemetry.trace", "opentelemetry.metrics")
    )


@lru_cache(maxsize=4)
def _tracer(provider: "TracerProvider") -> "Tracer":
    return provider.get_tracer("llm_common")


@lru_cache(maxsize=4 * len(INSTRUMENTS))
def _taker(
    provider: "MeterProvider", name: str
) -> "Callable[[float, Mapping[str, Attribute]], None]":
    meter = provider.get_meter("llm_common")
    unit, description, buckets = INSTRUMENTS[name]
    if not buckets:
        return meter.create_counter(name, unit, description).add
    return meter.create_histogram(
        name, unit, description, explicit_bucket_boundaries_advisory=buckets
    ).record


def facts_of_found(found: Mapping[str, float | None]) -> dict[str, Attribute]:
    """Return how many items a retrieval found, and the ids of the first 50.

    Their scores are added where all of them have one.

    The conventions have a place for both, `gen_ai.retrieval.documents`, but for users who ask for
    it.
    """
    ids = [*islice(found, MAX_IDS)]
    scores = [score for each in ids if (score := found[each]) is not None]
    facts: dict[str, Attribute] = {
        "llm_common.retrieval.count": len(found),
        "llm_common.retrieval.ids": [each[:_MAX_ID_CHARS] for each in ids],
    }
    return facts | (
        {"llm_common.retrieval.scores": scores} if ids and len(scores) == len(ids) else {}
    )


INFERENCE_CALLS: Final = "gen_ai.invoke_agent.inference_calls"
TOOL_CALLS: Final = "gen_ai.invoke_agent.tool_calls"
_calls: ContextVar["Counter[str] | None"] = ContextVar("llm_common_calls", default=None)


@contextmanager
def counting(calls: "Counter[str]") -> Iterator[None]:
    """Count the model calls and tool calls in the block, by the histogram of a run."""
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
        """Takes one choice or call, with the number of its span and of the span around that.

        0 is the run.
        """


class TracedRun(Protocol):
    """A run as its trace sees it; without a trace, its methods have no effect."""

    def active(self) -> AbstractContextManager[None]:
        """Record what happens in the block; not around a `yield` of an async generator."""

    def recorded(self) -> AbstractContextManager[object]:
        """Record what happens in the block and end with it: `ok`, or `error` if it raised."""

    def end(self, status: str = "ok") -> None:
        """End the run, once."""


class _UntracedRun:
    def active(self) -> AbstractContextManager[None]:
        return nullcontext()

    def recorded(self) -> AbstractContextManager[object]:
        return nullcontext()

    def end(self, status: str = "ok") -> None:
        pass


class BeginsRun(Protocol):
    """A subscriber: told of each run that begins."""

    def __call__(self, query_id: str, *, query: str | None = None) -> TracedRun:
        """Return the run, which the caller ends."""


_subscribers: list[BeginsRun] = []


def subscribe(subscriber: BeginsRun) -> None:
    """Hand every run that begins from now on to a subscriber, in place of the one before."""
    _subscribers[:] = [subscriber]


def begin_run(query_id: str, *, query: str | None = None) -> TracedRun:
    """Begin a run, and tell the subscriber of it. The caller ends the run.

    Where `LLM_COMMON_TRACE_DIR` names a folder, the first run loads the trace, which subscribes.

    Args:
        query_id: Names the run's folder of traces.
        query: The question, if there is one.
    """
    if not _subscribers and read_text(TRACE_DIR) is not None:
        # Loaded by a setting, as a plugin is: nothing below the trace depends on it.
        import_module("llm_common.trace.sink")
    if not _subscribers:
        return _UntracedRun()
    return _subscribers[0](query_id, query=query)


class _Place(NamedTuple):
    """Where in a run the code is: the span, and the span around it."""

    recorder: Recorder
    step: int
    parent: int


_place: ContextVar[_Place | None] = ContextVar("llm_common_trace_place", default=None)


def record(kind: str, /, **facts: object) -> None:
    """Hand facts to the recorder of this run, if any. They must not change afterwards."""
    place = _place.get()
    if place is not None:
        place.recorder.record(kind, facts, step=place.step, parent=place.parent)


def is_recording() -> bool:
    """Whether `record` has an effect here."""
    return _place.get() is not None


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Hand to this recorder what the block records, also in tasks and threads it starts."""
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
