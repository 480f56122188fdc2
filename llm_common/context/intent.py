"""What a request asks for, told by its words alone.

The first verb of the request decides. A request is read as a row of roles, one letter a word, in which regular
expressions find the verbs that ask for something: those that begin a clause, or follow "could you", "I want you to",
"let's" and their like; not "the build", "a fix", "don't run" or "when I run".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from llm_common.context.entities import QUOTED, URL, extract_entities, head_and_tail
from llm_common.context.intent_lexicon import (
    BETTER,
    CODE_NOUNS,
    COMMANDS,
    CUES,
    GERUNDS,
    NOTHING_WITHOUT_OBJECT,
    OBJECT_ENDS,
    OBJECTS,
    PHRASES,
    PLACES,
    REFINED_BY_OBJECT,
    ROLES,
    VERBS,
    WANTS,
)
from llm_common.context.request import IntentMetadata, IntentType, UserIntent

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
_NAMED: Final = re.compile(r"(?=.*[A-Za-z])(?:[a-z]++[A-Z]|[^._/\\]*+[._/\\])")
_PROSE_FILE: Final = re.compile(r".*\.(?:md|mdx|rst|adoc)", re.IGNORECASE)
_WRAPPING: Final = "*_#>[]{}<\"'`\u201c\u201d\u2018\u2019"
_ENDS: Final = ".!?:;"
_BREAK, _PAUSE, _QUESTION, _NAME, _OTHER = ".", ",", "?", "@", "0"
_MARKS: Final = {_BREAK: "B", _QUESTION: "B", _PAUSE: "C"}
_MOST_OBJECT_WORDS: Final = 12
_DENIALS: Final = frozenset({"no", "without", "zero"})

# One letter a word; `intent_lexicon.ROLES` says which. V, G and R are verbs, forms in -ing and programs, W is "need a"
# and its like, T and t are "to" that does and does not ask for something, x is a word that is out of the reckoning.
# Repetitions are bounded, so that no row takes more than linear time.
_SUBORDINATE: Final = re.compile(r"S(?!YM|[MU])[^BC]*")
_NEGATED: Final = re.compile(r"N[XFMUPYTt]{0,3}[VWG]")
_NOUN: Final = re.compile(r"[VWR](?=[XVG]?Z|O)")
_REQUEST: Final = re.compile(
    r"(?:\A|[BCJ])F{0,6}(?:[FKL]{0,6}[MU][FLPYMU]{0,6})?[FL]{0,6}[VWR]"  # fix; could you please fix; how do I fix
    r"|[PY]F{0,6}U[FLPY]{0,6}[VW]"  # we should fix
    r"|L[FPY]{0,6}[VW]"  # let me fix
    r"|TF{0,6}[VW]"  # I want you to fix
    r"|[PY][FMU]{0,6}W"  # I need a fix
    r"|Qx?F{0,6}G"  # would you mind fixing; start by fixing
)
_ANY_VERB: Final = re.compile(r"(?:\A|[BCJLTtMUSQ])F{0,6}[VW]|(?:\A|[BCJS])F{0,6}G")


def classify_intent(text: str, *, current_project: str | None = None) -> UserIntent:
    """The request with its intent, what that needs and what it names, told by English words; pure, without a model.

    Words are compared whole. The first verb that asks for something decides; without one the first word that tells the
    matter, such as "bug" or "roadmap"; then any other verb; then a question about code is file analysis. Everything
    else, other languages and nothing at all are conversational. A word of two intents has that which comes first in the
    specification. Of a text over 6,000 characters the first 4,000 and the last 2,000 are read.

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
    roles = _NOUN.sub("x", _NEGATED.sub(_struck_out, _roles(words)))
    main_clauses = _SUBORDINATE.sub(_struck_out, roles)
    return (
        _verb_intent(words, _REQUEST.search(main_clauses))
        or _first_cue(words)
        or _verb_intent(words, _ANY_VERB.search(roles))
        or (IntentType.FILE_ANALYSIS if _asks_about_code(words) else IntentType.CONVERSATIONAL)
    )


