"""`OpenAISDKClient` and `LiteLLMClient`, which answer with chat completions."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from llm_common.clients.external_client import ExternalClient
from llm_common.core.http.providers import host_of
from llm_common.core.http.wire import ChatRequest
from llm_common.errors import MalformedReplyError


class SupportsCompletions(Protocol):
    """An object with an async `chat.completions.create`."""

    @property
    def chat(self) -> Any:
        """The SDK's group of chat methods."""


class OpenAISDKClient(ExternalClient):
    """Answers through an `AsyncOpenAI`, an `AsyncAzureOpenAI`, or a similar object.

    The SDK retries failed requests, by default twice; make it with `max_retries=0` if another layer
    retries.

    Args:
        client: The caller closes it.
        model: Used when a call names none; for Azure the name of the deployment.
        provider: `openai`, `zai`, `openrouter` or `local` adds known prices, and the options with
            which such a model gives a structured answer without long thinking.
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
        return payload_of(await self._client.chat.completions.create(**arguments_of(request)))


def arguments_of(request: ChatRequest) -> dict[str, Any]:
    """Return the keyword arguments of `create`; other providers' options are in `extra_body`."""
    arguments = {**request.core, **request.optional}
    extras = {name: arguments.pop(name) for name in request.optional if name != "response_format"}
    if extras:
        arguments["extra_body"] = {**extras, **arguments.get("extra_body", {})}
    return arguments


def payload_of(answer: Any) -> dict[str, Any]:
    """Return the answer as it came over the wire; the SDK may return text.

    Raises:
        MalformedReplyError: If the answer is not an object.
    """
    payload = answer.model_dump(warnings=False) if hasattr(answer, "model_dump") else answer
    if not isinstance(payload, dict):
        raise MalformedReplyError(
            "the reply is no chat completion; check base_url, or take another model",
            reason="not_an_object",
        )
    return payload


class LiteLLMClient(ExternalClient):
    """Answers through `litellm.acompletion`, or that of a `litellm.Router`.

    Keys and addresses come from LiteLLM's settings, or from `functools.partial(acompletion,
    api_key=…)`. The cost is the endpoint's, else LiteLLM's calculation.

    Args:
        acompletion: The function.
        model: Used when a call names none, with LiteLLM's prefix: `anthropic/claude-sonnet-4-5`.
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
        answer = await self._acompletion(**arguments_of(request))
        payload = payload_of(answer)
        usage = payload.get("usage") or {}
        if usage.get("cost") is None:
            # The documented place of LiteLLM's calculation.
            calculated = getattr(answer, "_hidden_params", None) or {}
            usage = usage | {"cost": calculated.get("response_cost")}
        return payload | {"usage": usage}
