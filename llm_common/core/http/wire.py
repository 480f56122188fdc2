"""The chat completions format: requests to bytes, and bytes to responses.

The format is https://platform.openai.com/docs/api-reference/chat, with the cost that OpenRouter
adds to `usage` (https://openrouter.ai/docs/use-cases/usage-accounting).
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import orjson

from llm_common.core.http.providers import profile_of
from llm_common.core.models import (
    LLMMessage,
    LLMResponse,
    LLMUsage,
    TokenPrices,
    as_messages,
)
from llm_common.errors import (
    ContextTooLongError,
    LLMStatusError,
    MalformedReplyError,
)

_PATH = re.compile(r"[/\\~]|[A-Za-z]:[/\\]")  # an absolute path, on any system
BAD_REQUEST = frozenset({400, 422})  # 422 from servers built on FastAPI


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The fields of one request.

    Attributes:
        model: Name of the model at the endpoint.
        core: Fields that every endpoint accepts: model, messages, and the caller's options.
        optional: Fields that an endpoint may refuse: `response_format` and the options of the
            model's profile.
        dropped: Names of optional fields that were left out because the endpoint refused them.
            `json_schema` means that a plain JSON object replaced it.
    """

    model: str
    core: Mapping[str, Any]
    optional: Mapping[str, Any]
    dropped: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        messages: Sequence[LLMMessage | Mapping[str, Any]],
        *,
        model: str,
        provider: str,
        temperature: float | None,
        max_tokens: int | None,
        options: Mapping[str, Any],
    ) -> "ChatRequest":
        """Create a request with the options of the model's profile. The caller's options win.

        Raises:
            TypeError: If `messages` is not a list of messages, or `model` is not a str.
        """
        if not isinstance(model, str):
            raise TypeError(f"model must be a str, got {type(model).__name__}; pass its name")
        profile = profile_of(model)
        core: dict[str, Any] = {
            "model": model,
            "messages": [
                message.model_dump(exclude_none=True) for message in as_messages(messages)
            ],
        }
        if temperature is not None and not profile.reasons_always:
            core["temperature"] = temperature
        if max_tokens is not None:
            limit = "max_completion_tokens" if profile.reasons_always else "max_tokens"
            core[limit] = max_tokens
        core |= {name: value for name, value in options.items() if name != "response_format"}
        optional: dict[str, Any] = {}
        if options.get("response_format") is not None:
            added = profile.structured_options.get(provider, {})
            optional = {name: value for name, value in added.items() if name not in options}
            optional["response_format"] = options["response_format"]
        return cls(model=model, core=core, optional=optional)

    def body(self) -> bytes:
        """Return strict JSON in UTF-8.

        A lone surrogate, which UTF-8 cannot encode, becomes `?`.

        Raises:
            ValueError: If a number in the options is NaN or infinite.
            TypeError: If an option is not a JSON value.
        """
        # Not orjson, which refuses a lone surrogate and writes NaN as null.
        text = json.dumps(
            {**self.core, **self.optional},
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        )
        return text.encode(errors="replace")

    @property
    def max_tokens(self) -> int | None:
        """Return the maximum length of the answer in tokens, or None without a limit."""
        limit = self.core.get("max_tokens") or self.core.get("max_completion_tokens")
        return limit if isinstance(limit, int) else None

    @property
    def answers(self) -> int:
        """Return the number of answers that the request asks for, at least 1."""
        return max(count_or_zero(self.core.get("n")), 1)

    @property
    def metadata(self) -> dict[str, Any]:
        """Return the `metadata` of the response: `dropped_options`, if there are any."""
        if not self.dropped:
            return {}
        return {"dropped_options": list(self.dropped)}

    def bare(self) -> "ChatRequest":
        """Return the request without any field that an endpoint may refuse."""
        return replace(self, optional={}, dropped=tuple(sorted(self.optional)))

    def with_optional(self, **fields: Any) -> "ChatRequest":
        """Return the request with further fields that an endpoint may refuse.

        Fields that the request has already win.
        """
        added = {name: value for name, value in fields.items() if name not in self.core}
        return replace(self, optional={**added, **self.optional})

    def without(self, refused: Collection[str]) -> "ChatRequest":
        """Return the request without refused options. A plain JSON object replaces a schema."""
        optional = {name: value for name, value in self.optional.items() if name not in refused}
        dropped = set(self.optional) - set(optional)
        kind = _format_of(optional)
        if kind == "json_schema" and kind in refused and "json_object" not in refused:
            optional["response_format"] = {"type": "json_object"}
            dropped.add(kind)
        elif kind in refused:
            del optional["response_format"]
            dropped.add("response_format")
        return replace(self, optional=optional, dropped=tuple(sorted(dropped)))

    def refused_by(self, error: BaseException) -> frozenset[str]:
        """Return the optional fields that an error names, `response_format` by its type."""
        if not isinstance(error, LLMStatusError) or error.status not in BAD_REQUEST:
            return frozenset()
        # Fewer options do not make a prompt shorter.
        if isinstance(error, ContextTooLongError):
            return frozenset()
        refused = {name for name in self.optional if name in error.body}
        kind = _format_of(self.optional)
        # Endpoints name the field, or the type that they do not support.
        names_type = kind is not None and kind.startswith("json") and kind in error.body
        if kind and ("response_format" in refused or names_type):
            refused = refused - {"response_format"} | {kind}
        return frozenset(refused)


RefusedOptions = defaultdict[str, frozenset[str]]
"""The options that an endpoint refused, by model. Later calls to the model leave them out.

Add to them after a success without them. An error can name an option because it quotes the call,
and then returns without the option too.
"""


