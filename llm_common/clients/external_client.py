"""`ExternalClient`: the base of the adapters, which only translate."""

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
from llm_common.core.http.wire import (
    ChatRequest,
    RefusedOptions,
    charged,
    raise_stated_error,
    read_response,
)
from llm_common.core.models import LLMMessage, LLMResponse
from llm_common.errors import LLMStatusError


class ExternalClient(LLMClient):
    """An `LLMClient` that wraps a client object of another package.

    The wrapped object keeps its connections, keys and retries; closing this client does not close
    it. An adapter implements `_send`. Safe to share between tasks if the wrapped object is.

    Args:
        model: Used when a call names none.
        provider: Name for reports and for the table of model profiles: prices, and what models
            take.
        timeout_s: Deadline of one call in seconds, the wrapped object's retries included.
        prefers_json_schema: As in `LLMConfig`.
        refuses: Types of `response_format` that the wrapped object is known not to take.
        host: Host of the endpoint for errors, where the wrapped object tells it.
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
        """Return the model's answer to the conversation.

        Args:
            messages: The conversation, oldest first; a message may be a dict of the chat
                completions API.
            model: None takes the one that the client was made with.
            temperature: None leaves it to the wrapped object; not sent to models that take none.
            max_tokens: Limit of the answer in tokens; None leaves it to the wrapped object.
            **options: Further options of the wrapped object, such as `tools`. If the endpoint
                refuses `response_format`, it is asked once more without;
                `metadata["dropped_options"]` names what was left out.

        Returns:
            One answer. `cost_usd` is None for an unknown price.

        Raises:
            LLMTimeoutError: No answer within the deadline, or within the wrapped object's own.
            LLMConnectionError: No connection, or a broken one.
            LLMStatusError: The endpoint answered with an error; the subclasses say which.
            MalformedReplyError: An answer that is not in the format.
            LLMError: Any other exception of the wrapped object, as its cause.
            ValueError: `stream` is asked for.
            TypeError: `messages` is not a list of messages, or `model` is not a text.
        """
        if options.pop("stream", None):
            raise ValueError("answers come whole; leave `stream` out")
        wanted = ChatRequest.of(
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
            chat_call(wanted, provider=self.provider, host=self.host, bill=bill) as call,
            bill.attached_to_errors(model=wanted.model, host=self.host, chosen_by=chosen_by),
            external_errors(type(self).__name__, timeout_s=self._timeout_s),
        ):
            async with asyncio.timeout(self._timeout_s):
                request, payload = await self._answer(wanted, bill)
            response = read_response(
                payload,
                model=request.model,
                usage=bill.usage,
                cost_usd=bill.cost_usd,
                provider=self.provider,
                latency_ms=round((monotonic() - started) * 1000),
                metadata=request.metadata,
            )
            return call.ends(response)

    @abstractmethod
    async def _send(self, request: ChatRequest) -> Mapping[str, Any]:
        """Return the wrapped object's answer to a call, as a chat completions payload.

        May raise anything.
        """

    async def _answer(
        self, wanted: ChatRequest, bill: Bill
    ) -> tuple[ChatRequest, Mapping[str, Any]]:
        """Return the call that was answered, with its payload."""
        request = wanted.without(self._refused.of(wanted.model))
        try:
            return request, await self._exchange(request, bill)
        except LLMStatusError as exc:
            named = request.named_in(exc)
            if not named:
                raise
        bare = wanted.bare()
        payload = await self._exchange(bare, bill)
        self._refused.add(wanted.model, named)
        return bare, payload

    async def _exchange(self, request: ChatRequest, bill: Bill) -> Mapping[str, Any]:
        with external_errors(type(self).__name__, timeout_s=self._timeout_s):
            payload = await self._send(request)
        charge = charged(payload, profile_of(request.model).prices.get(self.provider))
        if charge is not None:
            bill.add(charge[0], cost_usd=charge[1])
        raise_stated_error(payload)
        return payload
