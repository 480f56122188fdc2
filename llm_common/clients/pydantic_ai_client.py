"""`PydanticAIClient`: a pydantic-ai model as an `LLMClient`."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, get_type_hints

from pydantic import TypeAdapter

from llm_common.clients.external_client import ExternalClient
from llm_common.core.http.wire import ChatRequest
from llm_common.errors import ModelNotFoundError

# By type of `response_format`: pydantic-ai's output mode, and the key of a model's profile that
# declares support for it.
_OUTPUT_MODES: Final = {
    "json_object": ("prompted", "supports_json_object_output"),
    "json_schema": ("native", "supports_json_schema_output"),
}


class SupportsRequest(Protocol):
    """The members of a model that are used. The annotations of `request` name its classes."""

    @property
    def model_name(self) -> str:
        """Return the model's name at its provider."""

    def request(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, /
    ) -> Awaitable[Any]:
        """Return the model's answer to a history of messages."""


class PydanticAIClient(ExternalClient):
    """A client that calls a `pydantic_ai.models.Model`.

    Options of a call other than `tools` and `response_format` are passed as model settings, under
    pydantic-ai's names. The cost is pydantic-ai's calculation.

    Args:
        model: The model for calls that name no other.
        model_for: Returns the model with a given name, such as `pydantic_ai.models.infer_model`.
            With None, calls that name another model raise ModelNotFoundError.
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
        if not isinstance(profile, Mapping):  # an object before pydantic-ai 2
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
        # in which pydantic-ai stores a history. The last class in the MRO is asked, since
        # subclasses may annotate less.
        requests = [
            vars(base)["request"] for base in type(model).__mro__ if "request" in vars(base)
        ]
        hints = get_type_hints(requests[-1])
        self._history = TypeAdapter(hints["messages"])
        self._parameters = TypeAdapter(hints["model_request_parameters"])

    async def _send(self, request: ChatRequest) -> Mapping[str, Any]:
        settings = {**request.core, **request.optional}
        # pydantic-ai has one name for the limit, and translates it back for OpenAI.
        if "max_completion_tokens" in settings:
            settings["max_tokens"] = settings.pop("max_completion_tokens")
        name = settings.pop("model")
        model = self._own_model
        if name != self.default_model:
            if self._model_for is None:
                raise ModelNotFoundError(
                    f"this client has only the model {self.default_model}; "
                    "pass `model_for` to let calls name others",
                    status=404,
                )
            model = self._model_for(name)
        history = self._history.validate_python(list(_history_of(settings.pop("messages"))))
        tools = []
        for tool in settings.pop("tools", None) or []:
            function = tool["function"]
            schema = function.get("parameters") or {"type": "object", "properties": {}}
            tools.append(
                {
                    "name": function["name"],
                    "description": function.get("description"),
                    "parameters_json_schema": schema,
                }
            )
        output = _output_of(settings.pop("response_format", None))
        parameters = self._parameters.validate_python({"function_tools": tools, **output})
        return _payload_of(await model.request(history, settings, parameters))


def _history_of(messages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield chat messages in the form in which pydantic-ai stores them."""
    tool_names: dict[str, str] = {}
    for message in messages:
        content = message.get("content") or ""
        match message["role"]:
            case "assistant":
                parts = []
                text = _text_of(content)
                if text:
                    parts.append({"part_kind": "text", "content": text})
                for call in message.get("tool_calls", []):
                    function = call["function"]
                    tool_names[call["id"]] = function["name"]
                    parts.append(
                        {
                            "part_kind": "tool-call",
                            "tool_name": function["name"],
                            "args": function["arguments"],
                            "tool_call_id": call["id"],
                        }
                    )
                yield {"kind": "response", "parts": parts}
            case "tool" | "function":
                call_id = message.get("tool_call_id", "")
                # pydantic-ai requires the tool's name, which OpenAI's tool messages leave out.
                part = {
                    "part_kind": "tool-return",
                    "tool_name": message.get("name") or tool_names.get(call_id, ""),
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
    """Return a text as it is, and parts as a list of texts and images without other parts."""
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


def _output_of(response_format: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the request parameters for a `response_format`."""
    if response_format is None or response_format["type"] not in _OUTPUT_MODES:
        return {}
    output: dict[str, Any] = {"output_mode": _OUTPUT_MODES[response_format["type"]][0]}
    json_schema = response_format.get("json_schema")
    if json_schema:
        labels = {name: json_schema.get(name) for name in ("name", "description", "strict")}
        output["output_object"] = {"json_schema": json_schema["schema"], **labels}
    return output


def _payload_of(response: Any) -> dict[str, Any]:
    """Return a `ModelResponse` as a chat completions payload."""
    texts = []
    calls = []
    for part in response.parts:
        if part.part_kind == "text":
            texts.append(part.content)
        elif part.part_kind == "tool-call":
            arguments = part.args
            if not isinstance(arguments, str):  # a dict, or None without arguments
                arguments = json.dumps(arguments or {})
            function = {"name": part.tool_name, "arguments": arguments}
            calls.append({"id": part.tool_call_id, "type": "function", "function": function})
    message = {"content": "".join(texts) if texts else None, "tool_calls": calls or None}
    reason = response.finish_reason
    if reason == "tool_call":  # OpenAI's name has an "s"
        reason = "tool_calls"
    usage = response.usage
    cost_usd = getattr(usage, "cost", None)  # since pydantic-ai 2
    return {
        "id": response.provider_response_id,
        "model": response.model_name,
        "choices": [{"finish_reason": reason, "message": message}],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
            "cost": None if cost_usd is None else float(cost_usd),
        },
    }
