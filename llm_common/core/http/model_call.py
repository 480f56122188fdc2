"""The span of one model call, its retries included, and its tokens and dollars as measurements.

For the clients that send the call or hand it to another package; what calls them adds no span of
the same kind. Those that use an SDK which has spans of its own get both: switch one of the two
instrumentations off.
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

_MAX_CHARS: Final = 200  # of a text that an endpoint gave
_HTTPS: Final = 443
# Names that the conventions want in another form; those of zai, openrouter and local they do not
# know.
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
    """What the body of `model_call` tells of an answer.

    Attributes:
        span: For facts of one kind of call.
    """

    def __init__(self, current: Span) -> None:
        self.span = current
        self._started = perf_counter()
        self._has_begun = False

    def begins(self) -> None:
        """The first text of a streamed answer has come; later calls change nothing."""
        if not self._has_begun:
            self._has_begun = True
            seconds = perf_counter() - self._started
            self.span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)
            measure("gen_ai.client.inference.time_to_first_chunk", seconds, self.span.dimensions())

    def ends(self, response: LLMResponse) -> LLMResponse:
        """The answer, which is whole."""
        self.answered_by(response.model)
        reasons = []
        if response.finish_reason:
            reasons.append(response.finish_reason[:_MAX_CHARS])
        self.span.set_attribute("gen_ai.response.id", response.id[:_MAX_CHARS])
        self.span.set_attribute("gen_ai.response.finish_reasons", reasons)
        return response

    def answered_by(self, model: str) -> None:
        """The model that answered, by its endpoint's account."""
        self.span.set_attribute("gen_ai.response.model", model[:_MAX_CHARS])


@contextmanager
def chat_call(
    request: ChatRequest, *, provider: str, host: str | None, bill: Bill, streams: bool = False
) -> Iterator[ModelCall]:
    """A `chat` operation for the duration of the block; a streamed one may yield in it."""
    asked = {**request.core, **request.optional}
    facts: dict[str, Attribute] = {}
    for option, name in _OPTIONS.items():
        value: Any = asked.get(option)
        is_default = option == "n" and value == 1
        if type(value) in {int, float} and not is_default:
            facts[name] = value
    wanted = asked.get("response_format")
    if isinstance(wanted, Mapping):
        facts["gen_ai.output.type"] = (
            "json" if str(wanted.get("type")).startswith("json") else "text"
        )
    if streams:
        facts["gen_ai.request.stream"] = True
    with model_call(
        "chat", request.model, facts, provider=provider, host=host, bill=bill, detached=streams
    ) as call:
        yield call


@contextmanager
def model_call(
    name: str,
    model: str,
    attributes: Mapping[str, Attribute],
    *,
    provider: str,
    host: str | None,
    bill: Bill,
    detached: bool = False,
) -> Iterator[ModelCall]:
    """An operation with what its bill says at the end, also after a failure.

    Args:
        name: The operation.
        model: The one that is asked.
        attributes: Of this kind of call.
        provider: As our configuration names it.
        host: Of the endpoint, as `host_of` gives it, where it is known.
        bill: Of this call.
        detached: See `operation`.
    """
    facts: dict[str, Attribute] = {
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": model[:_MAX_CHARS],
        **_server(host),
        **attributes,
    }
    with operation(name, model, facts, client=True, detached=detached) as current:
        try:
            yield ModelCall(current)
        finally:
            _account(current, bill)


def _account(current: Span, bill: Bill) -> None:
    """The tokens and dollars on the span and as measurements.

    A call without a reply counts as 0 tokens.
    """
    usage, shared = bill.usage or LLMUsage(), current.dimensions()
    # Endpoints do not tell tokens of texts from those of pictures.
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


def _server(host: str | None) -> dict[str, Attribute]:
    parts = urlsplit(f"//{host or ''}")
    if not parts.hostname:
        return {}
    return {"server.address": parts.hostname, "server.port": parts.port or _HTTPS}
