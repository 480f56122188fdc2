"""The page of a run, the pages of its steps, and an index of several runs.

Words of the question and evidence are marked in a prompt, which is shown as it was sent.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import orjson

from llm_common.ranking import search_stems
from llm_common.trace import (
    AnswerLine,
    Flows,
    Line,
    ModelCallLine,
    PackingLine,
    RecordedRun,
    SentMessage,
    ToolCallLine,
    account,
    flows,
)

MAX_UNSEEN: Final = 500
"""Maximum number of rows in the table of what was left out."""

MAX_FLOWS: Final = 6
"""Number of outputs that are shown before the rest is folded away."""

SOURCE_NAMES: Final = {
    "project": "Project",
    "file": "Files",
    "memory": "Memories",
    "output": "Outputs",
    "turn": "Turns",
    "marks": "Headings and fences",
    "free": "Free",
}
"""The parts of a budget, in words."""

_INSTRUCTIONS: Final = frozenset({"", "system", "developer"})  # "" is the definition of a tool
_MAX_MESSAGE_CHARS: Final = 100_000  # a browser lays out longer texts slowly
_MIN_STEM_CHARS: Final = 4  # a shorter word has few forms, and begins many others
_MAX_ENDING_CHARS: Final = 6
_MIN_DIGITS: Final = 3  # a day or an hour would mark half of a table
_MAX_MARKS: Final = 5_000  # a browser lays out more slowly
_MAX_VALUES: Final = 50
# A date, a version or an amount, in one piece.
_COMPOUND: Final = re.compile(r"\w+(?:[-./:,]\w+)+")
_VALUE: Final = re.compile(r"\w*\d(?:[\w.,:-]*\w)?")

Mark = Literal["", "word", "evidence"]


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a text: a word of the question, evidence, or neither."""

    text: str
    mark: Mark = ""


class Marker:
    """Finds words of a question and evidence in a text.

    Args:
        query: The question.
        evidence: Values of which each occurrence is evidence.

    Attributes:
        has_evidence: Whether evidence was found so far.
    """

    def __init__(self, query: str, evidence: Sequence[str]) -> None:
        values = sorted({*evidence} - {""}, key=len, reverse=True)[:_MAX_VALUES]
        groups = []
        if values:
            escaped = "|".join(map(re.escape, values))
            groups.append(rf"(?P<evidence>(?<![\w.])(?:{escaped})(?!\w))")
        if words := _word_patterns(query):
            groups.append(rf"(?P<word>(?<!\w)(?:{'|'.join(words)})(?!\w))")
        # Without words and values, the pattern matches nothing.
        self._pattern = re.compile("|".join(groups) or r"(?!)", re.IGNORECASE)
        self._marks_left = _MAX_MARKS
        self.has_evidence = False

    def around(self, text: str, *, before: int, chars: int) -> str:
        """Return the part of a text that begins before the first match, "" without a match."""
        match = self._pattern.search(text)
        if match is None:
            return ""
        start = max(match.start() - before, 0)
        part = text[start : start + chars]
        if start:
            part = f"…{part}"
        if start + chars < len(text):
            part += "…"
        return part

    def fragments(self, text: str, *, are_marked: bool = True) -> tuple[Fragment, ...]:
        """Return a text in pieces, of which those that match are marked."""
        if not are_marked:
            return (Fragment(text),)
        fragments = []
        end = 0
        for match in self._pattern.finditer(text):
            if self._marks_left == 0:
                break
            self._marks_left -= 1
            if match.start() > end:
                fragments.append(Fragment(text[end : match.start()]))
            mark: Mark = "evidence" if match.lastgroup == "evidence" else "word"
            self.has_evidence |= mark == "evidence"
            fragments.append(Fragment(match[0], mark))
            end = match.end()
        fragments.append(Fragment(text[end:]))
        return tuple(fragments)


def _word_patterns(query: str) -> list[str]:
    patterns = [re.escape(value) for value in _COMPOUND.findall(query)]
    for stem in search_stems(query):
        if stem.isdigit():
            if len(stem) >= _MIN_DIGITS:
                patterns.append(stem)
        elif len(stem) >= _MIN_STEM_CHARS:
            patterns.append(rf"{re.escape(stem)}\w{{0,{_MAX_ENDING_CHARS}}}")
        elif len(stem) > 1:
            patterns.append(re.escape(stem))
    return patterns


def values_of(text: str, query: str) -> list[str]:
    """Return the values with digits of a text that a question does not have."""
    values = chain(_COMPOUND.findall(text), _VALUE.findall(text))
    return [value for value in values if re.search(r"\d", value) and value not in query]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A run in an index.

    Attributes:
        page: File name of its page, in the folder of the index.
        run: The run.
        returned_tokens: See `flows`.
        evidence: See `run_page`.
    """

    page: str
    run: RecordedRun
    returned_tokens: Mapping[str, int] = field(default_factory=dict)
    evidence: Sequence[str] = ()


class Total(NamedTuple):
    """A number of a run, with a remark below it."""

    value: str
    detail: str = ""


class Message(NamedTuple):
    """A message of a prompt. Its content is a text, or JSON if it has more than a text."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message of the prompt. `is_context` is False for instructions and definitions of tools."""

    role: str
    chars: int
    is_context: bool
    fragments: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class RunPage:
    """What the templates of a run show.

    Attributes:
        flows: What each output returned, and how much of it was shown.
        messages: The messages of the prompt. Empty if the trace has no texts.
        has_evidence: Whether a part of a message is marked as evidence.
        evidence: The values that the caller named as evidence, and that the messages contain.
        missing_evidence: Those that the messages do not contain.
        was_sent: Whether a model got the messages.
    """

    flows: Flows
    messages: tuple[ShownMessage, ...]
    has_evidence: bool
    evidence: tuple[str, ...]
    missing_evidence: tuple[str, ...]
    was_sent: bool

    def not_shown(self, item: account.Unseen) -> str:
        """Return how much of an item was not shown, as counted where its tokens are known."""
        for flow in self.flows.items:
            if self.flows.are_exact and flow.id == item.id:
                return f"{flow.returned - flow.shown:,} tokens of it"
        return item.missing


