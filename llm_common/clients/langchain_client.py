"""`LangChainClient`: a LangChain chat model as an `LLMClient`."""

import json
from collections.abc import Awaitable, Mapping
from typing import Any, Final, Protocol

from llm_common.clients.external_client import ExternalClient
from llm_common.core.http.wire import ChatRequest

# By option, the names that the providers' packages have for a chat model's field.
_FIELDS: Final = {
    "model": ("model_name", "model", "model_id"),
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens", "max_output_tokens", "num_predict"),
}


class SupportsInvoke(Protocol):
    """The method that is called on the chat model. Calls with tools need its `bind_tools` too."""

    def ainvoke(self, messages: Any, /, **kwargs: Any) -> Awaitable[Any]:
        """Return the model's answer to a list of messages."""


class LangChainClient(ExternalClient):
    """A client that calls a `BaseChatModel`, or a runnable that wraps one.

    Model, temperature and limit are set on a copy of the chat model if it has such a field, else
    passed to the call. Only subclasses of LangChain's `BaseChatOpenAI` get `response_format`. For
    other chat models, `bind` the options that make them answer in JSON.

    Args:
        chat_model: The chat model, which is never modified.
        timeout_s: Deadline of one call in seconds, retries included.
        prefers_json_schema: As in `LLMConfig`.
    """

    def __init__(
        self,
        chat_model: SupportsInvoke,
        *,
        timeout_s: float = 60.0,
        prefers_json_schema: bool = False,
    ) -> None:
        # By name, since the package is not imported.
        base_names = {base.__name__ for base in type(chat_model).__mro__}
        refuses = frozenset({"json_object", "json_schema"})
        if "BaseChatOpenAI" in base_names:
            refuses = frozenset()
        model = type(chat_model).__name__
        for field in _FIELDS["model"]:
            name = getattr(chat_model, field, None)
            if isinstance(name, str):
                model = name
                break
        super().__init__(
            model=model,
            provider="langchain",
            timeout_s=timeout_s,
            prefers_json_schema=prefers_json_schema,
            refuses=refuses,
        )
        self._chat_model = chat_model

    async def _send(self, request: ChatRequest) -> Mapping[str, Any]:
        options = {**request.core, **request.optional}
        messages = options.pop("messages")
        # LangChain has one name for the limit, which its OpenAI classes translate back.
        if "max_completion_tokens" in options:
            options["max_tokens"] = options.pop("max_completion_tokens")
        if options["model"] == self.default_model:
            del options["model"]
        chat_model: Any = self._with_fields(options)
        tools = options.pop("tools", None)
        if tools:
            # `bind_tools` translates both into the provider's form.
            choice = {}
            if "tool_choice" in options:
                choice["tool_choice"] = options.pop("tool_choice")
            chat_model = chat_model.bind_tools(tools, **choice)
        return _payload_of(await chat_model.ainvoke(messages, **options))

    def _with_fields(self, options: dict[str, Any]) -> Any:
        """Return a copy of the chat model with the options that it has a field for.

        Removes those from `options`.
        """
        fields = getattr(type(self._chat_model), "model_fields", {})
        update: dict[str, Any] = {}
        for option, candidates in _FIELDS.items():
            field = next((name for name in candidates if name in fields), None)
            if field is not None and option in options:
                update[field] = options.pop(option)
        chat_model: Any = self._chat_model
        return chat_model.model_copy(update=update) if update else chat_model


def _payload_of(message: Any) -> dict[str, Any]:
    """Return an `AIMessage` as a chat completions payload."""
    metadata = message.response_metadata
    # The providers' packages name the finish reason differently.
    reasons = [metadata.get(name) for name in ("finish_reason", "stop_reason", "done_reason")]
    content = message.content
    if isinstance(content, list):
        parts: list[object] = []
        for part in content:
            parts.append({"type": "text", "text": part} if isinstance(part, str) else part)
        content = parts
    # Invalid calls too: the reader of the response must see that the model made them.
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    reply = {
        "content": content,
        "refusal": message.additional_kwargs.get("refusal"),
        "tool_calls": list(map(_call_of, calls)) or None,
    }
    usage = message.usage_metadata or {}
    return {
        "id": metadata.get("id") or message.id,
        "model": metadata.get("model_name") or metadata.get("model"),
        "choices": [{"finish_reason": next(filter(None, reasons), None), "message": reply}],
        "usage": {
            "prompt_tokens": usage.get("input_tokens"),
            "completion_tokens": usage.get("output_tokens"),
            "total_tokens": usage.get("total_tokens"),
            "prompt_tokens_details": {
                "cached_tokens": usage.get("input_token_details", {}).get("cache_read")
            },
            # OpenRouter's cost, which LangChain's client for OpenAI passes on
            "cost": (metadata.get("token_usage") or {}).get("cost"),
        },
    }


def _call_of(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["args"]
    if not isinstance(arguments, str):  # an invalid call has the text that the model wrote
        arguments = json.dumps(arguments)
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": call["name"], "arguments": arguments},
    }
