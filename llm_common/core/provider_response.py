"""What is read of the answer of a client that need not be ours."""

from dataclasses import dataclass
from typing import Any, Final, TypeVar

from llm_common.core.models import LLMUsage

__all__ = ["ForeignAnswer", "read_answer"]

ValueT = TypeVar("ValueT")

_TEXT_PARTS: Final = ("text", "output_text")

# How an answer that is whole ends, as OpenAI, Anthropic, text-generation-inference and gateways before them say it.
_WHOLE: Final = frozenset(
    {"", "stop", "tool_calls", "function_call", "tool_use", "end_turn", "stop_sequence", "eos", "eos_token"}
    | {"complete", "completed", "done", "finished"}
)
# How one ends that is not: OpenAI, then z.ai, Anthropic, Mistral, DeepSeek, vLLM and Gemini.
_UNFINISHED: Final = {
    "length": "cut",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
    "model_context_window_exceeded": "cut",
    "network_error": "cut",
    "error": "cut",
    "max_tokens": "cut",
    "refusal": "refusal",
    "model_length": "cut",
    "insufficient_system_resource": "cut",
    "abort": "cut",
    "safety": "content_filter",
    "recitation": "content_filter",
    "prohibited_content": "content_filter",
    "guardrail_intervened": "content_filter",
}


@dataclass(frozen=True, slots=True)
class ForeignAnswer:
    """What is read of a foreign answer; whatever is not of its type, as in a double made of mocks, counts as absent."""

    content: str = ""
    finish_reason: str | None = None
    refusal: str | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()
    model: str | None = None
    usage: LLMUsage | None = None
    cost_usd: float | None = None

    @property
    def unfinished(self) -> str | None:
        """Why the answer is not the model's whole one: `cut`, `content_filter`, `refusal`, or `unknown_finish`.

        Providers invent reasons at will, so one that is not known to mean a whole answer counts as none.
        """
        if self.refusal:
            return "refusal"
        reason = (self.finish_reason or "").lower()
        return None if reason in _WHOLE else _UNFINISHED.get(reason, "unknown_finish")


def read_answer(answer: object) -> ForeignAnswer:
    """The parts of an answer that matter; may raise whatever the attributes of a foreign object raise."""
    return ForeignAnswer(
        content=_text_of(getattr(answer, "content", None)),
        finish_reason=_typed(answer, "finish_reason", str),
        refusal=_typed(answer, "refusal", str),
        tool_calls=_tool_calls_of(answer),
        model=_typed(answer, "model", str),
        usage=_typed(answer, "usage", LLMUsage),
        cost_usd=_typed(answer, "cost_usd", float),
    )


def _typed(answer: object, name: str, kind: type[ValueT]) -> ValueT | None:
    value = getattr(answer, name, None)
    return value if isinstance(value, kind) else None


def _text_of(content: object) -> str:
    """The text of a reply that is a string or a list of parts; images and other parts are left out."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") in _TEXT_PARTS]
    return "".join(text for text in texts if isinstance(text, str))


def _tool_calls_of(answer: object) -> tuple[dict[str, Any], ...]:
    """Native tool calls in today's shape, also where the answer has the older `function_call`; all or none."""
    calls = _typed(answer, "tool_calls", list) or []
    function = _typed(answer, "function_call", dict)
    if not calls and function:
        calls = [{"type": "function", "function": function}]
    return tuple(calls) if all(isinstance(call, dict) for call in calls) else ()
