"""What a request asks for, told by its words alone.

The first verb of the request decides. A request is read as a row of roles, one letter a word, in which regular
expressions find the verbs that ask for something: those that begin a clause, or follow "could you", "I want you to",
"let's" and their like; not "the build", "a fix", "don't run" or "when I run".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from llm_common.agents.context.entities import QUOTED, URL, extract_entities, head_and_tail
from llm_common.agents.context.intent_lexicon import (
    COMMANDS,
    CUES,
    NOTHING_WITHOUT_OBJECT,
    OBJECTS,
    REFINED_BY_OBJECT,
    VERBS,
)
from llm_common.agents.context.request import IntentMetadata, IntentType, UserIntent

__all__ = ["CONFIDENCES", "classify_intent", "intent_of"]

CONFIDENCES: Final[Mapping[IntentType, float]] = {
    IntentType.CODE_WRITING: 0.8,
    IntentType.CODE_DEBUGGING: 0.85,
    IntentType.CODE_REFACTORING: 0.8,
    IntentType.FILE_ANALYSIS: 0.75,
    IntentType.CONVERSATIONAL: 0.6,
    IntentType.PROJECT_PLANNING: 0.7,
    IntentType.DOCUMENTATION: 0.75,
    IntentType.COMMAND_EXECUTION: 0.8,
}
"""How sure a classification by words is (specification, "Intent Classification"; for the four it has none, ours)."""

_NEEDS: Final[Mapping[IntentType, IntentMetadata]] = {
    IntentType.CODE_WRITING: IntentMetadata(requires_code=True, requires_files=True, requires_project=True),
    IntentType.CODE_DEBUGGING: IntentMetadata(requires_code=True, requires_files=True, requires_history=True),
    IntentType.CODE_REFACTORING: IntentMetadata(requires_code=True, requires_files=True, requires_project=True),
    IntentType.FILE_ANALYSIS: IntentMetadata(requires_files=True),
    IntentType.CONVERSATIONAL: IntentMetadata(requires_history=True),
    IntentType.PROJECT_PLANNING: IntentMetadata(requires_history=True, requires_project=True),
    IntentType.DOCUMENTATION: IntentMetadata(requires_code=True, requires_files=True, requires_project=True),
    IntentType.COMMAND_EXECUTION: IntentMetadata(requires_history=True),
}

_BLOCK: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_CHUNK: Final = re.compile(r"\n|[^\s(),;]+|[(),;]")
_WORD: Final = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*")
_RAISED: Final = re.compile(r"(?:[A-Z][a-z0-9]+)+(?:Error|Exception)")
_WRAPPING: Final = "*_#>[]{}<\"'`\u201c\u201d\u2018\u2019"
_ENDS: Final = ".!?:;\u3002\uff1f\uff01"
_BREAK: Final = "."
_PAUSE: Final = ","
_QUESTION: Final = "?"
_NAME: Final = "@"  # a file, a symbol, anything that is no word


def classify_intent(text: str, *, current_project: str | None = None) -> UserIntent:
    """The request with its intent, what that needs and what it names, told by English words; pure, without a model.

    Words are compared whole. The first verb that asks for something decides; without one the first word that tells the
    matter, such as "bug" or "roadmap"; then any other verb; then a question about code is file analysis. Everything
    else, other languages and nothing at all are conversational. A word of two intents has that which comes first in the
    specification. Of a text over 20,000 characters the first 16,000 and the last 4,000 are read.

    Args:
        text: What the user wrote.
        current_project: Name of the project at hand, which memories of the same project are preferred by.
    """
    return intent_of(text, _classified(text), current_project=current_project)


def intent_of(
    text: str, classification: IntentType, *, confidence: float | None = None, current_project: str | None = None
) -> UserIntent:
    """The request with an intent that is known already.

    Args:
        text: What the user wrote.
        classification: What it asks for.
        confidence: Within [0, 1]; None takes that of `CONFIDENCES`.
        current_project: Name of the project at hand.
    """
    return UserIntent(
        text=text,
        classification=classification,
        confidence=CONFIDENCES[classification] if confidence is None else confidence,
        entities=extract_entities(text),
        metadata=_NEEDS[classification].model_copy(update={"current_project": current_project}),
    )


def _classified(text: str) -> IntentType:
    words = list(_words(head_and_tail(text)))
    roles = _roles(words)
    for intent in (
        _asked_for(words, roles),
        _first_cue(words),
        _any_verb(words, roles),
        _question_about_code(words),
    ):
        if intent is not None:
            return intent
    return IntentType.CONVERSATIONAL


def _words(text: str) -> Iterator[str]:
    """The words in lower case, a mark for each pause, end, question and name; nothing of what is quoted."""
    plain = QUOTED.sub(f" {_PAUSE_FOR_QUOTE} ", URL.sub(" x.y ", _BLOCK.sub("\n", text.replace("\u2019", "'"))))
    for chunk in _CHUNK.findall(plain):
        core = chunk.strip(_WRAPPING)
        stem = core.rstrip(_ENDS + _WRAPPING)
        yield from _read(stem)
        if chunk in {",", "(", ")", "\n", ";"}:
            yield _PAUSE if chunk == "," else _BREAK
        elif stem != core or not stem:
            yield _QUESTION if "?" in core[len(stem) :] else _BREAK
