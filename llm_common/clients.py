"""Adapters that turn clients of other packages into an `LLMClient`.

None of those packages is imported.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Protocol

from llm_common.core.http.external_errors import external_errors, reported_error
from llm_common.core.http.model_call import Bill, chat_call
from llm_common.core.http.providers import host_of, profile_of
from llm_common.core.http.wire import ChatRequest, RefusedOptions, charge_of, read_response
from llm_common.core.models import LLMClient, LLMMessage, LLMResponse
from llm_common.errors import LLMStatusError, MalformedReplyError

__all__ = ["LiteLLMClient", "OpenAISDKClient"]


class _ExternalClient(LLMClient):
    """An `LLMClient` that wraps a client object of another package.

    The wrapped object keeps its connections, keys and retries, and stays open when this client is
    closed. Safe to share between tasks if the wrapped object is.

    Args:
        model: Model for calls that name none.
        provider: Name for reports, and for the prices and options in the table of model profiles.
        timeout_s: Deadline of one call in seconds, the wrapped object's retries included.
        prefers_json_schema: As in `LLMConfig`.
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
        host: str | None = None,
    ) -> None:
        self.prefers_json_schema = prefers_json_schema
        self.default_model, self.provider, self.host = model, provider, host
        self._timeout_s = timeout_s
        self._refused = RefusedOptions(frozenset)

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
        reduced = request.without(self._refused.get(request.model, frozenset()))
        try:
            return reduced, await self._exchange(reduced, bill)
        except LLMStatusError as exc:
            refused = reduced.refused_by(exc)
            if not refused:
                raise
        # One more request, and the last: the wrapped object may have retried already.
        bare = request.bare()
        payload = await self._exchange(bare, bill)
        self._refused[request.model] |= refused
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


class SupportsCompletions(Protocol):
    """An object with an async `chat.completions.create`."""

    @property
    def chat(self) -> Any:
        """Return the SDK's group of chat methods."""


class OpenAISDKClient(_ExternalClient):
    """A client that calls an `AsyncOpenAI`, an `AsyncAzureOpenAI` or a similar object.

    The SDK retries failed requests, by default twice. Create it with `max_retries=0` if another
    layer retries.

    Args:
        client: The SDK's client. The caller closes it.
        model: Model for calls that name none. For Azure, the name of the deployment.
        provider: `openai`, `zai`, `openrouter` or `local` add known prices, and the options that
            keep a model from long thinking before a structured answer.
        timeout_s: Deadline of one call in seconds, retries included.
        prefers_json_schema: As in `LLMConfig`.
    """

    def __init__(
        self,
        client: SupportsCompletions,
        *,
        model: str,
        provider: str = "custom",
        timeout_s: float = 60.0,
        prefers_json_schema: bool = False,
    ) -> None:
        super().__init__(
            model=model,
            provider=provider,
            timeout_s=timeout_s,
            prefers_json_schema=prefers_json_schema,
            host=host_of(getattr(client, "base_url", "")),
        )
        self._client = client

    async def _send(self, request: ChatRequest) -> Mapping[str, Any]:
        return _payload_of(await self._client.chat.completions.create(**_arguments_of(request)))


class LiteLLMClient(_ExternalClient):
    """A client that calls `litellm.acompletion`, or the method of a `litellm.Router`.

    Keys and addresses come from LiteLLM's settings, or from `functools.partial(acompletion,
    api_key=…)`. The cost is the one that the endpoint reports, else LiteLLM's calculation.

    Args:
        acompletion: The function to call.
        model: Model for calls that name none, with LiteLLM's prefix:
            `anthropic/claude-sonnet-4-5`.
        timeout_s: Deadline of one call in seconds, retries included.
        prefers_json_schema: As in `LLMConfig`.
    """

    def __init__(
        self,
        acompletion: Callable[..., Awaitable[Any]],
        *,
        model: str,
        timeout_s: float = 60.0,
        prefers_json_schema: bool = False,
    ) -> None:
        super().__init__(
            model=model,
            provider="litellm",
            timeout_s=timeout_s,
            prefers_json_schema=prefers_json_schema,
        )
        self._acompletion = acompletion

    async def _send(self, request: ChatRequest) -> Mapping[str, Any]:
        completion = await self._acompletion(**_arguments_of(request))
        payload = _payload_of(completion)
        usage = payload.get("usage") or {}
        if usage.get("cost") is None:
            # Private by its name, but LiteLLM documents it as the place of its calculated cost.
            hidden = getattr(completion, "_hidden_params", None) or {}
            usage = usage | {"cost": hidden.get("response_cost")}
        return payload | {"usage": usage}


def _arguments_of(request: ChatRequest) -> dict[str, Any]:
    """Return the keyword arguments of `create`, with other providers' options in `extra_body`."""
    arguments = {**request.core, **request.optional}
    # `create` raises TypeError for keywords that OpenAI's own API does not have.
    extras = {name: arguments.pop(name) for name in request.optional if name != "response_format"}
    if extras:
        # Options that the caller put there win over those of a model profile.
        arguments["extra_body"] = {**extras, **arguments.get("extra_body", {})}
    return arguments


def _payload_of(completion: Any) -> dict[str, Any]:
    """Return a completion as the JSON object that the endpoint sent.

    Raises:
        MalformedReplyError: If the completion is not an object. The SDK returns a str for a reply
            that is not declared as JSON.
    """
    payload = completion
    if hasattr(completion, "model_dump"):
        # Endpoints send values of other types than the SDK's, of which pydantic would warn.
        payload = completion.model_dump(warnings=False)
    if not isinstance(payload, dict):
        raise MalformedReplyError(
            "the reply is not a chat completion; check base_url, or use another model",
            reason="not_an_object",
        )
    return payload
