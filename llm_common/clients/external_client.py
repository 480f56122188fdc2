"""`ExternalClient`: the base class of the adapters, which only translate."""

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from llm_common.core.client import LLMClient
from llm_common.core.external_errors import external_errors
from llm_common.core.http.costs import Bill
from llm_common.core.http.model_call import chat_call
from llm_common.core.http.providers import profile_of
from llm_common.core.http.status_errors import reported_error
from llm_common.core.http.wire import ChatRequest, RefusedOptions, charge_of, read_response
from llm_common.core.models import LLMMessage, LLMResponse
from llm_common.errors import LLMStatusError


class ExternalClient(LLMClient):
    """An `LLMClient` that wraps a client object of another package.

    The wrapped object keeps its connections, keys and retries, and stays open when this client is
    closed. An adapter implements `_send`. Safe to share between tasks if the wrapped object is.

    Args:
        model: Model for calls that name none.
        provider: Name for reports, and for the prices and options in the table of model profiles.
        timeout_s: Deadline of one call in seconds, the wrapped object's retries included.
        prefers_json_schema: As in `LLMConfig`.
        refuses: Types of `response_format` that the wrapped object does not support.
        host: Host of the endpoint for errors, if the wrapped object has it.
    """

    default_model: str
    provider: str

    def __init__(
        self,
        *,
        model: str,
        provider: str,
        timeout_s: float,
        prefers_json_schema: bool,
        refuses: frozenset[str] = frozenset(),
        host: str | None = None,
    ) -> None:
        self.prefers_json_schema = prefers_json_schema
        self.default_model, self.provider, self.host = model, provider, host
        self._timeout_s = timeout_s
        self._refused = RefusedOptions(expected=refuses)

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
            model: None uses the client's `model`.
            temperature: None leaves it to the wrapped object. Never sent to models that accept
                none.
            max_tokens: Maximum length of the answer in tokens. None leaves it to the wrapped
                object.
            **options: Further options of the wrapped object, such as `tools`. If the endpoint
                refuses `response_format`, the call is repeated once without it, and
                `metadata["dropped_options"]` lists what was left out.

        Returns:
            One answer. `cost_usd` is None if the price is unknown.

        Raises:
            LLMTimeoutError: If no answer came within the deadline, or within the wrapped object's.
            LLMConnectionError: If there is no connection, or it broke.
            LLMStatusError: If the endpoint answered with an error. The subclass says which.
            MalformedReplyError: If the answer is not in the expected format.
            LLMError: For any other exception of the wrapped object, which is its cause.
            ValueError: If `stream` is set.
            TypeError: If `messages` is not a list of messages, or `model` is not a str.
        """
        if options.pop("stream", None):
            raise ValueError("an adapter returns whole answers; leave `stream` out")
        request = ChatRequest.of(
            messages,
            model=model or self.default_model,
            provider=self.provider,
            temperature=temperature,
            max_tokens=max_tokens,
            options=options,
        )
        started = monotonic()
        bill = Bill()
        chosen_by = None if model else "the argument `model` of the client"
        with (
            chat_call(
                request, provider=self.provider, host=self.host, bill=bill, chosen_by=chosen_by
            ) as call,
            external_errors(type(self).__name__, timeout_s=self._timeout_s),
        ):
            # Inside `external_errors`, which translates the TimeoutError.
            async with asyncio.timeout(self._timeout_s):
                sent, payload = await self._answer(request, bill)
            response = read_response(
                payload,
                model=sent.model,
                usage=bill.usage,
                cost_usd=bill.cost_usd,
                provider=self.provider,
                latency_ms=round((monotonic() - started) * 1000),
                metadata=sent.metadata,
            )
            return call.record_response(response)

    @abstractmethod
    async def _send(self, request: ChatRequest) -> Mapping[str, Any]:
        """Return the wrapped object's answer as a chat completions payload. May raise anything."""

    async def _answer(
        self, request: ChatRequest, bill: Bill
    ) -> tuple[ChatRequest, Mapping[str, Any]]:
        """Return the request that was answered, and its payload."""
        reduced = request.without(self._refused.of(request.model))
        try:
            return reduced, await self._exchange(reduced, bill)
        except LLMStatusError as exc:
            refused = reduced.refused_by(exc)
            if not refused:
                raise
        # One more request, and the last: the wrapped object may have retried already.
        bare = request.bare()
        payload = await self._exchange(bare, bill)
        self._refused.add(request.model, refused)
        return bare, payload

    async def _exchange(self, request: ChatRequest, bill: Bill) -> Mapping[str, Any]:
        with external_errors(type(self).__name__, timeout_s=self._timeout_s):
            payload = await self._send(request)
        # Charged before it is checked: an endpoint bills answers that cannot be used, too.
        charge = charge_of(payload, profile_of(request.model).prices.get(self.provider))
        if charge is not None:
            bill.add(charge[0], cost_usd=charge[1])
        if payload.get("error"):
            raise reported_error(payload["error"])
        return payload
