"""`HttpDecisionClient`: decision models behind either wire format."""

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
from llm_common.core.models import LLMUsage
from llm_common.decisions.questions import Decisions, Question, State, check_arguments, decisions_of
from llm_common.decisions.wire_formats import WIRE_FORMATS
from llm_common.errors import ConfigError, LLMError

_PER_MILLION = 1_000_000
# Dollars for a million input tokens; output is free at both. Source: genai-prices 0.2.3, which
# cites https://docs.typesafe.ai/models and
# https://developers.openai.com/api/docs/models/gpt-6-luna.
_PRICE_AT: Final = {("api.typesafe.ai", "jev-"): 0.042, ("api.openai.com", "gpt-6-luna"): 0.10}
_LONG_INPUT_TOKENS = 272_000  # OpenAI charges twice as much above


class DecisionConfig(BaseModel):
    """The endpoint of a decision client, and its limits.

    Attributes:
        url: With or without `/v1` at its end: `https://api.typesafe.ai`,
            `https://openrouter.ai/api/v1`.
        model: Used when a call names none: `jev-latest`, `gpt-6-luna`.
        wire: `systemone` (TypeSafe, vLLM, SGLang, Ollama, LiteLLM, Fireworks, OpenRouter) or
            `openai`.
        api_key: Never in repr, logs or errors; empty for a local server without a key.
        timeout_s: Deadline of one call in seconds, retries and waits included.
        max_attempts: Most HTTP requests of one call.
        max_response_bytes: A longer reply, after decompression, is refused.
        input_usd_per_million: Dollars for a million input tokens; None takes the known price of Jev
            at TypeSafe and of gpt-6-luna at OpenAI, else reports no cost unless the endpoint does.
            Output is taken to be free.
        cost_limit_usd: Dollars that the client may spend in total; None sets no limit. Needs a
            known price.
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
    """The decision model that the environment names, or None without `LLM_COMMON_DECISION_URL`.

    Raises:
        ConfigError: A value is unusable, the model is missing, or a key or model stands without the
            address.
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
        given = _env.DECISION_MODEL if key is None else _env.DECISION_API_KEY
        raise ConfigError(
            f"{given.name} is set, but not where; set {_env.DECISION_URL.name}",
            variable=_env.DECISION_URL.name,
        )
    if model is None:
        raise ConfigError(
            f"{_env.DECISION_URL.name} needs a model to ask for; set {_env.DECISION_MODEL.name}",
            variable=_env.DECISION_MODEL.name,
        )
    address = checked_base_url(url, variable=_env.DECISION_URL.name)
    return DecisionConfig.model_validate(
        {"url": address, "model": model, "wire": wire, "api_key": SecretStr(key or "")}
    )


