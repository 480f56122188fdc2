"""How many tokens a prompt takes: of what is sent, whichever way the tools travel."""

import json
from collections.abc import Iterable

from llm_common.core.models import LLMMessage
from llm_common.core.tokens import TokenCounter, UpperBoundCounter
from llm_common.prompt.prompt_bundle import PromptBundle

__all__ = ["PromptMeter", "count_prompt_tokens"]

_MESSAGE_TOKENS = 4  # role and marks around a message, in OpenAI's chat format
_ANSWER_TOKENS = 3  # that open the answer; both: https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken


def count_prompt_tokens(bundle: PromptBundle, counter: TokenCounter | None = None) -> int:
    """The tokens of everything that the bundle sends, the marks around messages included.

    Tool schemas are counted in the system message or beside the messages, whichever is more.

    Args:
        bundle: The prompt.
        counter: Counts tokens; None takes `UpperBoundCounter`.
    """
    return PromptMeter(counter or UpperBoundCounter()).tokens(bundle)


class PromptMeter:
    """Counts many versions of one prompt; a text that comes again is not counted again."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._known: dict[str, int] = {}

    def tokens(self, bundle: PromptBundle) -> int:
        """As `count_prompt_tokens`."""
        apart = self.messages(bundle.to_messages())
        if not bundle.tools_json_schema:
            return apart
        inside = self.messages(bundle.to_messages(include_tools=True))
        return max(inside, apart + self._count(bundle.tools_json_schema))

    def fits(self, bundle: PromptBundle) -> bool:
        """Whether the bundle is within its own budget."""
        return self.tokens(bundle) <= bundle.budget.max_input_tokens

    def messages(self, messages: Iterable[LLMMessage]) -> int:
        """The tokens of a conversation; none for an empty one."""
        each = [self.message(message) for message in messages]
        return sum(each) + _ANSWER_TOKENS if each else 0

    def message(self, message: LLMMessage) -> int:
        """The tokens of one message: its text, what else it carries as JSON, its marks."""
        text = message.content if isinstance(message.content, str) else ""
        facts = message.model_dump(exclude_none=True, exclude={"role"} | ({"content"} if text else set()))
        return _MESSAGE_TOKENS + self._count(text) + (self._count(json.dumps(facts)) if facts else 0)

    def _count(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = self._counter.count(text) if text else 0
        return self._known[text]
