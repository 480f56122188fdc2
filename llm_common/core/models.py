"""Messages, responses and settings of a model call: frozen values."""

from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

_PER_MILLION = 1_000_000


class MessageRole(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    FUNCTION = "function"
    TOOL = "tool"


class LLMMessage(BaseModel):
    """One message of a conversation, in the shape of the chat completions API."""

    model_config = ConfigDict(frozen=True, use_enum_values=True)

    role: MessageRole
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    function_call: dict[str, Any] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class LLMUsage(BaseModel):
    """The endpoint's token counts; `cached_tokens` are part of `prompt_tokens`."""

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0

    def __add__(self, other: "LLMUsage") -> "LLMUsage":
        return LLMUsage(
            **{name: getattr(self, name) + getattr(other, name) for name in LLMUsage.model_fields}
        )


class LLMResponse(BaseModel):
    """One answer of a model.

    `content` may be None or a list of parts, `logprobs` is as the endpoint gave it.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    model: str
    content: str | list[dict[str, Any]] | None
    role: MessageRole = MessageRole.ASSISTANT
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None
    usage: LLMUsage = Field(default_factory=LLMUsage)
    created_at: datetime = Field(default_factory=partial(datetime.now, UTC))
    tool_calls: list[dict[str, Any]] | None = None
    function_call: dict[str, Any] | None = None
    refusal: str | None = None
    provider: str | None = None
    cost_usd: float | None = None
    latency_ms: int | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class LLMDelta(BaseModel):
    """What a stream adds to an answer: a text; at the end, once, the whole response."""

    model_config = ConfigDict(frozen=True)

    text: str = ""
    response: LLMResponse | None = None


class TokenPrices(BaseModel):
    """Dollars for a million tokens; without a price for cached tokens they cost what others do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: float = Field(ge=0, allow_inf_nan=False)
    completion: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def cost_usd(self, usage: LLMUsage) -> float:
        """The cost of a call; cached tokens of the prompt have their own price."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        fresh = usage.prompt_tokens - cached
        cached_price = self.prompt if self.cached is None else self.cached
        return (
            fresh * self.prompt + cached * cached_price + usage.completion_tokens * self.completion
        ) / _PER_MILLION


class LLMConfig(BaseModel):
    """The endpoint of a client, and its limits.

    Attributes:
        api_key: Never in repr, logs or errors; empty for a local server without a key.
        base_url: Without `/chat/completions`.
        default_model: Used when a call names none.
        provider: Name for reports and for the table of model profiles.
        temperature: Sent with every call that names none; None leaves it to the endpoint.
        max_tokens: Limit of the answer for every call that names none; None leaves it to the
            endpoint.
        timeout_s: Deadline of one call in seconds, retries and waits included.
        max_attempts: Most HTTP requests of one call.
        max_response_bytes: A longer answer, after decompression, is refused.
        cost_limit_usd: Dollars that the client may spend in total; None sets no limit. A request
            that could pass it is not sent. Four things can still pass it: an answer of more than
            1,000 tokens where no `max_tokens` is set, prompt tokens that are not in the request (an
            image given by its address, a tool of the endpoint), a call that timed out here and was
            charged there, and prices that differ from those that the client knows.
        prices: Dollars by the model's name as calls give it, for models whose price the library
            does not know.
        unknown_price: What a limit does about a model without a known price: `refuse` sends
            nothing; `dearest` counts it as the dearest known model, or as the dearest reply so far
            if that cost more.
        prefers_json_schema: Selectors ask for a reply by its JSON Schema, with the allowed names as
            an enum, instead of any JSON object. For endpoints that decode under a grammar, such as
            OpenAI, llama.cpp and vLLM. Off by default: z.ai and DeepSeek support no schema,
            OpenRouter's providers differ, and the
                schema costs tokens.
            An endpoint that refuses it is asked for a JSON object from then on.
    """

    # Its validator is built when the first one is made, not on import. Errors quote no input, since
    # it holds the key.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    api_key: SecretStr = SecretStr("")
    base_url: str
    default_model: str
    provider: str = "custom"
    temperature: float | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    timeout_s: float = Field(default=60.0, gt=0, le=3600)
    max_attempts: int = Field(default=2, ge=1, le=10)
    max_response_bytes: int = Field(default=5_000_000, ge=1)
    cost_limit_usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    prices: dict[str, TokenPrices] = Field(default_factory=dict)
    unknown_price: Literal["refuse", "dearest"] = "refuse"
    prefers_json_schema: bool = False
