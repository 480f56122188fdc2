"""`PydanticAIClient`: a pydantic-ai model as an `LLMClient`."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, get_type_hints

from pydantic import TypeAdapter

from llm_common.clients.external_client import ExternalClient
from llm_common.core.http.wire import ChatRequest
from llm_common.errors import ModelNotFoundError

# By type of `response_format`: pydantic-ai's output mode, and the key of a model's profile that
# says it is supported.
_OUTPUT_MODES: Final = {
    "json_object": ("prompted", "supports_json_object_output"),
    "json_schema": ("native", "supports_json_schema_output"),
}


class SupportsRequest(Protocol):
    """What is called of the model; the annotations of its `request` say what it takes."""

    @property
    def model_name(self) -> str:
        """The model's name at its provider."""

    def request(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, /
    ) -> Awaitable[Any]:
        """The model's answer to a history of messages."""


class PydanticAIClient(ExternalClient):
    """Answers through a `pydantic_ai.models.Model`.

    Further options of a call, except `tools` and `response_format`, are model settings by
    pydantic-ai's names. The cost is pydantic-ai's calculation.

    Args:
        model: Answers the calls that name no other model.
        model_for: Returns the model of another name, such as `pydantic_ai.models.infer_model`;
            None: such a call fails.
        timeout_s: Deadline of one call in seconds, retries included.
        prefers_json_schema: As in `LLMConfig`.
    """

    def __init__(
        self,
        model: SupportsRequest,
        *,
        model_for: Callable[[str], SupportsRequest] | None = None,
        timeout_s: float = 60.0,
        prefers_json_schema: bool = False,
    ) -> None:
        profile = getattr(model, "profile", {})
        if not isinstance(profile, Mapping):  # an object before version 2
            profile = vars(profile)
        refuses = frozenset(
            kind for kind, (_, support) in _OUTPUT_MODES.items() if not profile.get(support)
        )
        super().__init__(
            model=model.model_name,
            provider="pydantic-ai",
            timeout_s=timeout_s,
            prefers_json_schema=prefers_json_schema,
            refuses=refuses,
        )
        self._own_model = model
        self._model_for = model_for
        # The annotations of `Model.request` name the classes to build from plain values, the form
        # in which pydantic-ai stores a history. Those of the last class in the MRO: subclasses may
        # annotate less.
        requests = [
            vars(kind)["request"] for kind in type(model).__mro__ if "request" in vars(kind)
        ]
        hints = get_type_hints(requests[-1])
        self._history = TypeAdapter(hints["messages"])
        self._parameters = TypeAdapter(hints["model_request_parameters"])

    async def _send(self, request: ChatRequest) -> Mapping[str, Any]:
        settings = {**request.core, **request.optional}
        if "max_completion_tokens" in settings:
            settings["max_tokens"] = settings.pop("max_completion_tokens")
        model = self._named(settings.pop("model"))
        history = self._history.validate_python(list(_history_of(settings.pop("messages"))))
        tools = [_tool_of(tool["function"]) for tool in settings.pop("tools", None) or []]
        output = _output_of(settings.pop("response_format", None))
        parameters = self._parameters.validate_python({"function_tools": tools, **output})
        return _payload_of(await model.request(history, settings, parameters))

    def _named(self, name: str) -> SupportsRequest:
        if name == self.default_model:
            return self._own_model
        if self._model_for is None:
            raise ModelNotFoundError(
                f"this client has the one model {self.default_model}; "
                "give `model_for` to let calls name others",
                status=404,
            )
        return self._model_for(name)


def _history_of(messages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield chat messages as pydantic-ai stores them."""
    names: dict[str, str] = {}
    for message in messages:
        content = message.get("content") or ""
        match message["role"]:
            case "assistant":
                parts = []
                text = _text_of(content)
                if text:
                    parts.append({"part_kind": "text", "content": text})
                for call in message.get("tool_calls", []):
                    names[call["id"]] = call["function"]["name"]
                    parts.append(_tool_call_part(call))
                yield {"kind": "response", "parts": parts}
            case "tool" | "function":
                call_id = message.get("tool_call_id", "")
                name = message.get("name") or names.get(call_id, "")
                part = {
                    "part_kind": "tool-return",
                    "tool_name": name,
                    "tool_call_id": call_id,
                    "content": content,
                }
                yield {"kind": "request", "parts": [part]}
            case "system":
                part = {"part_kind": "system-prompt", "content": _text_of(content)}
                yield {"kind": "request", "parts": [part]}
            case _:
                part = {"part_kind": "user-prompt", "content": _user_content(content)}
                yield {"kind": "request", "parts": [part]}


def _user_content(content: str | Sequence[Mapping[str, Any]]) -> Any:
    """Return the text, or a list of texts and images; other parts are left out."""
    if isinstance(content, str):
        return content
    parts: list[Any] = []
    for part in content:
        if "image_url" in part:
            parts.append({"kind": "image-url", "url": part["image_url"]["url"]})
        elif "text" in part:
            parts.append(part["text"])
    return parts


def _text_of(content: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def _tool_call_part(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "part_kind": "tool-call",
        "tool_name": function["name"],
        "args": function["arguments"],
        "tool_call_id": call["id"],
    }


def _tool_of(function: Mapping[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {
        "name": function["name"],
        "description": function.get("description"),
        "parameters_json_schema": schema,
    }


def _output_of(response_format: Mapping[str, Any] | None) -> dict[str, Any]:
    if response_format is None or response_format["type"] not in _OUTPUT_MODES:
        return {}
    output: dict[str, Any] = {"output_mode": _OUTPUT_MODES[response_format["type"]][0]}
    if wanted := response_format.get("json_schema"):
        named = {name: wanted.get(name) for name in ("name", "description", "strict")}
        output["output_object"] = {"json_schema": wanted["schema"], **named}
    return output


def _payload_of(answer: Any) -> dict[str, Any]:
    texts = []
    calls = []
    for part in answer.parts:
        if part.part_kind == "text":
            texts.append(part.content)
        elif part.part_kind == "tool-call":
            calls.append(_call_of(part))
    reason = answer.finish_reason
    if reason == "tool_call":
        reason = "tool_calls"
    usage = answer.usage
    cost_usd = getattr(usage, "cost", None)  # since version 2
    return {
        "id": answer.provider_response_id,
        "model": answer.model_name,
        "choices": [
            {
                "finish_reason": reason,
                "message": {
                    "content": "".join(texts) if texts else None,
                    "tool_calls": calls or None,
                },
            }
        ],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
            "cost": None if cost_usd is None else float(cost_usd),
        },
    }


def _call_of(part: Any) -> dict[str, Any]:
    arguments = part.args
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {})
    return {
        "id": part.tool_call_id,
        "type": "function",
        "function": {"name": part.tool_name, "arguments": arguments},
    }
