"""Doubles of third-party clients, which make real HTTP calls.

They have everything that the adapters rely on. The same tests run against the real clients.
"""

import json
from collections.abc import Mapping
from dataclasses import field
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import httpx
from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass

# --- openai


class APIConnectionError(Exception):
    pass


class APITimeoutError(APIConnectionError):
    pass


class APIStatusError(Exception):
    def __init__(self, response: httpx.Response, body: object) -> None:
        super().__init__("Error code")
        self.response, self.request, self.body, self.status_code = (
            response,
            response.request,
            body,
            response.status_code,
        )


class Completion:
    def __init__(self, payload: dict[str, Any]) -> None:
        self._payload = payload

    def model_dump(self, *, warnings: bool = True) -> dict[str, Any]:
        return self._payload


class AsyncOpenAI:
    """A double of openai's client, whose `create` sends one POST."""

    def __init__(self, base_url: str, api_key: str, timeout_s: float) -> None:
        self.base_url = base_url
        self._url, self._key, self._timeout_s = f"{base_url}/chat/completions", api_key, timeout_s
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))

    async def create(self, *, extra_body: Mapping[str, Any] | None = None, **body: Any) -> Any:
        headers = {"authorization": f"Bearer {self._key}"}
        async with httpx.AsyncClient(timeout=self._timeout_s, verify=False) as http:
            try:
                response = await http.post(
                    self._url, json=body | dict(extra_body or {}), headers=headers
                )
            except httpx.TimeoutException as exc:
                raise APITimeoutError from exc
            except httpx.HTTPError as exc:
                raise APIConnectionError from exc
        if response.is_error:
            raise APIStatusError(response, _decoded_error(response))
        if not response.headers["content-type"].startswith("application/json"):
            return response.text
        payload = response.json()
        return Completion(payload) if isinstance(payload, dict) else payload


def _decoded_error(response: httpx.Response) -> object:
    try:
        body = response.json()
    except ValueError:
        return response.text
    return body.get("error", body) if isinstance(body, dict) else body


# --- LiteLLM


def acompletion_of(sdk: AsyncOpenAI) -> Any:
    async def acompletion(*, model: str, **arguments: Any) -> Any:
        answer = await sdk.create(model=model.removeprefix("openai/"), **arguments)
        answer._hidden_params = {"response_cost": 0.0}
        return answer

    return acompletion


# --- LangChain


class BaseChatOpenAI(BaseModel, arbitrary_types_allowed=True):
    """A chat model whose settings are fields."""

    sdk: Any
    model_name: str = "test-model"
    temperature: float | None = None
    max_tokens: int | None = None
    bound: dict[str, Any] = {}

    def bind_tools(self, tools: list[Any], **options: Any) -> "BaseChatOpenAI":
        return self.model_copy(update={"bound": {"tools": tools, **options}})

    async def ainvoke(self, messages: list[Any], /, **options: Any) -> Any:
        settings = {"temperature": self.temperature, "max_completion_tokens": self.max_tokens}
        sent = {name: value for name, value in settings.items() if value is not None}
        answer = await self.sdk.create(
            model=self.model_name, messages=messages, **sent, **self.bound, **options
        )
        payload = answer.model_dump()
        if payload.get("error"):
            raise ValueError(payload["error"])
        return _message_of(payload)


class ChatModel(BaseChatOpenAI):
    pass


def _message_of(payload: Mapping[str, Any]) -> Any:
    choice, usage = payload["choices"][0], payload.get("usage")
    calls = choice["message"].get("tool_calls") or []
    return SimpleNamespace(
        id="run-1",
        content=choice["message"]["content"] or "",
        additional_kwargs={"refusal": choice["message"].get("refusal")},
        response_metadata={
            "id": payload["id"],
            "model_name": payload["model"],
            "finish_reason": choice["finish_reason"],
            "token_usage": usage,
        },
        tool_calls=[
            {
                "id": call["id"],
                "name": call["function"]["name"],
                "args": json.loads(call["function"]["arguments"]),
            }
            for call in calls
        ],
        invalid_tool_calls=[],
        usage_metadata=usage
        and {
            "input_tokens": usage["prompt_tokens"],
            "output_tokens": usage["completion_tokens"],
            "total_tokens": usage["total_tokens"],
            "input_token_details": {
                "cache_read": usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
            },
        },
    )


# --- pydantic-ai


@dataclass
class SystemPart:
    content: str
    part_kind: Literal["system-prompt"]


@dataclass
class ImageUrl:
    url: str
    kind: Literal["image-url"]


@dataclass
class UserPart:
    content: str | list[str | ImageUrl]
    part_kind: Literal["user-prompt"]


@dataclass
class ReturnPart:
    tool_name: str
    content: str
    tool_call_id: str
    part_kind: Literal["tool-return"]


