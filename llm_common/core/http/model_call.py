"""One model call, its retries included: its span, its measurements and its costs.

The clients that send a call, or pass it to another package, create the span. Callers of a client
add none of the same kind. An SDK with its own instrumentation produces a second span, so disable
one of the two.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from llm_common._env import CONTEXT_SELECTION_MODEL, TOOL_SELECTION_MODEL, UNKNOWN_PRICE
from llm_common._telemetry import Attribute, Span, operation
from llm_common.core.http.wire import ChatRequest
from llm_common.core.models import LLMResponse, LLMUsage, TokenPrices
from llm_common.errors import CostLimitError, LLMError

_ANSWER_TOKENS = 1_000  # a guess for calls without `max_tokens`
_CALL_MODEL = (
    f"the call's `model`, a selector's from {TOOL_SELECTION_MODEL.name} or "
    f"{CONTEXT_SELECTION_MODEL.name}"
)


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Usage of all calls of a client so far, as the endpoint counted it.

    Attributes:
        calls: Number of charged replies. A retried call can have several, failed ones included. A
            stream that was not read to its end is one, of unknown price.
        prompt_tokens: Tokens of the prompts.
        completion_tokens: Tokens of the answers.
        cached_tokens: Tokens of the prompts that the endpoint had cached.
        cost_usd: Dollars of the calls with a known price.
        unpriced_calls: Number of `calls` that are missing from `cost_usd`.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0


@dataclass(slots=True)
class Bill:
    """The charges of one call so far, its failed requests included.

    Attributes:
        usage: Tokens. None before the first charge.
        cost_usd: Dollars. None before the first charge, and after a reply of unknown price.
    """

    usage: LLMUsage | None = None
    cost_usd: float | None = None

    def add(self, usage: LLMUsage, *, cost_usd: float | None) -> None:
        """Add the charge of one reply."""
        if self.usage is None:
            self.usage, self.cost_usd = usage, cost_usd
            return
        self.usage += usage
        # Once unknown, the cost stays unknown.
        if self.cost_usd is None or cost_usd is None:
            self.cost_usd = None
        else:
            self.cost_usd += cost_usd


def expected_cost_usd(
    body: bytes, *, prices: TokenPrices, max_tokens: int | None, answers: int = 1
) -> float:
    """Return the maximum cost of a request in dollars.

    Args:
        body: The request.
        prices: Prices of its model.
        max_tokens: Maximum length of one answer. None expects 1,000 tokens.
        answers: Number of answers to the one prompt.
    """
    usage = LLMUsage(
        # No token is shorter than a byte, so the size of the request bounds its tokens.
        prompt_tokens=len(body),
        completion_tokens=(max_tokens or _ANSWER_TOKENS) * answers,
    )
    return prices.cost_usd(usage)


class CostLedger:
    """The sum of a client's costs, and the limit that it must not exceed.

    The expected cost of a request is reserved before the request is sent, so that concurrent calls
    stay within the limit together. `LLMConfig.cost_limit_usd` lists what can still exceed it.

    Args:
        limit_usd: Limit in dollars. None sets no limit.

    Attributes:
        totals: Charges so far.
        max_reply_usd: Cost of the most expensive reply so far, in dollars.
    """

    def __init__(self, limit_usd: float | None) -> None:
        self._limit_usd = limit_usd
        self._reserved_usd = 0.0
        self._assumed_usd = 0.0  # for replies of unknown price
        self.max_reply_usd = 0.0
        self.totals = UsageTotals()

    @contextmanager
    def reserve(self, expected_usd: float | None) -> Iterator[None]:
        """Reserve the cost of one request for the block in which it is sent and charged.

        Args:
            expected_usd: Maximum cost in dollars. None for an unknown price.

        Raises:
            CostLimitError: If the request could exceed the limit, or its price is unknown under a
                limit. The block did not run.
        """
        expected = expected_usd or 0.0
        if self._limit_usd is not None:
            spent_usd = self.totals.cost_usd + self._assumed_usd
            used_usd = spent_usd + self._reserved_usd
            text = ""
            if expected_usd is None:
                text = (
                    f"nothing was sent: cost_limit_usd is ${self._limit_usd:.4g}, and the price of "
                    "this model is unknown; add it to LLMConfig.prices, or count the highest known "
                    f'price with unknown_price="dearest" or {UNKNOWN_PRICE.name}=dearest'
                )
            # A spent limit also stops calls whose expected cost is 0.
            elif used_usd >= self._limit_usd or used_usd + expected > self._limit_usd:
                text = (
                    f"nothing was sent: ${used_usd:.4g} of ${self._limit_usd:.4g} are spent or "
                    f"reserved, and this call may cost ${expected:.4g}; raise cost_limit_usd, set "
                    "max_tokens, or create a new client"
                )
            if text:
                raise CostLimitError(text, spent_usd=spent_usd, limit_usd=self._limit_usd)
        # No await since the check above, so that no other call can reserve in between.
        self._reserved_usd += expected
        try:
            yield
        finally:
            self._reserved_usd -= expected

    def charge(self, usage: LLMUsage, *, cost_usd: float | None, assumed_usd: float = 0.0) -> None:
        """Add the charge of one reply.

        Args:
            usage: Tokens of the reply.
            cost_usd: Dollars of the reply, or None if unknown.
            assumed_usd: Dollars that count towards the limit, but not as cost, if `cost_usd` is
                None.
        """
        if cost_usd is None:
            self._assumed_usd += assumed_usd
        # Bounds the next call of a model whose price is only assumed.
        self.max_reply_usd = max(self.max_reply_usd, cost_usd or 0.0)
        self.totals = replace(
            self.totals,
            calls=self.totals.calls + 1,
            prompt_tokens=self.totals.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self.totals.completion_tokens + usage.completion_tokens,
            cached_tokens=self.totals.cached_tokens + usage.cached_tokens,
            cost_usd=self.totals.cost_usd + (cost_usd or 0.0),
            unpriced_calls=self.totals.unpriced_calls + (cost_usd is None),
        )


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
            self._span.set_attributes({"gen_ai.response.time_to_first_chunk": seconds})

    def record_response(self, response: LLMResponse) -> LLMResponse:
        """Record a whole answer, and return it."""
        reasons = []
        if response.finish_reason:
            reasons.append(response.finish_reason[:_MAX_CHARS])
        self._span.set_attributes(
            {
                # The model that answered, as the endpoint names it.
                "gen_ai.response.model": response.model[:_MAX_CHARS],
                "gen_ai.response.id": response.id[:_MAX_CHARS],
                "gen_ai.response.finish_reasons": reasons,
            }
        )
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
        chosen_by: As for `LLMError.locate`. None means that the call itself named the model.
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
    with operation("chat", request.model, attributes, client=True, detached=streams) as current:
        try:
            yield ModelCall(current)
        except LLMError as exc:
            exc.usage, exc.cost_usd = bill.usage, bill.cost_usd
            exc.locate(model=request.model, host=host, chosen_by=chosen_by or _CALL_MODEL)
            raise
        finally:
            if bill.usage is not None:
                current.set_attributes(
                    {
                        "gen_ai.usage.input_tokens": bill.usage.prompt_tokens,
                        "gen_ai.usage.output_tokens": bill.usage.completion_tokens,
                        "gen_ai.usage.cache_read.input_tokens": bill.usage.cached_tokens,
                    }
                )
            if bill.cost_usd is not None:
                current.set_attributes({"llm_common.cost_usd": bill.cost_usd})
