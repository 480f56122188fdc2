"""Messages, responses and settings of a model call, as frozen values."""

from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

_PER_MILLION = 1_000_000


class MessageRole(StrEnum):
    """The speaker of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    FUNCTION = "function"
    TOOL = "tool"


class LLMMessage(BaseModel):
    """One message of a conversation, in the shape of the chat completions API.

    Attributes:
        role: The speaker.
        content: The text, or a list of parts such as pictures. None if there are only calls.
        name: Name of the speaker, or of the function whose output this is.
        function_call: The call of a model that speaks the older form, one call a message.
        tool_calls: The calls that the model asks for, each with its id.
        tool_call_id: Id of the call that a `tool` message answers.
    """

    model_config = ConfigDict(frozen=True, use_enum_values=True)

    role: MessageRole
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    function_call: dict[str, Any] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


# An endpoint that reports a count below 0 could otherwise raise a run's limit.
_Tokens = Annotated[int, AfterValidator(partial(max, 0))]


class LLMUsage(BaseModel):
    """The endpoint's token counts, 0 for one that is not reported or below 0.

    Attributes:
        prompt_tokens: Tokens of the prompt.
        completion_tokens: Tokens of the answer.
        total_tokens: The endpoint's own sum.
        cached_tokens: The part of `prompt_tokens` that the endpoint had cached.
    """

    model_config = ConfigDict(frozen=True)

    prompt_tokens: _Tokens = 0
    completion_tokens: _Tokens = 0
    total_tokens: _Tokens = 0
    cached_tokens: _Tokens = 0

    def __add__(self, other: "LLMUsage") -> "LLMUsage":
        return LLMUsage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


class LLMResponse(BaseModel):
    """One answer of a model.

    Attributes:
        id: The endpoint's id of the answer.
        model: Name of the model that answered.
        content: The text, or a list of parts. None if the model only calls tools.
        role: The speaker.
        finish_reason: Why the answer ends, such as `stop`, `length` or `tool_calls`.
        logprobs: The endpoint's object, unchecked.
        usage: The endpoint's token counts.
        created_at: The time of the answer, in UTC.
        tool_calls: The calls that the model asks for, each with its id.
        function_call: The call of a model that speaks the older form.
        refusal: The text with which the model declined.
        provider: The `LLMConfig.provider` of the client.
        cost_usd: Dollars of the call. None if the price is unknown.
        latency_ms: Milliseconds from the request to the whole answer, retries included.
        metadata: `dropped_options` lists the options that the endpoint refused, if there are any.
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
    """A piece of a streamed answer.

    Attributes:
        text: The new text. The last piece has none.
        response: The whole answer, in the last piece only.
    """

    model_config = ConfigDict(frozen=True)

    text: str = ""
    response: LLMResponse | None = None


class TokenPrices(BaseModel):
    """Dollars for a million tokens.

    Attributes:
        prompt: Price of tokens of the prompt.
        completion: Price of tokens of the answer.
        cached: Price of tokens of the prompt that were cached. None means the price of `prompt`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: float = Field(ge=0, allow_inf_nan=False)
    completion: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def cost_usd(self, usage: LLMUsage) -> float:
        """Return the cost of a call in dollars."""
        # An endpoint that reports more cached than sent tokens must not get a lower cost.
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        cached_price = self.prompt if self.cached is None else self.cached
        prompt_cost = (usage.prompt_tokens - cached) * self.prompt + cached * cached_price
        return (prompt_cost + usage.completion_tokens * self.completion) / _PER_MILLION


class LLMConfig(BaseModel):
    """The endpoint of a client, and its limits.

    Attributes:
        api_key: Key of the endpoint, which never appears in repr, logs or errors. Empty for a local
            server without a key.
        base_url: Address without `/chat/completions`.
        default_model: Model for calls that name none.
        provider: Name for reports, and for the prices and options in the table of model profiles.
        temperature: Temperature for calls that name none. None leaves it to the endpoint.
        max_tokens: Maximum length of the answer for calls that name none. None leaves it to the
            endpoint.
        timeout_s: Deadline of one call in seconds, retries and waits included.
        max_attempts: Maximum number of HTTP requests for one call.
        max_response_bytes: Maximum size of an answer after decompression.
        cost_limit_usd: Dollars that the client may spend in total. None sets no limit. A request
            that could exceed the limit is not sent. Four things can still exceed it. An answer can
            have more than 1,000 tokens without `max_tokens`. Prompt tokens can be missing from the
            request (an image by its address, a tool of the endpoint). A call that timed out here,
            or whose answer cannot be read, can be charged there. Prices can differ from the known
            ones. A stream that was not read to its end counts with its expected cost.
        prices: Prices by the model's name in calls, for models whose price the library does not
            know.
        unknown_price: Treatment of models without a known price under a limit. `refuse` sends
            nothing. `dearest` counts the price of the most expensive known model, or the cost of
            the most expensive reply so far if that is higher.
        prefers_json_schema: Whether selectors request replies by JSON Schema, with the allowed
            names as an enum, instead of as any JSON object. For endpoints that decode under a
            grammar, such as OpenAI, llama.cpp and vLLM. Off by default: z.ai and DeepSeek support
            no schema, OpenRouter's providers differ, and the schema costs tokens. An endpoint that
            refuses a schema is asked for a JSON object from then on.
    """

    # Validation errors must not quote their input, which contains the key.
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
