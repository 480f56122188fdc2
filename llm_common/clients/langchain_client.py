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

    def ainvoke(self, input: Any, /, **kwargs: Any) -> Awaitable[Any]:  # noqa: A002 - LangChain's name
        """The model's message in answer to a list of messages."""


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
        names = (getattr(chat_model, field, None) for field in _FIELDS["model"])
        model = next((name for name in names if isinstance(name, str)), type(chat_model).__name__)
        takes_format = any(kind.__name__ == "BaseChatOpenAI" for kind in type(chat_model).__mro__)
        refuses = frozenset() if takes_format else frozenset({"json_object", "json_schema"})
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
        if "max_completion_tokens" in options:
            options["max_tokens"] = options.pop("max_completion_tokens")
        if options["model"] == self.default_model:
            del options["model"]
        model: Any = self._with_fields(options)
        if tools := options.pop("tools", None):
            choice = {"tool_choice": options.pop("tool_choice")} if "tool_choice" in options else {}
            model = model.bind_tools(tools, **choice)
        return _payload_of(await model.ainvoke(messages, **options))

    def _with_fields(self, options: dict[str, Any]) -> Any:
        """A copy of the chat model with the options that it has a field for.

        Removes those from `options`.
        """
        fields = getattr(type(self._chat_model), "model_fields", {})
        places = {
            name: next((field for field in _FIELDS[name] if field in fields), None)
            for name in _FIELDS
        }
        update = {
            field: options.pop(name) for name, field in places.items() if field and name in options
        }
        return self._chat_model.model_copy(update=update) if update else self._chat_model  # type: ignore[attr-defined]


def _payload_of(message: Any) -> dict[str, Any]:
    facts = message.response_metadata
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    content = message.content
    if isinstance(content, list):
        content = [
            {"type": "text", "text": part} if isinstance(part, str) else part for part in content
        ]
    return {
        "id": facts.get("id") or message.id,
        "model": facts.get("model_name") or facts.get("model"),
        "choices": [
            {
                "finish_reason": facts.get("finish_reason")
                or facts.get("stop_reason")
                or facts.get("done_reason"),
                "message": {
                    "content": content,
                    "refusal": message.additional_kwargs.get("refusal"),
                    "tool_calls": [_call_of(call) for call in calls] or None,
                },
            }
        ],
        "usage": _usage_of(
            message.usage_metadata or {}, cost_usd=(facts.get("token_usage") or {}).get("cost")
        ),
    }


def _call_of(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["args"] if isinstance(call["args"], str) else json.dumps(call["args"])
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