def run_page(
    run: RecordedRun,
    *,
    evidence: Sequence[str] = (),
    returned_tokens: Mapping[str, int] = MappingProxyType({}),
) -> RunPage:
    """Return what the templates of a run show.

    Args:
        run: The run.
        evidence: Values to mark as evidence. Defaults to the values with digits of the answer that
            the question does not have.
        returned_tokens: See `flows`.
    """
    marker = Marker(run.question, evidence or values_of(run.answer_text or "", run.question))
    sent = _sent_messages(run)
    shown = []
    context = []
    for role, content in sent:
        is_context = role not in _INSTRUCTIONS
        if is_context:
            context.append(content)
        label = role or "definition of a tool"
        fragments = marker.fragments(content[:_MAX_MESSAGE_CHARS], are_marked=is_context)
        shown.append(ShownMessage(label, len(content), is_context, fragments))
    # A trace without texts can tell neither, and a single digit is in every text.
    values = [value for value in dict.fromkeys(evidence) if sent and len(value) > 1]
    present = _contained(values, "\n".join(context))
    return RunPage(
        flows=flows(run, returned_tokens=returned_tokens),
        messages=tuple(shown),
        has_evidence=marker.has_evidence,
        evidence=present,
        missing_evidence=tuple(value for value in values if value not in present),
        was_sent=any(not call.is_without_model for call in run.prompts),
    )


def _contained(values: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the values that a text contains."""
    contained = []
    for value in values:
        if re.search(rf"(?<![\w.]){re.escape(value)}(?!\w)", text, re.IGNORECASE):
            contained.append(value)
    return tuple(contained)


def _sent_messages(run: RecordedRun) -> list[Message]:
    """Return the messages of the last prompt, or of the packing if no model was called.

    The list is empty if the trace has no texts.
    """
    for call in reversed(run.prompts):
        if call.prompt.text:
            return messages(call.prompt.text)
    packing = run.sent_packing
    return [Message("packed", packing.text)] if packing and packing.text else []


def messages(prompt: str) -> list[Message]:
    """Return the messages of a recorded prompt, which has a line of JSON for each."""
    # JSON escapes line ends inside a message, so each one here is between two messages.
    return [_parse_message(text) for text in prompt.split("\n")]


def _parse_message(text: str) -> Message:
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:  # the trace cut a long text
        return Message("", text)
    if not isinstance(message, dict):
        return Message("", text)
    role, content = str(message.get("role", "")), message.get("content")
    if isinstance(content, str) and message.keys() == {"role", "content"}:
        return Message(role, content)
    return Message(role, orjson.dumps(message, option=orjson.OPT_INDENT_2).decode())


def totals(run: RecordedRun) -> dict[str, Total]:
    """Return the totals of a run by name. Totals of steps that it did not have are left out."""
    packings, calls, tools = run.of(PackingLine), run.model_calls, run.of(ToolCallLine)
    values = {"Ended": Total("no end"), "Seconds": Total("-")}
    if run.end:
        values = {"Ended": Total(run.end.status), "Seconds": Total(f"{run.end.seconds:.2f}")}
    if packings:
        # A run may pack several times, and its last prompt is the one to explain.
        values["Packed"] = Total(f"{packings[-1].tokens:,}")
    if calls:
        usages = [call.attempt.usage for call in calls if call.attempt.usage]
        sent = sum(usage.prompt_tokens for usage in usages)
        cached = sum(usage.cached_tokens for usage in usages)
        received = sum(usage.completion_tokens for usage in usages)
        from_cache = f"{cached / sent:.0%} from the cache" if cached else ""
        values["Model calls"] = Total(f"{len(calls):,}")
        values["Tokens sent"] = Total(f"{sent:,}", from_cache)
        values["Tokens received"] = Total(f"{received:,}")
        values["Cost"] = Total("unknown")
        if run.known_costs:  # a model without a known price has no cost
            remark = "" if run.cost_usd is not None else "at least"
            values["Cost"] = Total(f"${sum(run.known_costs):.4f}", remark)
    if tools:
        failed = sum(tool.failure is not None for tool in tools)
        values["Tool calls"] = Total(f"{len(tools):,}", f"{failed:,} failed" if failed else "")
    return values


def sent_messages(line: ModelCallLine) -> list[tuple[int, SentMessage, int | None]]:
    """Return the number of each message of a prompt, the message, and an estimate of its tokens.

    The estimate is None if the tokens of the prompt were not counted.
    """
    usage = line.attempt.usage
    total = max(sum(message.bytes for message in line.prompt.messages), 1)
    rows = []
    for number, message in enumerate(line.prompt.messages, 1):
        tokens = None
        if usage and usage.prompt_tokens:
            # Providers count only the whole prompt, so share its tokens by bytes.
            tokens = round(usage.prompt_tokens * message.bytes / total)
        rows.append((number, message, tokens))
    return rows


def exact_text(line: Line) -> str | None:
    """Return the text of a step, or None if the trace does not have it."""
    match line:
        case PackingLine() | AnswerLine():
            return line.text
        case ModelCallLine():
            return line.prompt.text
        case ToolCallLine():
            return line.args
    return None
