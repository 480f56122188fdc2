"""The span and the measurements of one model call, its retries included.

The clients that send a call, or pass it to another package, create the span. Callers of a client
add none of the same kind. An SDK with its own instrumentation produces a second span, so disable
one of the two.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from llm_common._telemetry import Attribute, Span, measure, operation
from llm_common.core.http.costs import Bill
from llm_common.core.http.wire import ChatRequest
from llm_common.core.models import LLMResponse, LLMUsage

_MAX_CHARS: Final = 200  # bounds an attribute whose text comes from an endpoint
_HTTPS: Final = 443
# Providers whose name differs in OpenTelemetry's conventions, which have none for zai, openrouter
# and local.
_PROVIDERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "azure": "azure.ai.openai",
        "bedrock": "aws.bedrock",
        "gemini": "gcp.gemini",
        "mistral": "mistral_ai",
        "moonshot": "moonshot_ai",
        "vertex_ai": "gcp.vertex_ai",
        "xai": "x_ai",
    }
)
_OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "temperature": "gen_ai.request.temperature",
        "max_tokens": "gen_ai.request.max_tokens",
        "max_completion_tokens": "gen_ai.request.max_tokens",
        "top_p": "gen_ai.request.top_p",
        "frequency_penalty": "gen_ai.request.frequency_penalty",
        "presence_penalty": "gen_ai.request.presence_penalty",
        "seed": "gen_ai.request.seed",
        "n": "gen_ai.request.choice.count",
    }
)


class ModelCall:
    """A model call whose answer is recorded on its span."""

    def __init__(self, current: Span) -> None:
        self._span = current
        self._started = perf_counter()
        self._has_begun = False

    def record_first_text(self) -> None:
        """Record the time of a streamed answer's first text. Later calls have no effect."""
        if not self._has_begun:
            self._has_begun = True
            seconds = perf_counter() - self._started
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)
            measure("gen_ai.client.inference.time_to_first_chunk", seconds, self._span.dimensions())

    def record_response(self, response: LLMResponse) -> LLMResponse:
        """Record a whole answer, and return it."""
        reasons = []
        if response.finish_reason:
            reasons.append(response.finish_reason[:_MAX_CHARS])
        # The model that answered, as the endpoint names it.
        self._span.set_attribute("gen_ai.response.model", response.model[:_MAX_CHARS])
        self._span.set_attribute("gen_ai.response.id", response.id[:_MAX_CHARS])
        self._span.set_attribute("gen_ai.response.finish_reasons", reasons)
        return response


@contextmanager
def chat_call(
    request: ChatRequest,
    *,
    provider: str,
    host: str | None,
    bill: Bill,
    chosen_by: str | None,
    streams: bool = False,
) -> Iterator[ModelCall]:
    """Run a block as a `chat` operation, and add charges and names to its LLMErrors.

    The charges are recorded at the end, also after a failure.

    Args:
        request: The request, for the attributes of the span.
        provider: Name of the provider in the configuration.
        host: Host of the endpoint from `host_of`, or None if unknown.
        bill: Charges of this call.
        chosen_by: As for `Bill.attach_to_errors`.
        streams: Whether the answer is streamed. Only then may the block yield.
    """
    sent = {**request.core, **request.optional}
    attributes: dict[str, Attribute] = {
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": request.model[:_MAX_CHARS],
    }
    server = urlsplit(f"//{host or ''}")
    if server.hostname:
        attributes["server.address"] = server.hostname
        attributes["server.port"] = server.port or _HTTPS
    for option, name in _OPTIONS.items():
        value: Any = sent.get(option)
        is_default = option == "n" and value == 1  # the conventions leave it out
        if type(value) in {int, float} and not is_default:
            attributes[name] = value
    response_format = sent.get("response_format")
    if isinstance(response_format, Mapping):
        is_json = str(response_format.get("type")).startswith("json")
        attributes["gen_ai.output.type"] = "json" if is_json else "text"
    if streams:
        attributes["gen_ai.request.stream"] = True
    with (
        operation("chat", request.model, attributes, client=True, detached=streams) as current,
        bill.attach_to_errors(model=request.model, host=host, chosen_by=chosen_by),
    ):
        try:
            yield ModelCall(current)
        finally:
            _record_charges(current, bill)


def _record_charges(current: Span, bill: Bill) -> None:
    """Record tokens and dollars on the span and as measurements."""
    # A call without a reply is measured as 0 tokens.
    usage, shared = bill.usage or LLMUsage(), current.dimensions()
    # Endpoints do not count the tokens of texts and images separately.
    spent = shared | {"gen_ai.token.modality": "unknown"}
    for kind, tokens in (
        ("input_tokens", usage.prompt_tokens),
        ("output_tokens", usage.completion_tokens),
        ("cache_read.input_tokens", usage.cached_tokens),
    ):
        measure(f"gen_ai.client.inference.usage.{kind}", tokens, spent)
        if bill.usage is not None:
            current.set_attribute(f"gen_ai.usage.{kind}", tokens)
    measure("gen_ai.client.inference.operation.input_tokens", usage.prompt_tokens, shared)
    measure("gen_ai.client.inference.operation.output_tokens", usage.completion_tokens, shared)
    if bill.cost_usd is not None:
        measure("llm_common.cost", bill.cost_usd, shared)
        current.set_attribute("llm_common.cost_usd", bill.cost_usd)
