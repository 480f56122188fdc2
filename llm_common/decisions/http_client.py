"""`HttpDecisionClient`: a client for decision models behind either wire format."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from math import inf
from time import monotonic
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from llm_common import _env
from llm_common.core.http.costs import Bill, CostLedger, UsageTotals
from llm_common.core.http.endpoint import Endpoint
from llm_common.core.http.model_call import model_call
from llm_common.core.http.providers import checked_base_url, host_of
from llm_common.core.http.transport import BackOff, deadline_at
from llm_common.core.http.wire import count_or_zero, dict_or_empty
from llm_common.core.models import LLMUsage
from llm_common.decisions.questions import Decisions, Question, State, check_arguments, decisions_of
from llm_common.decisions.wire_formats import WIRE_FORMATS
from llm_common.errors import ConfigError, LLMError

_PER_MILLION = 1_000_000
# Dollars for a million input tokens. Output is free at both. Source: genai-prices 0.2.3, which
# cites https://docs.typesafe.ai/models and
# https://developers.openai.com/api/docs/models/gpt-6-luna.
_PRICE_AT: Final = {("api.typesafe.ai", "jev-"): 0.042, ("api.openai.com", "gpt-6-luna"): 0.10}
_LONG_INPUT_TOKENS = 272_000  # OpenAI charges double for longer inputs
_LONG_INPUT_FACTOR = 2


class DecisionConfig(BaseModel):
    """The endpoint of a decision client, and its limits.

    Attributes:
        url: Address with or without `/v1` at its end: `https://api.typesafe.ai`,
            `https://openrouter.ai/api/v1`.
        model: Model for calls that name none: `jev-latest`, `gpt-6-luna`.
        wire: `systemone` (TypeSafe, vLLM, SGLang, Ollama, LiteLLM, Fireworks, OpenRouter) or
            `openai`.
        api_key: Key of the endpoint, which never appears in repr, logs or errors. Empty for a local
            server without a key.
        timeout_s: Deadline of one call in seconds, retries and waits included.
        max_attempts: Maximum number of HTTP requests for one call.
        max_response_bytes: Maximum size of a reply after decompression.
        input_usd_per_million: Dollars for a million input tokens. Output counts as free. None uses
            the known price of Jev at TypeSafe and of gpt-6-luna at OpenAI. For other models the
            cost is then unknown unless the endpoint reports it.
        cost_limit_usd: Dollars that the client may spend in total. None sets no limit. A limit
            needs a known price.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    model: str = Field(min_length=1)
    wire: Literal["systemone", "openai"] = "systemone"
    api_key: SecretStr = SecretStr("")
    timeout_s: float = Field(default=10.0, gt=0, le=3600)
    max_attempts: int = Field(default=2, ge=1, le=10)
    max_response_bytes: int = Field(default=5_000_000, ge=1)
    input_usd_per_million: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cost_limit_usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)


def decision_config_from_env() -> DecisionConfig | None:
    """Read the configuration of a decision model from the environment.

    Returns:
        The configuration, or None if `LLM_COMMON_DECISION_URL` is not set.

    Raises:
        ConfigError: If a value is unusable, the model is missing, or a key or a model is set
            without the address.
    """
    url, model = _env.read_text(_env.DECISION_URL), _env.read_text(_env.DECISION_MODEL)
    key = _env.read_text(_env.DECISION_API_KEY)
    wire = (_env.read_text(_env.DECISION_WIRE) or "").lower()
    if wire not in WIRE_FORMATS:
        raise ConfigError(
            f"{_env.DECISION_WIRE.name} is {wire[:80]!r}; set it to {' or '.join(WIRE_FORMATS)}",
            variable=_env.DECISION_WIRE.name,
            value=wire,
        )
    if url is None:
        if key is None and model is None:
            return None
        variable = _env.DECISION_MODEL if key is None else _env.DECISION_API_KEY
        raise ConfigError(
            f"{variable.name} is set without an address; set {_env.DECISION_URL.name}",
            variable=_env.DECISION_URL.name,
        )
    if model is None:
        raise ConfigError(
            f"{_env.DECISION_URL.name} is set without a model; set {_env.DECISION_MODEL.name}",
            variable=_env.DECISION_MODEL.name,
        )
    address = checked_base_url(url, variable=_env.DECISION_URL.name)
    return DecisionConfig.model_validate(
        {"url": address, "model": model, "wire": wire, "api_key": SecretStr(key or "")}
    )