def read_payload(body: bytes, *, content_type: str) -> dict[str, Any]:
    """Parse the JSON object of a reply.

    Raises:
        MalformedReplyError: `content_type`, `bad_charset`, `empty`, `bad_json` or `not_an_object`.
    """
    kind, _, parameters = content_type.lower().partition(";")
    if kind.strip() != "application/json" and not kind.strip().endswith("+json"):
        raise malformed_reply("is not declared as JSON", "content_type")
    charset = parameters.partition("charset=")[2].partition(";")[0].strip().strip('"')
    if charset not in {"", "utf-8", "utf8", "us-ascii"}:
        raise malformed_reply("is not in UTF-8, which JSON requires (RFC 8259)", "bad_charset")
    if not body.strip():
        raise malformed_reply("is empty", "empty")
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise malformed_reply("is not JSON", "bad_json") from exc
    if not isinstance(payload, dict):
        raise malformed_reply("is not a JSON object", "not_an_object")
    return payload


def charge_of(
    payload: Mapping[str, Any], prices: TokenPrices | None
) -> tuple[LLMUsage, float | None] | None:
    """Return tokens and dollars of a reply: the reported cost, else by the model's prices.

    The dollars are None if the prices are unknown or the reply reports no tokens. The result is
    None for an error without a usage, which was not charged.
    """
    if payload.get("error") and not isinstance(payload.get("usage"), dict):
        return None
    usage = read_usage(payload)
    cost: Any = dict_or_empty(payload.get("usage")).get("cost")
    # `true` would count as a dollar, since a bool is an int in Python.
    is_number = isinstance(cost, int | float) and not isinstance(cost, bool)
    if is_number and isfinite(cost) and cost >= 0:
        return usage, float(cost)
    if prices is None or not usage.total_tokens:
        return usage, None
    return usage, prices.cost_usd(usage)


def read_usage(payload: Mapping[str, Any]) -> LLMUsage:
    """Return the tokens that a reply reports, 0 for a missing or unusable count."""
    usage = dict_or_empty(payload.get("usage"))
    prompt = count_or_zero(usage.get("prompt_tokens"))
    completion = count_or_zero(usage.get("completion_tokens"))
    details = dict_or_empty(usage.get("prompt_tokens_details"))
    return LLMUsage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=count_or_zero(usage.get("total_tokens")) or prompt + completion,
        # DeepSeek reports hits next to the prompt's tokens, not below them:
        # https://api-docs.deepseek.com/guides/kv_cache
        cached_tokens=count_or_zero(details.get("cached_tokens"))
        or count_or_zero(usage.get("prompt_cache_hit_tokens")),
    )


def read_response(payload: Mapping[str, Any], **fields: Any) -> LLMResponse:
    """Return the first choice of a reply as a response.

    Args:
        payload: Reply from `read_payload`.
        **fields: Further fields of the response. `model` is the default for a reply that names
            none.

    Raises:
        MalformedReplyError: `no_choices`, `no_message`, `bad_content` or `bad_tool_calls`.
    """
    choice = first_choice(payload)
    if not choice:
        raise malformed_reply("contains no choice", "no_choices")
    message = choice.get("message")
    if not isinstance(message, dict):
        raise malformed_reply("contains a choice without a message", "no_message")
    content = message.get("content")
    if not (content is None or isinstance(content, str) or _is_list_of_objects(content)):
        raise malformed_reply(
            "contains a message whose content is neither text nor parts", "bad_content"
        )
    tool_calls, function_call = message.get("tool_calls"), message.get("function_call")
    logprobs = choice.get("logprobs")
    if not (tool_calls is None or _is_list_of_objects(tool_calls)) or not isinstance(
        function_call, dict | None
    ):
        raise malformed_reply("contains tool calls that are not objects", "bad_tool_calls")
    model = text_or_empty(payload.get("model"))
    if model and _PATH.match(model):  # llama.cpp's server reports the path of its file
        model = re.split(r"[/\\]", model)[-1]
    return LLMResponse(
        **fields
        | {
            "id": text_or_empty(payload.get("id")),
            "model": model or fields["model"],
            "content": content,
            "tool_calls": tool_calls,
            "function_call": function_call,
            "refusal": text_or_empty(message.get("refusal")) or None,
            "finish_reason": text_or_empty(choice.get("finish_reason")) or None,
            "logprobs": logprobs if isinstance(logprobs, dict) else None,
        }
    )


def _format_of(optional: Mapping[str, Any]) -> str | None:
    """Return the type of the `response_format`, or None without one."""
    response_format = optional.get("response_format")
    if response_format is None:
        return None
    return text_or_empty(dict_or_empty(response_format).get("type")) or "response_format"


def malformed_reply(text: str, reason: str) -> MalformedReplyError:
    """Return the error for a reply that is not in the API's format."""
    return MalformedReplyError(
        f"the reply {text}; check base_url, or use another model", reason=reason
    )


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def first_choice(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first choice of a reply or of a streamed chunk, {} without one."""
    choices = payload.get("choices")
    if not isinstance(choices, list) or not choices:
        return {}
    return dict_or_empty(choices[0])


def dict_or_empty(value: object) -> dict[str, Any]:
    """Return a value of a reply if it is an object, else {}."""
    return value if isinstance(value, dict) else {}


def text_or_empty(value: object) -> str:
    """Return a value of a reply if it is a str, else ""."""
    return value if isinstance(value, str) else ""


def count_or_zero(value: object) -> int:
    """Return a value of a reply if it is a positive int, else 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return max(value, 0)
