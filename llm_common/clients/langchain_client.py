"""`LangChainClient`: a LangChain chat model as an `LLMClient`."""

import json
from collections.abc import Awaitable, Mapping
from typing import Any, Final, Protocol

from llm_common.clients.external_client import ExternalClient
from llm_common.core.http.wire import ChatRequest

# The field names of chat models in the providers' packages.
_FIELDS: Final = {
    "model": ("model_name", "model", "model_id"),
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens", "max_output_tokens", "num_predict"),
}


class SupportsInvoke(Protocol):
    """What is called of the chat model; with tools, its `bind_tools` too."""

    def ainvoke(self, messages: Any, /, **kwargs: Any) -> Awaitable[Any]:
        """Return the model's message in answer to a list of messages."""


class LangChainClient(ExternalClient):
    """Answers through a `BaseChatModel`, or a runnable made of one.

    Model, temperature and limit are set on a copy of the chat model if it has such a field, else
    passed to the call. Chat models based on LangChain's for OpenAI get `response_format`, others do
    not: `bind` to yours the options that make it answer in JSON.

    Args:
        chat_model: Never modified.
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
        bases = {kind.__name__ for kind in type(chat_model).__mro__}
        refuses = frozenset({"json_object", "json_schema"})
        if "BaseChatOpenAI" in bases:
            refuses = frozenset()
        super().__init__(
            model=_name_of(chat_model),
            provider="langchain",
            timeout_s=timeout_s,
            prefers_json_schema=prefers_json_schema,
            refuses=refuses,
        )
        self._chat_model = chat_model

    async def _send(self, request: ChatRequest) -> Mapping[str, Any]:
        options = {**request.core, **request.optional}
        messages = options.pop("messages")
        if "max_completion_tokens" in options:
            options["max_tokens"] = options.pop("max_completion_tokens")
        if options["model"] == self.default_model:
            del options["model"]
        model: Any = self._with_fields(options)
        tools = options.pop("tools", None)
        if tools:
            choice = {}
            if "tool_choice" in options:
                choice["tool_choice"] = options.pop("tool_choice")
            model = model.bind_tools(tools, **choice)
        return _payload_of(await model.ainvoke(messages, **options))

    def _with_fields(self, options: dict[str, Any]) -> Any:
        """Return a copy of the chat model with the options that it has a field for.

        Removes those from `options`.
        """
        fields = getattr(type(self._chat_model), "model_fields", {})
        update: dict[str, Any] = {}
        for name, candidates in _FIELDS.items():
            field = next((field for field in candidates if field in fields), None)
            if field is not None and name in options:
                update[field] = options.pop(name)
        model: Any = self._chat_model
        return model.model_copy(update=update) if update else model


def _name_of(chat_model: SupportsInvoke) -> str:
    for field in _FIELDS["model"]:
        name = getattr(chat_model, field, None)
        if isinstance(name, str):
            return name
    return type(chat_model).__name__


def _payload_of(message: Any) -> dict[str, Any]:
    metadata = message.response_metadata
    # Each provider's package has its own word for it.
    reasons = [metadata.get(name) for name in ("finish_reason", "stop_reason", "done_reason")]
    content = message.content
    if isinstance(content, list):
        content = list(map(_part_of, content))
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    reply = {
        "content": content,
        "refusal": message.additional_kwargs.get("refusal"),
        "tool_calls": list(map(_call_of, calls)) or None,
    }
    cost_usd = (metadata.get("token_usage") or {}).get("cost")
    return {
        "id": metadata.get("id") or message.id,
        "model": metadata.get("model_name") or metadata.get("model"),
        "choices": [{"finish_reason": next(filter(None, reasons), None), "message": reply}],
        "usage": _usage_of(message.usage_metadata or {}, cost_usd=cost_usd),
    }


def _part_of(part: object) -> object:
    return {"type": "text", "text": part} if isinstance(part, str) else part


def _call_of(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["args"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": call["name"], "arguments": arguments},
    }


def _usage_of(usage: Mapping[str, Any], *, cost_usd: object) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "total_tokens": usage.get("total_tokens"),
        "prompt_tokens_details": {
            "cached_tokens": usage.get("input_token_details", {}).get("cache_read")
        },
        "cost": cost_usd,
    }