def _words(text: str) -> Iterator[str]:
    """The words in lower case, and a mark for each end, pause, question, name and quotation."""
    text = URL.sub(" a.b ", _BLOCK.sub("\n", text.replace("\u2019", "'").replace("()", ".x")))
    plain = QUOTED.sub(lambda quoted: f" {_OTHER if quoted['code'] is None else 'a.b'} ", text)
    for chunk in _CHUNK.findall(plain):
        if chunk in "(),;\n":
            yield _PAUSE if chunk == "," else _BREAK
            continue
        core = chunk.strip(_WRAPPING)
        stem = core.rstrip(_ENDS + _WRAPPING)
        yield from _read(stem)
        if stem != core or not stem:
            yield _QUESTION if "?" in core[len(stem) :] else _BREAK


def _read(stem: str) -> list[str]:
    parts = stem.split("/")
    if _RAISED.fullmatch(stem):
        return ["error"]
    if _PROSE_FILE.fullmatch(stem):
        return ["docs"]
    if _NAMED.match(stem) and not all(map(_WORD.fullmatch, parts)):
        return [_NAME]
    return [part.lower().replace("-", "") if _WORD.fullmatch(part) else _OTHER for part in parts] if stem else []


def _roles(words: Sequence[str]) -> str:
    """One letter a word; of a phrase the first word has its role, the others are out of the reckoning."""
    roles = ""
    while len(roles) < len(words):
        place = len(roles)
        entry = _entry(words, place)
        roles += _role(words, place, entry) + "x" * entry.count(" ")
    return roles


def _role(words: Sequence[str], place: int, entry: str) -> str:
    word = words[place]
    if word == "to":
        return "T" if place and words[place - 1] in WANTS else "t"
    if entry in VERBS:
        if entry not in NOTHING_WITHOUT_OBJECT:
            return "V"
        return "W" if _intent_of_object(words, place, entry) else "X"
    if word in GERUNDS:
        return "G"
    role = _MARKS.get(word) or ROLES.get(entry) or ("F" if word.endswith("ly") else "X")
    return "R" if word in COMMANDS else role


def _struck_out(match: re.Match[str]) -> str:
    return "x" * len(match.group())


def _entry(words: Sequence[str], place: int) -> str:
    """The longest phrase of the lexicon that begins at that word, else the word."""
    for phrase in PHRASES.get(words[place], ()):
        if tuple(words[place : place + len(phrase)]) == phrase:
            return " ".join(phrase)
    return words[place]


def _verb_intent(words: Sequence[str], match: re.Match[str] | None) -> IntentType | None:
    """The intent of the verb that a match ends with, or the one that its object turns it to."""
    if match is None:
        return None
    place = match.end() - 1
    entry = _entry(words, place)
    if entry not in VERBS:
        entry = GERUNDS.get(entry, entry)
    intent = _intent_of_object(words, place, entry) or VERBS.get(entry, IntentType.COMMAND_EXECUTION)
    following = words[place + 1 : place + 1 + _MOST_OBJECT_WORDS]
    if entry == "make" and intent is IntentType.CODE_WRITING and not BETTER.isdisjoint(following):
        return IntentType.CODE_REFACTORING
    return intent


def _intent_of_object(words: Sequence[str], place: int, verb: str) -> IntentType | None:
    """The intent that what a verb is about turns it to, if any; "add a section to the readme" is about the readme."""
    allowed = REFINED_BY_OBJECT.get(verb, frozenset())
    heads = _heads(words, place + verb.count(" ") + 1) if allowed else ()
    for number, head in enumerate(heads):
        intent = OBJECTS.get(head)
        if intent in allowed and (number == 0 or intent is IntentType.DOCUMENTATION):
            return intent
    return None


def _heads(words: Sequence[str], start: int) -> Iterator[str]:
    """The last word of the object that begins there, then those of the places that follow it."""
    head = ""
    for word in words[start : start + _MOST_OBJECT_WORDS]:
        if word in _MARKS or word in OBJECT_ENDS:
            yield head
            if word not in PLACES:
                return
            head = ""
        else:
            head = word
    yield head


def _first_cue(words: Sequence[str]) -> IntentType | None:
    for place, word in enumerate(words):
        if word in PHRASES and (intent := CUES.get(_entry(words, place))) and words[max(0, place - 1)] not in _DENIALS:
            return intent
    return None


def _asks_about_code(words: Sequence[str]) -> bool:
    asks = _QUESTION in words or any(ROLES.get(word) == "K" for word in words)
    return asks and any(word == _NAME or word in CODE_NOUNS or word.removesuffix("s") in CODE_NOUNS for word in words)