class HttpDecisionClient:
    """A client for an endpoint that serves decision models.

    Each call sends all its questions in one request. One deadline spans a call with its retries and
    waits. Broken connections, 408, 429 and 5xx are retried, after the delay in Retry-After if it
    fits in the deadline. The endpoint does not see the ids of the questions. Safe to share between
    tasks.

    Args:
        config: Endpoint, key and limits.
        transport: Replaces the network, for tests.

    Raises:
        ConfigError: If `url` or `api_key` is unusable, or `cost_limit_usd` is set without a known
            price.
        TypeError: If `config` is not a `DecisionConfig`.
    """

    def __init__(
        self, config: DecisionConfig, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        if not isinstance(config, DecisionConfig):
            raise TypeError(
                f"config must be a DecisionConfig, got {type(config).__name__}; "
                "pass DecisionConfig(url=…, model=…)"
            )
        self._config = config
        self._wire = WIRE_FORMATS[config.wire]
        address = checked_base_url(config.url, variable="url")
        self._endpoint = Endpoint(
            address.removesuffix("/v1") + "/v1" + self._wire.path,
            api_key=config.api_key,
            max_response_bytes=config.max_response_bytes,
            transport=transport,
        )
        # Prices and errors need the host alone, and spans its port too.
        self._host, self._server = urlsplit(address).hostname or "", host_of(address)
        self._ledger = CostLedger(config.cost_limit_usd)
        # Raised here, since the ledger would refuse every call.
        if config.cost_limit_usd is not None and self._price(config.model) is None:
            raise ConfigError(
                f"cost_limit_usd needs the price of {config.model[:80]!r}; set "
                "input_usd_per_million",
                variable="input_usd_per_million",
            )

    @classmethod
    def from_env(cls, *, transport: httpx.AsyncBaseTransport | None = None) -> Self:
        """Create a client for the decision model that the environment names.

        `decision_config_from_env` lists the variables.

        Raises:
            ConfigError: If the environment names no decision model, or an unusable value.
        """
        config = decision_config_from_env()
        if config is None:
            raise ConfigError(
                f"no decision model is configured; set {_env.DECISION_URL.name} and "
                f"{_env.DECISION_MODEL.name}",
                variable=_env.DECISION_URL.name,
            )
        return cls(config, transport=transport)

    @property
    def config(self) -> DecisionConfig:
        """Return the configuration that the client was created with."""
        return self._config

    @property
    def usage(self) -> UsageTotals:
        """Return a frozen snapshot of the usage of all calls so far."""
        return self._ledger.totals

    async def decide(
        self,
        state: State,
        questions: Mapping[str, Question],
        *,
        model: str | None = None,
        timeout_s: float | None = None,
    ) -> Decisions:
        """Return the answers to all questions about one state, with one request.

        Args:
            state: The subject of the questions. A dict or list is sent as JSON, and with the wire
                format `openai` as JSON text.
            questions: The questions by id. The caller chooses the ids, which the endpoint does not
                see. `openai` accepts at most 400 questions, with at most 255 options each.
            model: None uses the configuration's.
            timeout_s: Deadline in seconds. None uses the configuration's.

        Returns:
            An answer, or the reason for its absence, for each question.

        Raises:
            LLMError: One of the following, with the `usage` and `cost_usd` that were charged.
            LLMTimeoutError: If no answer came within the deadline.
            LLMConnectionError: If there is no connection, it broke, or the client is closed.
            LLMStatusError: If the endpoint answered with an error. The subclass says which.
            MalformedReplyError: If no answer is usable, or the reply answers a question that was
                not sent.
            CostLimitError: If the call could exceed the client's limit. Nothing more was sent.
            ValueError: If there are no questions, too many or too large ones, or the deadline is
                not positive.
            TypeError: If an argument has the wrong type, or the state is not JSON.
        """
        check_arguments(state, questions, timeout_s)
        self._wire.check_sizes(questions)
        model, timeout_s = model or self._config.model, timeout_s or self._config.timeout_s
        bill = Bill()
        attributes = {"llm_common.questions": len(questions)}
        with model_call(
            "decide", model, attributes, provider=self._wire.name, host=self._server, bill=bill
        ) as call:
            try:
                async with deadline_at(
                    asyncio.get_running_loop().time() + timeout_s, timeout_s=timeout_s
                ):
                    decisions = await self._answer(
                        state, questions, model, bill, timeout_s=timeout_s
                    )
            except LLMError as exc:
                exc.usage, exc.cost_usd = bill.usage, bill.cost_usd
                exc.locate(model=model, host=self._host)
                raise
            call.record_model(decisions.model)
            call.span.set_attribute("llm_common.unanswered", len(decisions.unanswered))
        return decisions

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice. Later calls raise LLMConnectionError."""
        await self._endpoint.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _answer(
        self,
        state: State,
        questions: Mapping[str, Question],
        model: str,
        bill: Bill,
        *,
        timeout_s: float,
    ) -> Decisions:
        started = monotonic()
        # Bytes behind a reply could arrive only after the next request, and be read as its reply.
        # The names of the questions depend on the whole request, so that a reply to another one is
        # noticed. The caller's ids can be the same in every request.
        # Six digits are short in the prompt, and enough to tell two requests apart.
        request_hash = blake2b(
            repr((model, state, questions)).encode(errors="replace"), digest_size=3
        ).hexdigest()
        names = [f"{request_hash}-{index}" for index in range(len(questions))]
        sent = dict(zip(names, questions.values(), strict=True))
        ids = dict(zip(names, questions, strict=True))
        fields = {"model": model, **self._wire.fields(state, sent)}
        # A lone surrogate, which UTF-8 cannot encode, is sent as `?`.
        body = json.dumps(
            fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode(errors="replace")

        async def exchange() -> dict[str, Any]:
            # The size bounds the tokens: no token is shorter than a byte.
            with self._ledger.reserve(self._cost(model, tokens=len(body))):
                return await self._endpoint.post(
                    body, timeout_s=timeout_s, charge=lambda reply: self._charge(reply, model, bill)
                )

        deadline = asyncio.get_running_loop().time() + timeout_s
        back_off = BackOff(max_attempts=self._config.max_attempts, deadline=deadline)
        payload = await self._endpoint.retry(exchange, wait_s=back_off.wait_s)
        # By the sent names, which are then replaced by the caller's ids.
        answered_by = payload.get("model")
        decisions = decisions_of(
            sent,
            self._wire.answers(payload, sent),
            model=answered_by if isinstance(answered_by, str) else model,
            usage=bill.usage,
            cost_usd=bill.cost_usd,
            latency_ms=round((monotonic() - started) * 1000),
        )
        return replace(
            decisions,
            answers={ids[name]: answer for name, answer in decisions.answers.items()},
            unanswered={ids[name]: reason for name, reason in decisions.unanswered.items()},
        )

    def _charge(self, payload: Mapping[str, Any], model: str, bill: Bill) -> None:
        """Record the tokens of a reply, and its dollars: the reported cost, else by the price."""
        # Both formats name the counts differently from chat completions.
        reported = dict_or_empty(payload.get("usage"))
        details = dict_or_empty(reported.get("input_tokens_details"))
        prompt_tokens = count_or_zero(reported.get("input_tokens"))
        completion_tokens = count_or_zero(reported.get("output_tokens"))
        usage = LLMUsage(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            total_tokens=prompt_tokens + completion_tokens,
            cached_tokens=count_or_zero(details.get("cached_tokens")),
        )
        cost_usd: float | None = None
        cost = reported.get("cost")
        # A bool is an int, but not an amount.
        if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < inf:
            cost_usd = float(cost)
        # Without a count the cost is unknown, and not 0.
        elif usage.prompt_tokens:
            cost_usd = self._cost(model, tokens=usage.prompt_tokens)
        self._ledger.charge(usage, cost_usd=cost_usd)
        bill.add(usage, cost_usd=cost_usd)

    def _price(self, model: str) -> float | None:
        if self._config.input_usd_per_million is not None:
            return self._config.input_usd_per_million
        for (host, prefix), price in _PRICE_AT.items():
            if host == self._host and model.startswith(prefix):
                return price
        return None

    def _cost(self, model: str, *, tokens: int) -> float | None:
        price = self._price(model)
        if price is None:
            return None
        # A configured price is the caller's, and has no surcharge.
        has_own_price = self._config.input_usd_per_million is not None
        if self._wire.name == "openai" and tokens > _LONG_INPUT_TOKENS and not has_own_price:
            price *= _LONG_INPUT_FACTOR
        return tokens * price / _PER_MILLION
