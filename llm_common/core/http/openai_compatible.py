"""`OpenAICompatibleClient`: a client for any endpoint that serves `/chat/completions`."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from math import isfinite
from time import monotonic
from typing import Any, Final, Self

import httpx

from llm_common import _env
from llm_common.core.http.endpoint import Charge, Endpoint
from llm_common.core.http.model_call import (
    Bill,
    CostLedger,
    UsageTotals,
    chat_call,
    expected_cost_usd,
)
from llm_common.core.http.providers import (
    checked_base_url,
    config_from_env,
    highest_prices,
    host_of,
    profile_of,
)
from llm_common.core.http.streaming import StreamedReply, read_stream
from llm_common.core.http.transport import (
    RetryPolicy,
    deadline_at,
)
from llm_common.core.http.wire import ChatRequest, RefusedOptions, charge_of, read_response
from llm_common.core.models import (
    LLMClient,
    LLMConfig,
    LLMDelta,
    LLMMessage,
    LLMResponse,
    TokenPrices,
)
from llm_common.errors import ConfigError, LLMStatusError

_DEFAULT = f"{_env.MODEL.name} or default_model"  # sources of the default model, for errors


class OpenAICompatibleClient(LLMClient):
    """A client for an endpoint that serves the chat completions API.

    One deadline spans a call with its retries and waits. Broken connections, 408, 429 and 5xx are
    retried, up to `max_attempts` requests in all, after the delay in Retry-After if it fits in the
    deadline. Redirects are not followed, and TLS certificates are always verified. The size of a
    reply is checked while it arrives, before and after decompression. Calls of one event loop share
    connections. A connection with bytes behind an answer is closed, so that they cannot begin the
    next answer. Options that an endpoint refuses are remembered for each model, so a refusal costs
    one request once. Safe to share between tasks.

    With an https endpoint, httpx reads the proxy and certificate settings of the machine
    (HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE): a company's network may require them, and a proxy cannot
    read a TLS tunnel. With an http endpoint they are ignored, since the proxy could read prompts
    and key.

    Args:
        config: Endpoint, key and limits.
        transport: Replaces the network, for tests: an `httpx.MockTransport`, or another async
            transport of httpx.

    Attributes:
        config: The configuration that the client was created with.
        prefers_json_schema: Whether selectors should ask by JSON Schema, as in `LLMConfig`.

    Raises:
        ConfigError: If `base_url` or `api_key` is unusable.
        TypeError: If `config` is not an `LLMConfig`, or `transport` is not an async transport.
    """

    def __init__(
        self, config: LLMConfig, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        if not isinstance(config, LLMConfig):
            raise TypeError(
                f"config must be an LLMConfig, got {type(config).__name__}; pass one, or call "
                f"OpenAICompatibleClient.from_env()"
            )
        if transport is not None and not hasattr(transport, "handle_async_request"):
            raise TypeError(
                f"transport must be an async transport, got {type(transport).__name__}; pass one "
                f"such as httpx.MockTransport"
            )
        self.config: Final = config
        self.prefers_json_schema: Final = config.prefers_json_schema
        self.default_model, self.provider = config.default_model, config.provider
        self.host = host_of(config.base_url)
        self._endpoint = Endpoint(
            checked_base_url(config.base_url, variable="base_url") + "/chat/completions",
            api_key=config.api_key,
            max_response_bytes=config.max_response_bytes,
            transport=transport,
        )
        self._ledger = CostLedger(config.cost_limit_usd)
        self._dearest: TokenPrices | None = None
        if config.unknown_price == "dearest":
            self._dearest = highest_prices(config.prices)
        self._refused = RefusedOptions(frozenset)

    @classmethod
    def from_env(cls, *, transport: httpx.AsyncBaseTransport | None = None) -> Self:
        """Create a client for the endpoint that the environment names.

        `config_from_env` lists the variables.

        Raises:
            ConfigError: If the environment names no endpoint, or a value is unusable.
        """
        config = config_from_env()
        if config is None:
            raise ConfigError(
                f"no endpoint is configured; set {_env.ZAI_API_KEY.name}, "
                f"{_env.OPENROUTER_API_KEY.name} or "
                f"{_env.OPENAI_API_KEY.name}, or {_env.BASE_URL.name} and {_env.MODEL.name} for "
                f"your own server",
                variable=_env.PROVIDER.name,
            )
        return cls(config, transport=transport)

    @property
    def usage(self) -> UsageTotals:
        """Return a frozen snapshot of the usage of all calls so far."""
        return self._ledger.totals

    async def chat_completion(
        self,
        messages: Sequence[LLMMessage | Mapping[str, Any]],
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        **options: Any,
    ) -> LLMResponse:
        """Return the model's answer to a conversation.

        Args:
            messages: The conversation, oldest first. A message can be a dict of the chat
                completions API.
            model: Name at the endpoint. None uses `default_model`.
            temperature: None uses the configuration's. Never sent to models that accept none.
            max_tokens: Maximum length of the answer in tokens. None uses the configuration's.
            **options: Sent unchanged, except `timeout_s` or `timeout`, which replace the configured
                deadline in seconds. With `response_format`, options of the model's profile are
                added, such as those that disable long thinking. Options of the caller win. If the
                endpoint refuses `response_format` or an added option, the call is repeated without
                it, and `metadata["dropped_options"]` lists it. `json_schema` in this list means
                that a plain JSON object replaced the schema.

        Returns:
            One answer. `usage` and `cost_usd` include the charges of failed requests before it.
            `cost_usd` is None if a price is unknown.

        Raises:
            LLMError: One of the following, with the `usage` and `cost_usd` that were charged.
            LLMTimeoutError: If no answer came within the deadline.
            LLMConnectionError: If there is no connection, it broke, or the client is closed.
            LLMStatusError: If the endpoint answered with an error. The subclass says which.
            MalformedReplyError: If the answer is not in the API's format.
            CostLimitError: If the call could exceed the client's limit. Nothing more was sent.
            ValueError: If an option is not JSON, the deadline is not positive, or `stream` is set.
            TypeError: If `messages` is not a list of messages, or `model` is not a str.
        """
        timeout_s = _pop_timeout(options, default_s=self.config.timeout_s)
        request = self._request(messages, model, temperature, max_tokens, options)
        bill = Bill()
        with chat_call(
            request,
            provider=self.config.provider,
            host=self.host,
            bill=bill,
            chosen_by=None if model else _DEFAULT,
        ) as call:
            return call.record_response(await self._answer(request, bill, timeout_s=timeout_s))

    async def stream(
        self,
        messages: Sequence[LLMMessage | Mapping[str, Any]],
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        **options: Any,
    ) -> AsyncGenerator[LLMDelta, None]:
        """Yield the model's answer as it is written, and then the whole response.

        The deadline spans the whole answer. A request is retried, as by `chat_completion`, until
        the endpoint begins to answer, and never after. Thinking that the endpoint reports
        separately is left out. The connection is closed with the generator (use
        `contextlib.aclosing`) and when the task is cancelled.

        Args:
            messages: As for `chat_completion`.
            model: Name at the endpoint. None uses `default_model`.
            temperature: None uses the configuration's.
            max_tokens: Maximum length of the answer in tokens. None uses the configuration's.
            **options: Sent unchanged, except `timeout_s` or `timeout`.

        Yields:
            Deltas with text, at least one if the answer has any. The last one has no text and the
            `response`, with usage, cost and finish reason. The answer of an endpoint that does not
            stream is one delta.

        Raises:
            LLMError: As from `chat_completion`. LLMConnectionError means that the stream ended
                before the answer did: the yielded text is not the answer.
            ValueError: As from `chat_completion`.
            TypeError: As from `chat_completion`.
        """
        timeout_s = _pop_timeout(options, default_s=self.config.timeout_s)
        request = self._request(
            messages, model, temperature, max_tokens, options | {"stream": True}
        )
        # Endpoints leave the usage out of a stream unless they are asked for it.
        request = request.with_optional(stream_options={"include_usage": True})
        bill = Bill()
        with chat_call(
            request,
            provider=self.config.provider,
            host=self.host,
            bill=bill,
            chosen_by=None if model else _DEFAULT,
            streams=True,
        ) as call:
            async with aclosing(self._streamed(request, bill, timeout_s=timeout_s)) as deltas:
                async for delta in deltas:
                    if delta.response is None:
                        call.record_first_text()
                    else:
                        call.record_response(delta.response)
                    yield delta

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice. Later calls raise LLMConnectionError."""
        await self._endpoint.aclose()

    async def _answer(self, request: ChatRequest, bill: Bill, *, timeout_s: float) -> LLMResponse:
        started = monotonic()
        policy = self._retries(request, timeout_s)

        async def exchange() -> dict[str, Any]:
            # For each attempt, since `policy.request` loses refused options.
            expected_usd, charge = self._account(policy.request, bill)
            with self._ledger.reserve(expected_usd):
                return await self._endpoint.post(
                    policy.request.body(), timeout_s=timeout_s, charge=charge
                )

        async with deadline_at(policy.deadline, timeout_s=timeout_s):
            payload = await self._endpoint.retry(exchange, wait_s=policy.wait_s)
        self._refused[request.model] |= policy.refused
        return self._response(payload, policy, bill, started=started)

    async def _streamed(
        self, request: ChatRequest, bill: Bill, *, timeout_s: float
    ) -> AsyncGenerator[LLMDelta, None]:
        started = monotonic()
        expected_usd, charge = self._account(request, bill)
        policy = self._retries(request, timeout_s)

        async def begin() -> httpx.Response:
            # Around each request only, since a cancel scope must not span the yields below.
            async with deadline_at(policy.deadline, timeout_s=timeout_s):
                return await self._endpoint.open_stream(
                    policy.request.body(), timeout_s=timeout_s, charge=charge
                )

        # Reserved until the end of the stream, where the endpoint reports its usage.
        with self._ledger.reserve(expected_usd):
            reply = await self._endpoint.retry(begin, wait_s=policy.wait_s)
            self._refused[request.model] |= policy.refused
            parts = StreamedReply()
            # Charged as a reply of unknown price if the stream breaks or is not read to its end,
            # since the endpoint has begun to write.
            payload: dict[str, Any] = {}
            try:
                reading = read_stream(
                    reply,
                    parts,
                    max_bytes=self.config.max_response_bytes,
                    deadline=policy.deadline,
                    timeout_s=timeout_s,
                )
                async with aclosing(reading) as texts:
                    async for text in texts:
                        yield LLMDelta(text=text)
                payload = parts.payload()
            except LLMStatusError as exc:  # in the middle of the stream, after `Endpoint`'s checks
                if not parts.has_begun:  # an error instead of an answer, which is not charged
                    payload = {"error": exc.status}
                self._endpoint.without_key(exc)
                raise
            finally:
                charge(payload)
                await reply.aclose()
            yield LLMDelta(response=self._response(payload, policy, bill, started=started))

    def _request(
        self,
        messages: Sequence[LLMMessage | Mapping[str, Any]],
        model: str | None,
        temperature: float | None,
        max_tokens: int | None,
        options: Mapping[str, Any],
    ) -> ChatRequest:
        config = self.config
        return ChatRequest.of(
            messages,
            model=model or config.default_model,
            provider=config.provider,
            temperature=config.temperature if temperature is None else temperature,
            max_tokens=config.max_tokens if max_tokens is None else max_tokens,
            options=options,
        )

    def _response(
        self, payload: dict[str, Any], policy: RetryPolicy, bill: Bill, *, started: float
    ) -> LLMResponse:
        return read_response(
            payload,
            model=policy.original.model,
            usage=bill.usage,
            cost_usd=bill.cost_usd,
            provider=self.config.provider,
            latency_ms=round((monotonic() - started) * 1000),
            metadata=policy.request.metadata,
        )

    def _retries(self, request: ChatRequest, timeout_s: float) -> RetryPolicy:
        return RetryPolicy(
            original=request,
            refused=self._refused.get(request.model, frozenset()),
            max_attempts=self.config.max_attempts,
            deadline=asyncio.get_running_loop().time() + timeout_s,
            host=self.host,
        )

    def _account(self, request: ChatRequest, bill: Bill) -> tuple[float | None, Charge]:
        """Return the maximum cost of a request in dollars, and a function to charge its reply."""
        prices = self.config.prices.get(request.model)
        if prices is None:
            prices = profile_of(request.model).prices.get(self.config.provider)
        assumed = prices or self._dearest
        expected_usd: float | None = None
        if assumed is not None:
            expected_usd = expected_cost_usd(
                request.body(),
                prices=assumed,
                max_tokens=request.max_tokens,
                answers=request.answers,
            )
            # An assumed price is not a bound: an earlier reply may have reported a higher cost.
            if prices is None:
                expected_usd = max(expected_usd, self._ledger.max_reply_usd)

        def charge(payload: Mapping[str, Any]) -> None:
            charges = charge_of(payload, prices)
            if charges is None:
                return
            usage, cost_usd = charges
            assumed_usd = expected_usd or 0.0
            if assumed is not None:
                assumed_usd = max(assumed_usd, assumed.cost_usd(usage))
            self._ledger.charge(usage, cost_usd=cost_usd, assumed_usd=assumed_usd)
            bill.add(usage, cost_usd=cost_usd)

        return expected_usd, charge


def _pop_timeout(options: dict[str, Any], *, default_s: float) -> float:
    """Return the timeout in seconds, and remove the options that are not for the endpoint."""
    if options.pop("stream", None):
        raise ValueError(
            "chat_completion answers whole; leave `stream` out, or call the client's stream()"
        )
    timeout_s = options.pop("timeout_s", None)
    timeout = options.pop("timeout", None)  # the name in OpenAI's SDK
    if timeout_s is None:
        timeout_s = default_s if timeout is None else timeout
    if not (isinstance(timeout_s, int | float) and isfinite(timeout_s) and timeout_s > 0):
        raise ValueError("timeout_s must be a positive number of seconds")
    return float(timeout_s)
