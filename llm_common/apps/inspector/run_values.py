"""Values for the templates of runs and steps: totals, bars, messages and texts."""

from typing import Final, NamedTuple

import orjson

from llm_common.trace import (
    AnswerLine,
    FoldLine,
    Line,
    ModelCallLine,
    OffloadLine,
    PackedItem,
    PackingLine,
    RecordedRun,
    RunBegin,
    RunEnd,
    ToolCallLine,
    ToolListLine,
    account,
)

BAR_WIDTH: Final = 1_000
"""Width of a bar in its own units. The page scales it."""

MAX_UNSEEN: Final = 500
"""Maximum number of rows in the table of what was left out."""

MAX_FLOWS: Final = 6
"""Number of outputs that are shown before the rest is folded away."""

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
    """A number of a run, with a remark below it."""

    value: str
    detail: str = ""


class Segment(NamedTuple):
    """A part of a budget's bar."""

    source: str
    name: str
    tokens: int
    start: float
    width: float


class SentMessage(NamedTuple):
    """A message of a prompt by its size. `tokens` is an estimate, or None without a count."""

    number: int
    role: str
    bytes: int
    tokens: int | None


class Message(NamedTuple):
    """A message of a prompt. Its content is a text, or JSON if it has more than a text."""

    role: str
    content: str


def totals(run: RecordedRun) -> dict[str, Total]:
    """Return the totals of a run by name. Totals of steps that it did not have are left out."""
    packings, tools = run.of(PackingLine), run.of(ToolCallLine)
    calls = [call for call in run.of(ModelCallLine) if call.attempt.model != account.NO_MODEL]
    values = {"Ended": Total("no end"), "Seconds": Total("-")}
    if run.end:
        values = {"Ended": Total(run.end.status), "Seconds": Total(f"{run.end.seconds:.2f}")}
    if packings:
        # A run may pack several times, and its last prompt is the one to explain.
        last = packings[-1]
        pool = last.tokens + sum(account.missing_tokens(item, last) for item in last.items)
        about = "over" if last.unlisted else "about"
        values["In the prompt"] = Total(f"{last.tokens:,}", f"of {about} {pool:,} tokens")
    if calls:
        usages = [call.attempt.usage for call in calls if call.attempt.usage]
        sent = sum(usage.prompt_tokens for usage in usages)
        cached = sum(usage.cached_tokens for usage in usages)
        received = sum(usage.completion_tokens for usage in usages)
        from_cache = f"{cached / sent:.0%} from the cache" if cached else ""
        values["Model calls"] = Total(f"{len(calls):,}")
        values["Tokens sent"] = Total(f"{sent:,}", from_cache)
        values["Tokens received"] = Total(f"{received:,}")
        costs = [call.attempt.cost_usd for call in calls if call.attempt.cost_usd is not None]
        values["Cost"] = Total("unknown")
        if costs:  # a model without a known price has no cost
            values["Cost"] = Total(
                f"${sum(costs):.4f}", "at least" if len(costs) < len(calls) else ""
            )
    if tools:
        failed = sum(tool.failure is not None for tool in tools)
        values["Tool calls"] = Total(f"{len(tools):,}", f"{failed:,} failed" if failed else "")
    return values


def answer(run: RecordedRun) -> str | None:
    """Return the last answer of a run, or None if the trace does not have its text."""
    answers = run.of(AnswerLine)
    if not answers or account.is_without_model(answers[-1]):
        return None
    return answers[-1].text


def why_no_answer(run: RecordedRun) -> str:
    """Return why a run, or its trace, has no text of an answer, as a sentence."""
    answers = run.of(AnswerLine)
    if answers:
        return _why_no_text(answers[-1])
    if any(isinstance(line, OffloadLine | ToolListLine | FoldLine) for line in run.lines):
        return (
            "Not recorded: a hook or a gateway records what the model sees, and not what it "
            "answers."
        )
    if run.of(ModelCallLine):
        return "No model was asked for an answer. It was asked only what to choose."
    return "No model was asked. The run only chose what a model would see."


def _why_no_text(line: AnswerLine) -> str:
    if account.is_without_model(line):
        return "No model was asked: no endpoint is configured. The prompt was ready to send."
    # The same sentences as in the notes on a run, which leaves them out here.
    sentence = account.answer_problem(line)
    if sentence is None:
        sentence = (
            f"A model answered with {line.text_chars:,} characters. The trace was recorded without "
            "texts."
        )
    return sentence


def steps(run: RecordedRun) -> list[Line]:
    """Return the lines of a run without its first and last line."""
    return [line for line in run.lines if not isinstance(line, RunBegin | RunEnd)]


def segments(line: PackingLine) -> list[Segment]:
    """Return the non-empty parts of a budget in the order of the bar."""
    sums = account.by_source(line)
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
    """Return the items of the prompt, whole or in part."""
    return [item for item in line.items if item.form != "left_out"]


def left_out_items(line: PackingLine) -> list[PackedItem]:
    """Return the items that are not in the prompt."""
    return [item for item in line.items if item.form == "left_out"]


def sent_messages(line: ModelCallLine) -> list[SentMessage]:
    """Return the messages of a prompt, with an estimate of their tokens."""
    usage, messages = line.attempt.usage, line.prompt.messages
    total = max(sum(message.bytes for message in messages), 1)
    rows = []
    for number, message in enumerate(messages, 1):
        tokens = None
        if usage and usage.prompt_tokens:
            # Providers count only the whole prompt, so share its tokens by bytes.
            tokens = round(usage.prompt_tokens * message.bytes / total)
        rows.append(SentMessage(number, message.role, message.bytes, tokens))
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


def has_texts(line: Line) -> bool:
    """Return whether steps of this kind have a text in a trace with `texts=True`."""
    return isinstance(line, PackingLine | ModelCallLine | AnswerLine)


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
