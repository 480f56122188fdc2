"""Values that the templates of runs and steps show: totals, shares of a budget, exact texts."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import orjson

from llm_common.trace.account import by_source, missing_tokens
from llm_common.trace.lines import (
    AnswerLine,
    Line,
    ModelCallLine,
    PackedItem,
    PackingLine,
    RunBegin,
    RunEnd,
    ToolCallLine,
)
from llm_common.trace.trace_file import RecordedRun

BAR_WIDTH: Final = 1_000
"""Units across a bar, which is drawn as wide as its page."""

MAX_UNSEEN: Final = 500
"""Most things that a page names as not seen."""

FORM_NAMES: Final = {
    "whole": "whole",
    "summary": "summary",
    "passages": "passages",
    "excerpt": "head and tail",
    "pointer": "one line",
    "left_out": "out",
}
_SEGMENT_NAMES: Final = {
    "project": "Project",
    "file": "Files",
    "memory": "Memories",
    "output": "Outputs",
    "turn": "Turns",
    "marks": "Headings and fences",
    "free": "Free",
}


class Total(NamedTuple):
    """A figure of a run, and what there is to say about it."""

    value: str
    detail: str = ""


class Segment(NamedTuple):
    """One part of a budget's bar."""

    source: str
    name: str
    tokens: int
    start: float
    width: float


class SentMessage(NamedTuple):
    """One message of a prompt by its size. `tokens` is about its share. None without a count."""

    number: int
    role: str
    bytes: int
    tokens: int | None


class Message(NamedTuple):
    """One message of a prompt: its text where it has nothing else, otherwise its JSON."""

    role: str
    content: str


def totals(run: RecordedRun) -> dict[str, Total]:
    """Return what a run did, showed and cost, by name, without what it did not do."""
    packings, calls, tools = run.of(PackingLine), run.of(ModelCallLine), run.of(ToolCallLine)
    values = {"Ended": Total("no end"), "Seconds": Total("-")}
    if run.end:
        values = {"Ended": Total(run.end.status), "Seconds": Total(f"{run.end.seconds:.2f}")}
    if packings:
        values["In the prompt"] = _packed(packings[-1])
    if calls:
        usages = [call.attempt.usage for call in calls if call.attempt.usage]
        sent = sum(usage.prompt_tokens for usage in usages)
        cached = sum(usage.cached_tokens for usage in usages)
        from_cache = f"{cached / sent:.0%} from the cache" if cached else ""
        values["Model calls"] = Total(f"{len(calls):,}")
        values["Tokens sent"] = Total(f"{sent:,}", from_cache)
        values["Tokens answered"] = Total(f"{sum(usage.completion_tokens for usage in usages):,}")
        values["Cost"] = _cost([call.attempt.cost_usd for call in calls])
    if tools:
        failed = sum(tool.failure is not None for tool in tools)
        values["Tool calls"] = Total(f"{len(tools):,}", f"{failed:,} failed" if failed else "")
    return values


def _packed(line: PackingLine) -> Total:
    """Return the tokens of a prompt, of those that were there to choose from."""
    pool = line.tokens + sum(missing_tokens(item, line) for item in line.items)
    about = "over" if line.unlisted else "about"
    return Total(f"{line.tokens:,}", f"of {about} {pool:,} tokens")


def _cost(costs: Sequence[float | None]) -> Total:
    known = [cost for cost in costs if cost is not None]
    if not known:
        return Total("unknown")
    return Total(f"${sum(known):.4f}", "at least" if len(known) < len(costs) else "")


def answer(run: RecordedRun) -> str | None:
    """Return the last answer of a run, or None where the trace has no text of one."""
    answers = run.of(AnswerLine)
    return answers[-1].text if answers else None


def steps(run: RecordedRun) -> list[Line]:
    """Return the lines of a run without its begin and end."""
    return [line for line in run.lines if not isinstance(line, RunBegin | RunEnd)]


def segments(line: PackingLine) -> list[Segment]:
    """Return the parts of a budget in the order of the bar, without empty ones."""
    sums = by_source(line)
    scale = BAR_WIDTH / max(sum(sums.values()), 1)
    start = 0.0
    parts = []
    for source, tokens in sums.items():
        width = tokens * scale
        if tokens:
            parts.append(Segment(source, _SEGMENT_NAMES[source], tokens, start, width))
        start += width
    return parts


def shown_items(line: PackingLine) -> list[PackedItem]:
    """Return the items that are in the prompt, whole or in part."""
    return [item for item in line.items if item.form != "left_out"]


def left_out_items(line: PackingLine) -> list[PackedItem]:
    """Return the items that are not in the prompt."""
    return [item for item in line.items if item.form == "left_out"]


def packing_before(line: PackingLine, run: RecordedRun) -> PackingLine | None:
    """Return the packing before this one in the same run, or None for the first."""
    before = None
    for packing in run.of(PackingLine):
        if packing.seq < line.seq:
            before = packing
    return before


def sent_messages(line: ModelCallLine) -> list[SentMessage]:
    """Return the messages of a prompt with about how many tokens each took."""
    usage, messages = line.attempt.usage, line.prompt.messages
    total = max(sum(message.bytes for message in messages), 1)
    rows = []
    for number, message in enumerate(messages, 1):
        tokens = None
        if usage and usage.prompt_tokens:
            tokens = round(usage.prompt_tokens * message.bytes / total)
        rows.append(SentMessage(number, message.role, message.bytes, tokens))
    return rows


def exact_text(line: Line) -> str | None:
    """Return what a step showed, sent or returned, or None where the trace has no text of it."""
    match line:
        case PackingLine() | AnswerLine():
            return line.text
        case ModelCallLine():
            return line.prompt.text
        case ToolCallLine():
            return line.args
    return None


def has_texts(line: Line) -> bool:
    """Tell whether a step of this kind has texts in a trace that was told to hold them."""
    return isinstance(line, PackingLine | ModelCallLine | AnswerLine)


def messages(prompt: str) -> list[Message]:
    """Return the messages of a recorded prompt, which has one on each line."""
    return [_message(text) for text in prompt.split("\n")]


def _message(text: str) -> Message:
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:  # the trace cut it
        return Message("", text)
    if not isinstance(message, dict):
        return Message("", text)
    role, content = str(message.get("role", "")), message.get("content")
    if isinstance(content, str) and message.keys() == {"role", "content"}:
        return Message(role, content)
    return Message(role, orjson.dumps(message, option=orjson.OPT_INDENT_2).decode())