class HttpDecisionClient:
    """Answers from an endpoint that serves decision models.

    One request for all questions of a call. One deadline spans a call with its retries and waits.
    Broken connections, 408, 429 and 5xx are retried; Retry-After is honoured if it fits in the
    deadline. The endpoint sees neither the ids of the questions nor any name but those of options.
    Safe to share between tasks of one event loop.

    Args:
        config: Endpoint, key, limits.
        transport: Replaces the network, for tests.

    Raises:
        ConfigError: `url` or `api_key` cannot be used, or there is a cost limit without a known
            price.
        TypeError: `config` is no `DecisionConfig`.
    """

    def __init__(
        self, config: DecisionConfig, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        given: object = config  # a caller without a type checker passes an address
        if not isinstance(given, DecisionConfig):
            raise TypeError(
                f"config is a {type(given).__name__}; pass DecisionConfig(url=…, model=…)"
            )
        self._config = config
        self._wire = WIRE_FORMATS[config.wire]
        address = checked_base_url(config.url, variable="url")
        self._endpoint = Endpoint(
            address.removesuffix("/v1") + "/v1" + self._wire.path,
            api_key=config.api_key,
            max_response_bytes=config.max_response_bytes,
            # The names of the questions depend on the request: no reply passes for another's.
            keep_alive=True,
            transport=transport,
        )
        self._host, self._server = urlsplit(address).hostname or "", host_of(address)
        self._ledger = CostLedger(config.cost_limit_usd)
        if config.cost_limit_usd is not None and self._price(config.model) is None:
            raise ConfigError(
                f"cost_limit_usd needs the price of {config.model[:80]!r}; set "
                "input_usd_per_million",
                variable="input_usd_per_million",
            )

    @classmethod
    def from_env(cls, *, transport: httpx.AsyncBaseTransport | None = None) -> Self:
        """A client for the decision model that the environment names.

        See `decision_config_from_env`.

        Raises:
            ConfigError: It names none, or an unusable one.
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
        """The configuration that the client was made with."""
        return self._config

    @property
    def usage(self) -> UsageTotals:
        """Usage of the calls so far: a frozen snapshot."""
        return self._ledger.totals

    async def decide(
        self,
        state: State,
        questions: Mapping[str, Question],
        *,
        model: str | None = None,
        timeout_s: float | None = None,
    ) -> Decisions:
        """The answers to all questions about one state, by one request.

        Args:
            state: What the questions are about. A dict or list is sent as JSON; with the wire
                format `openai` as the text of it.
            questions: By ids that the caller chooses and the endpoint does not see; for `openai` at
                most 400, of at most 255 options.
            model: None takes the configuration's.
            timeout_s: None takes the configuration's.

        Returns:
            An answer, or a reason why there is none, for each question.

        Raises:
            LLMError: One of the following, with the `usage` and `cost_usd` that were charged.
            LLMTimeoutError: No answer within the deadline.
            LLMConnectionError: No connection, a broken one, or the client is closed.
            LLMStatusError: The endpoint answered with an error; the subclasses say which.
            MalformedReplyError: No usable answer, or an answer to what was not asked.
            CostLimitError: The call could exceed the client's limit; nothing more was sent.
            ValueError: No questions, too many or too large ones, or a deadline that is not
                positive.
            TypeError: An argument of the wrong kind, or a state that is not JSON.
        """
        check_arguments(state, questions, timeout_s)
        self._wire.check_sizes(questions)
        model, timeout_s = model or self._config.model, timeout_s or self._config.timeout_s
        bill = Bill()
        facts = {"llm_common.questions": len(questions)}
        with model_call(
            "decide", model, facts, provider=self._wire.name, host=self._server, bill=bill
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
            call.answered_by(decisions.model)
            call.span.set_attribute("llm_common.unanswered", len(decisions.unanswered))
        return decisions

    async def aclose(self) -> None:
        """Closes the connections, once or twice; later calls raise LLMConnectionError."""
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
        # Bytes that an endpoint sends after a reply are read as the next reply on a kept-alive
        # connection. Names that depend on the request let no reply pass for that of another
        # request; ids could be anything.
        asked = blake2b(
            repr((model, state, questions)).encode(errors="replace"), digest_size=3
        ).hexdigest()
        ids = {f"{asked}-{number}": name for number, name in enumerate(questions)}
        named = {name: questions[ids[name]] for name in ids}
        fields = {"model": model, **self._wire.fields(state, named)}
        # A lone surrogate, which UTF-8 cannot hold, is sent as `?`.
        body = json.dumps(
            fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode(errors="replace")

        async def exchange() -> dict[str, Any]:
            # no token is shorter than a byte
            with self._ledger.reserved(self._cost(model, tokens=len(body))):
                return await self._endpoint.post(
                    body, timeout_s=timeout_s, charge=lambda reply: self._charge(reply, model, bill)
                )

        deadline = asyncio.get_running_loop().time() + timeout_s
        back_off = BackOff(max_attempts=self._config.max_attempts, deadline=deadline)
        payload = await self._endpoint.retried(exchange, wait_s=back_off.wait_s)
        answered_by = payload.get("model")
        decisions = decisions_of(
            named,
            self._wire.answers(payload, named),
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
        """Records the tokens and dollars of a reply: the reported cost, else by the price."""
        reported = payload.get("usage")
        if not isinstance(reported, dict):
            reported = {}
        details = reported.get("input_tokens_details")
        counts = {
            "prompt_tokens": reported.get("input_tokens"),
            "completion_tokens": reported.get("output_tokens"),
            "cached_tokens": details.get("cached_tokens") if isinstance(details, dict) else 0,
        }
        usage = LLMUsage(**{name: n for name, n in counts.items() if type(n) is int and n > 0})
        usage = usage.model_copy(
            update={"total_tokens": usage.prompt_tokens + usage.completion_tokens}
        )
        cost: float | None = None
        stated = reported.get("cost")
        if isinstance(stated, int | float) and not isinstance(stated, bool) and 0 <= stated < inf:
            cost = float(stated)
        elif usage.prompt_tokens:
            cost = self._cost(model, tokens=usage.prompt_tokens)
        self._ledger.charge(usage, cost_usd=cost)
        bill.add(usage, cost_usd=cost)

    def _price(self, model: str) -> float | None:
        if self._config.input_usd_per_million is not None:
            return self._config.input_usd_per_million
        known = (
            (host, name)
            for host, name in _PRICE_AT
            if host == self._host and model.startswith(name)
        )
        return next((_PRICE_AT[place] for place in known), None)

    def _cost(self, model: str, *, tokens: int) -> float | None:
        price = self._price(model)
        if price is None:
            return None
        long = (
            self._wire.name == "openai"
            and tokens > _LONG_INPUT_TOKENS
            and self._config.input_usd_per_million is None
        )
        return tokens * price * (2 if long else 1) / _PER_MILLION