@dataclass
class TextPart:
    content: str
    part_kind: Literal["text"] = "text"


@dataclass
class CallPart:
    tool_name: str
    args: str | dict[str, Any] | None
    tool_call_id: str
    part_kind: Literal["tool-call"] = "tool-call"


@dataclass
class ModelRequest:
    parts: list[Annotated[SystemPart | UserPart | ReturnPart, Field(discriminator="part_kind")]]
    kind: Literal["request"]


@dataclass
class ModelResponse:
    parts: list[Annotated[TextPart | CallPart, Field(discriminator="part_kind")]]
    kind: Literal["response"] = "response"


@dataclass
class ToolDefinition:
    name: str
    parameters_json_schema: dict[str, Any]
    description: str | None = None


@dataclass
class Parameters:
    function_tools: list[ToolDefinition] = field(default_factory=list)
    output_mode: str = "text"
    output_object: dict[str, Any] | None = None


class UnexpectedModelBehavior(Exception):  # noqa: N818 - pydantic-ai's name
    pass


class ModelAPIError(Exception):
    pass


class ModelHTTPError(ModelAPIError):
    def __init__(self, error: APIStatusError) -> None:
        self.status_code, self.body = error.status_code, error.body
        self.headers = {name.lower(): value for name, value in error.response.headers.items()}
        super().__init__("status_code")


class Model:
    """A model whose `request` accepts dataclasses and returns one."""

    def __init__(self, sdk: AsyncOpenAI, model_name: str, *, formats: bool) -> None:
        self._sdk, self.model_name = sdk, model_name
        self.profile = {
            "supports_json_object_output": formats,
            "supports_json_schema_output": formats,
        }

    async def request(
        self,
        messages: list[Annotated[ModelRequest | ModelResponse, Field(discriminator="kind")]],
        model_settings: dict[str, Any] | None,
        model_request_parameters: Parameters,
    ) -> Any:
        body: dict[str, Any] = dict(model_settings or {})
        if "max_tokens" in body:
            body["max_completion_tokens"] = body.pop("max_tokens")
        if model_request_parameters.output_mode == "prompted":
            body["response_format"] = {"type": "json_object"}
        if output := model_request_parameters.output_object:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": output["name"], "schema": output["json_schema"]},
            }
        if tools := model_request_parameters.function_tools:
            body["tools"] = [_tool(tool) for tool in tools]
        sent = [message for item in messages for message in _wire_of(item)]
        try:
            answer = await self._sdk.create(model=self.model_name, messages=sent, **body)
        except APIStatusError as exc:
            raise ModelHTTPError(exc) from exc
        except APIConnectionError as exc:
            raise ModelAPIError from exc
        try:
            return _response_of(answer.model_dump())
        except (AttributeError, KeyError, TypeError, IndexError) as exc:
            raise UnexpectedModelBehavior from exc


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters_json_schema,
    }
    return {"type": "function", "function": function}


def _wire_of(item: ModelRequest | ModelResponse) -> list[dict[str, Any]]:
    if isinstance(item, ModelResponse):
        text = "".join(part.content for part in item.parts if isinstance(part, TextPart))
        calls = [
            {
                "id": part.tool_call_id,
                "type": "function",
                "function": {"name": part.tool_name, "arguments": part.args},
            }
            for part in item.parts
            if isinstance(part, CallPart)
        ]
        return [
            {"role": "assistant", "content": text or None}
            | ({"tool_calls": calls} if calls else {})
        ]
    return [_wire_part(part) for part in item.parts]


def _wire_part(part: SystemPart | UserPart | ReturnPart) -> dict[str, Any]:
    if isinstance(part, ReturnPart):
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.content}
    if isinstance(part.content, str):
        return {
            "role": "system" if isinstance(part, SystemPart) else "user",
            "content": part.content,
        }
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": item}
        if isinstance(item, str)
        else {"type": "image_url", "image_url": {"url": item.url}}
        for item in part.content
    ]
    return {"role": "user", "content": parts}


def _response_of(payload: Mapping[str, Any]) -> Any:
    choice, usage = payload["choices"][0], payload.get("usage") or {}
    text = choice["message"]["content"]
    calls = [
        CallPart(call["function"]["name"], call["function"]["arguments"], call["id"])
        for call in choice["message"].get("tool_calls") or []
    ]
    reason = choice["finish_reason"]
    return SimpleNamespace(
        parts=[*([TextPart(text + "")] if text else []), *calls],
        usage=SimpleNamespace(
            input_tokens=usage.get("prompt_tokens", 0),
            output_tokens=usage.get("completion_tokens", 0),
            cache_read_tokens=usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
            cost=None,
        ),
        model_name=payload["model"],
        finish_reason="tool_call" if reason == "tool_calls" else reason,
        provider_response_id=payload["id"],
    )
