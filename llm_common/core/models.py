"""`LLMClient`, the interface between llm-common and a model, and what passes through it."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError

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
def as_messages(messages: object) -> list[LLMMessage]:
    """Return a conversation as messages: each is an `LLMMessage` or a dict of the API.

    Raises:
        TypeError: If `messages` is not a list of messages. The error names the first that is not
            one, without its text.
    """
    if isinstance(messages, str | bytes | Mapping | BaseModel) or not isinstance(
        messages, Iterable
    ):
        raise TypeError(
            f"messages must be a list, got {type(messages).__name__}; pass a list such as "
            f"[LLMMessage(role='user', content='…')]"
        )
    return [_as_message(message, index=index) for index, message in enumerate(messages)]


def _as_message(message: object, *, index: int) -> LLMMessage:
    if isinstance(message, LLMMessage):
        return message
    problem = f"is a {type(message).__name__}"
    if isinstance(message, Mapping):
        # SDKs dump None and [] for fields that are not set.
        fields = {
            name: value for name, value in message.items() if value is not None and value != []
        }
        unknown = [name for name in fields if name not in LLMMessage.model_fields]
        if unknown:
            problem = f"has an unknown key, {str(unknown[0])[:40]!r}"
        elif not fields.keys() & {"content", "tool_calls", "function_call"}:
            problem = "has no content"
        else:
            try:
                return LLMMessage.model_validate(fields)
            except ValidationError as exc:
                problem = f"has no usable {exc.errors(include_input=False)[0]['loc'][0]}"
    # Outside the handler, since a chained ValidationError would quote the message.
    roles = ", ".join(MessageRole)
    raise TypeError(
        f"messages[{index}] {problem}; pass an LLMMessage, or a dict with `content` and a `role` "
        f"of {roles}"
    )


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


class LLMClient(ABC):
    """A client for a chat model. Subclasses implement `chat_completion`.

    An `async with` block closes the client's connections. Subclassing is optional: the selectors
    accept any object with a matching `chat_completion`.

    Attributes:
        default_model: Name of the model for calls that name none. None if unknown.
        provider: Name of the endpoint's provider, such as `zai` or `openai`. None if unknown.
        host: Host of the endpoint, with the port if its address has one. None if unknown.
    """

    default_model: str | None = None
    provider: str | None = None
    host: str | None = None

    @abstractmethod
    async def chat_completion(
        self,
        messages: list[LLMMessage],
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        **options: Any,
    ) -> LLMResponse:
        """Return the model's answer to a conversation.

        Args:
            messages: The conversation, oldest first.
            model: Name at the endpoint. None uses the client's default.
            temperature: Sampling temperature. None uses the client's default.
            max_tokens: Maximum length of the answer in tokens. None uses the client's default.
            **options: Further options of the endpoint, such as `response_format`.

        Returns:
            One whole answer.

        Raises:
            LLMError: If the call failed. The subclass says why.
        """

    async def aclose(self) -> None:
        """Close the client's connections. Safe to call twice."""
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


# Clients of other packages by a method, which needs no import of the package, and the adapter for
# each. The order matters: LiteLLM's router has a `chat` as well.
_ADAPTERS: Final = (
    ("acompletion", 'LiteLLMClient(client.acompletion, model="...")'),
    ("chat.completions.create", 'OpenAISDKClient(client, model="...")'),
    ("messages.create", 'LiteLLMClient(litellm.acompletion, model="anthropic/...")'),
)


def check_client(client: object) -> None:
    """Check that an object has a callable `chat_completion`.

    Raises:
        TypeError: If it has none. For a client of another package the text names the adapter.
    """
    method = getattr(client, "chat_completion", None)
    # A class has the function too, but calling it would lack `self`.
    unbound = isinstance(client, type) and inspect.isfunction(
        inspect.getattr_static(client, "chat_completion", None)
    )
    if callable(method) and not unbound:
        return
    name = client.__name__ if isinstance(client, type) else type(client).__name__
    raise TypeError(
        f"{name} is not a client: it has no callable chat_completion; {_remedy(client)}"
    )


def _remedy(client: object) -> str:
    """Return what to pass instead of an object that is not a chat client."""
    if isinstance(client, type):
        return f"pass an instance of {client.__name__}"
    if isinstance(client, LLMConfig):
        return "pass OpenAICompatibleClient(config)"
    # LiteLLM's function itself, instead of an object that has it.
    if inspect.isfunction(client) and client.__name__ == "acompletion":
        return 'wrap it: llm_common.clients.LiteLLMClient(acompletion, model="...")'
    for path, adapter in _ADAPTERS:
        method: object = client
        for name in path.split("."):
            method = getattr(method, name, None)
        if callable(method):
            is_async = inspect.iscoroutinefunction(inspect.unwrap(method))
            wrapped = "it"
            if adapter.startswith("OpenAISDK") and not is_async:
                wrapped = "the async client instead"
            return f"wrap {wrapped}: llm_common.clients.{adapter}"
    return "pass an LLMClient, such as llm_common.core.OpenAICompatibleClient.from_env()"
