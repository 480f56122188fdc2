"""`OpenAISDKClient` and `LiteLLMClient`, whose packages return chat completions."""

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
        """Return the SDK's group of chat methods."""


class OpenAISDKClient(ExternalClient):
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
        return payload_of(await self._client.chat.completions.create(**arguments_of(request)))


def arguments_of(request: ChatRequest) -> dict[str, Any]:
    """Return the keyword arguments of `create`, with other providers' options in `extra_body`."""
    arguments = {**request.core, **request.optional}
    # `create` raises TypeError for keywords that OpenAI's own API does not have.
    extras = {name: arguments.pop(name) for name in request.optional if name != "response_format"}
    if extras:
        # Options that the caller put there win over those of a model profile.
        arguments["extra_body"] = {**extras, **arguments.get("extra_body", {})}
    return arguments


def payload_of(completion: Any) -> dict[str, Any]:
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


class LiteLLMClient(ExternalClient):
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
        completion = await self._acompletion(**arguments_of(request))
        payload = payload_of(completion)
        usage = payload.get("usage") or {}
        if usage.get("cost") is None:
            # Private by its name, but LiteLLM documents it as the place of its calculated cost.
            hidden = getattr(completion, "_hidden_params", None) or {}
            usage = usage | {"cost": hidden.get("response_cost")}
        return payload | {"usage": usage}
