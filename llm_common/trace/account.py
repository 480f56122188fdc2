"""Why the model did not see something: what the lines of a run say of it, in sentences."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from llm_common.context.request import FOLDER_STRATEGY
from llm_common.trace.lines import (
    AnswerLine,
    Candidate,
    FoldLine,
    Line,
    ModelCallLine,
    PackedItem,
    PackingLine,
    RunBegin,
    RunEnd,
    SelectionLine,
    ToolCallLine,
)
from llm_common.trace.trace_file import RecordedRun

NEAR_MISSES: Final = 5
_SOURCES: Final = ("project", "file", "memory", "output", "turn")
_CHARS_PER_TOKEN: Final = 4.0  # where nothing was counted
_RULES: Final = {
    "excluded": "A pattern of the request excludes it.",
    "below_cut_off": "It scores {score:.2f}, less than the least that counts.",
    "not_required": "The request does not need items of its kind.",
    "empty": "It is empty.",
    "unavailable": "The store could not load it.",
    "limit_reached": "As many better ones as the limit allows are in.",
}
_KEPT: Final = {
    "newest": "It is one of the newest turns.",
    "mentioned": "The request names it.",
    "pinned": "It is pinned.",
    "share": "It is within the share of its kind.",
}
_PARTS: Final = {
    "turn": ("recent_turns", "turns"),
    "file": ("files", "files and outputs"),
    "output": ("files", "files and outputs"),
    "memory": ("memory", "memories"),
    "project": ("project", "the project"),
}
_DROPS: Final = {
    "malformed": "the reply named no tool, or its arguments were no object",
    "unknown_tool": "no tool has this name",
    "unknown": "no candidate has this id",
    "invalid_args": "its arguments do not fit the tool's schema",
    "unfilled": "the texts do not hold its required arguments",
    "tie": "another tool fits as well",
    "writes": "nothing says that it only reads",
    "repeat": "the same came before",
    "over_limit": "the limit of calls was reached before it",
}


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that the model did not see, or not whole.

    Attributes:
        source: What it is: `turn`, `file`, `memory`, `project`, `output`, `tool`, `messages`.
        id: Its id.
        name: Its path, speaker or tool; "" without one.
        seq: The line that says so.
        why: The reason, as a sentence.
        missing: How much was not shown, in words.
        score: By which it was ranked; None if it was not.
        is_near: Whether it is one of those that came closest.
    """

    source: str
    id: str
    name: str
    seq: int
    why: str
    missing: str
    score: float | None = None
    is_near: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A line, and the lines that belong to it."""

    line: Line
    children: tuple["Node", ...] = ()


def tree(run: RecordedRun) -> tuple[Node, ...]:
    """The run's steps, each with those that happened in it; without the first and the last line."""
    lines = [line for line in run.lines if not isinstance(line, RunBegin | RunEnd)]
    owners = {line.step: line.seq for line in lines if line.step}
    children = defaultdict[int, list[Line]](list)
    for line in lines:
        owner = owners.get(line.parent, 0) if line.step else 0
        if owner != line.seq:
            children[owner].append(line)

    def under(owner: int) -> tuple[Node, ...]:
        own = children.pop(owner, ())  # once: two processes may have used one number
        return tuple(Node(line, under(line.seq) if line.step else ()) for line in own)

    return under(0)


def title(line: Line) -> str:  # noqa: PLR0911 - one a kind
    """What a line says, in one sentence."""
    match line:
        case SelectionLine():
            return _selection_title(line)
        case PackingLine():
            return f"Packed {line.tokens:,} of {line.budget:,} tokens: {packed_counts(line)}"
        case FoldLine():
            parts = len(line.parts) + line.unlisted
            sent = f"{line.messages_sent:,} of {line.messages_given:,} messages, {line.tokens:,} tokens"
            return f"Folded a history to {sent}: {parts:,} parts are behind pointers"
        case ModelCallLine():
            return _call_title(line)
        case ToolCallLine():
            ended = (
                f"failed: {line.failure}" if line.failure else f"{line.result_bytes or 0:,} bytes"
            )
            return f"Called {line.tool}: {ended}"
        case AnswerLine():
            ended = "" if line.status == "ok" else f": {line.status}. {line.problem}"
            return f"Answered from {line.prompt_tokens:,} tokens{ended}"
    return line.kind.replace("_", " ")


def _selection_title(line: SelectionLine) -> str:
    total = len(line.candidates) + line.unlisted
    how = {"model": "a model", "lexical": "the ranking by words"}.get(line.used, line.used)
    if line.status in {"timeout", "invalid", "error"}:
        return f"Choosing {line.of} failed ({line.status}): {line.problem}"
    return f"Chose {len(line.chosen):,} of {total:,} {line.of} by {how}{' (from the cache)' if line.cached else ''}"


def _call_title(line: ModelCallLine) -> str:
    attempt = line.attempt
    usage = attempt.usage
    tokens = (
        f"{usage.prompt_tokens:,} tokens in, {usage.completion_tokens:,} out, " if usage else ""
    )
    ended = (
        f"failed ({attempt.error}, {attempt.reason})"
        if attempt.error
        else f"ended by {line.finish_reason or 'itself'}"
    )
    return f"Asked {attempt.model or 'the default model'}: {tokens}{ended}"


def packed_counts(line: PackingLine) -> str:
    """How many items are whole, in part and out."""
    whole = sum(item.form == "whole" for item in line.items)
    out = sum(item.form == "left_out" for item in line.items) + line.unlisted
    return (
        f"{whole:,} whole, {len(line.items) + line.unlisted - whole - out:,} in part, {out:,} out"
    )


def missing_tokens(item: PackedItem, line: PackingLine) -> int:
    """About how many tokens of an item are not shown, by the tokens of those that are shown whole."""
    whole = [each for each in line.items if each.form == "whole"]
    if not whole:  # parts tell less exactly how long a token is, but better than nothing
        whole = [each for each in line.items if each.chars_shown]
    chars = sum(each.chars_shown for each in whole)
    per_token = chars / max(sum(each.tokens for each in whole), 1) if chars else _CHARS_PER_TOKEN
    return round(max(item.chars - item.chars_shown, 0) / per_token)


def by_source(line: PackingLine) -> dict[str, int]:
    """Return the tokens of each source, then of headings and fences, then those that are free."""
    sums = dict.fromkeys(_SOURCES, 0)
    for item in line.items:
        sums[item.source] += item.tokens
    listed = sum(sums.values())
    sums["marks"] = max(line.tokens - listed, 0)
    sums["free"] = max(line.budget - sum(sums.values()), 0)
    return sums


def near_misses(line: PackingLine) -> list[PackedItem]:
    """The items that only the budget, or a limit, kept out: the best five."""
    able = [
        item
        for item in line.items
        if item.form == "left_out" and item.reason in {"no_room", "limit_reached"}
    ]
    return sorted(able, key=lambda item: -item.score)[:NEAR_MISSES]


def why_in(item: PackedItem) -> str:
    """Why an item of a packing is in."""
    return _KEPT.get(item.reason, f"{item.reason.replace('_', ' ')}.")


def why_out(item: PackedItem, line: PackingLine) -> str:
    """Why an item of a packing is out, or not whole."""
    if item.reason.startswith("same as "):
        return f"It says the same as {item.reason.removeprefix('same as ')}, which is shown."
    about = f"about {missing_tokens(item, line):,} tokens"
    if item.form != "left_out":
        shown = {"pointer": "One line names it", "summary": "Its summary is shown"}.get(
            item.form, "A part is shown"
        )
        return f"{shown}; {about} of it had no room."
    if item.reason in _RULES:
        return _RULES[item.reason].format(score=item.score)
    if item.reason == "no_room":
        free = max(line.budget - line.tokens, 0)
        if line.strategy == FOLDER_STRATEGY:
            best = max(each.score for each in line.items)
            lead = (
                f"files share them by their lead: it scores {item.score:.2f}, the best {best:.2f}"
            )
            return f"No room for a passage of it: {free:,} of {line.budget:,} tokens are free, and {lead}."
        rivals = f" {_rivals(item, line)}" if line.tokens else ""
        return f"No room: it needs {about}, and {free:,} of {line.budget:,} are free.{rivals}"
    return f"{item.reason.replace('_', ' ')}."


def _rivals(item: PackedItem, line: PackingLine) -> str:
    """What went before an item that found no room. Scores compare within a kind, and each kind has a part."""
    part, kinds = _PARTS[item.source]
    tokens = line.allocation.get(part, 0)
    kind = line.intent.replace("_", " ")
    held = f"A {kind} request has {tokens:,} tokens for {kinds}, and what others leave"
    shown = [
        each.score for each in line.items if each.source == item.source and each.form != "left_out"
    ]
    if not shown:
        return f"{held}."
    least = f"others gave more for their tokens, down to a score of {min(shown):.2f}"
    return f"{held}; of its kind, {least}; it scores {item.score:.2f}."


def why_not_chosen(candidate: Candidate, line: SelectionLine) -> str:  # noqa: PLR0911 - one a reason
    """Why a candidate of a selection was not chosen."""
    drop = next((each for each in line.dropped if each.id == candidate.id), None)
    if candidate.reason == "dropped" and drop is not None:
        problems = f": {'; '.join(drop.problems)}" if drop.problems else ""
        return f"Its call was refused: {_DROPS.get(drop.reason, drop.reason)}{problems}."
    if line.status in {"timeout", "invalid", "error"} and not line.chosen:
        return f"Choosing failed ({line.status}), so nothing was chosen: {line.problem or 'no reason was given'}."
    if candidate.reason == "over the cap":
        return f"It fits, but {len(line.chosen)} better ones are the most that are kept."
    if candidate.reason == "not shown":
        return "The model was not shown it: others rank better by their words, and only so many fit in a question."
    if candidate.probability is not None:
        limit = line.limits.get("min_probability", 0.5)
        return f"The model holds it {candidate.probability:.0%} likely to help; more than {limit:.0%} is needed."
    if line.used == "lexical":
        return (
            "It has no word of the question."
            if line.of == "outputs"
            else "Its words do not fit the task best."
        )
    return "The model was shown it and did not choose it."


def unseen(run: RecordedRun) -> list[Unseen]:
    """Everything that the model did not see, or not whole; the nearest misses first, then by score.

    Of an item that several steps chose from, the last one counts.
    """
    found = {key: one for line in run.lines for key, one in _said_by(line)}
    missed = [one for one in found.values() if one is not None]
    return sorted(
        missed,
        key=lambda one: (not one.is_near, one.source == "tool", -(one.score or 0.0), one.seq),
    )


def _said_by(line: Line) -> Iterator[tuple[tuple[str, str], Unseen | None]]:
    """What a line says of each thing: why it is not seen; None if it is."""
    match line:
        case SelectionLine():
            source = line.of.removesuffix("s")
            for each in line.candidates:
                is_chosen = each.reason == "chosen"
                yield (source, each.id), None if is_chosen else _not_chosen(each, line, source)
            names = {each.id for each in line.candidates}
            for drop in line.dropped:
                if drop.id not in names:
                    why = f"The model named it, but {_DROPS.get(drop.reason, drop.reason)}."
                    yield (
                        (source, drop.id),
                        Unseen(source, drop.id, "", line.seq, why, "it does not exist"),
                    )
        case PackingLine():
            near = {(item.source, item.id) for item in near_misses(line)}
            for item in line.items:
                key = item.source, item.id
                is_whole = item.form == "whole" or item.chars_shown >= item.chars > 0
                about = f"about {missing_tokens(item, line):,} tokens"
                missing = about if item.form == "left_out" else f"{about} of it"
                why = why_out(item, line)
                one = Unseen(
                    item.source, item.id, item.name, line.seq, why, missing, item.score, key in near
                )
                yield key, None if is_whole else one
        case ToolCallLine(failure=str(failure)):
            why = f"The tool failed ({failure}), so there is no output."
            yield (
                ("call", f"{line.tool} {line.seq}"),
                Unseen("output", line.tool, "", line.seq, why, "its output"),
            )
        case FoldLine():
            for part in line.parts:
                which = (
                    f"messages {part.first} to {part.last}"
                    if part.last > part.first
                    else f"message {part.first}"
                )
                why = f"The history is over {line.limit_tokens:,} tokens: {which} went behind this pointer."
                one = Unseen(
                    "messages", part.pointer_id, which, line.seq, why, f"{part.tokens:,} tokens"
                )
                yield ("messages", part.pointer_id), one
        case _:
            pass


def _not_chosen(one: Candidate, line: SelectionLine, source: str) -> Unseen:
    size = (
        f"{one.size_bytes or 0:,} bytes" if source == "output" else "its output: it was not called"
    )
    is_near = one.reason == "over the cap"
    score = one.score if one.probability is None else one.probability
    return Unseen(
        source, one.id, one.name, line.seq, why_not_chosen(one, line), size, score, is_near
    )


def verdicts(run: RecordedRun) -> list[str]:
    """What concerns the whole run: how it ended, and what keeps everything from being seen."""
    said = []
    end = run.end
    if end is None:
        said.append("The trace has no end: the run goes on, or its process was killed.")
    elif end.status != "ok":
        said.append(f"The run ended with the status {end.status}.")
    for answer in run.of(AnswerLine):
        if answer.status == "no_data":
            said.append(f"No model was asked for an answer: {answer.problem}")
        elif answer.status != "ok":
            said.append(f"There is no answer ({answer.status}): {answer.problem}")
    said += [
        f"Line {line.seq}: {title(line)}"
        for line in run.of(SelectionLine)
        if line.status in {"timeout", "invalid", "error"}
    ]
    said += [
        f"{line.unlisted:,} more items of line {line.seq} are not listed here."
        for line in _partly_listed(run.lines)
    ]
    said += [
        f"Not weighed in line {line.seq} were {', '.join(f'{count:,} {reason}' for reason, count in each)} files."
        for line in run.of(PackingLine)
        if (each := sorted(line.not_weighed.items()))
    ]
    if end is not None and end.lost:
        said.append(f"{end.lost:,} lines are missing: they had no room, or could not be made.")
    return [*said, *run.notes]


def _partly_listed(lines: Sequence[Line]) -> list[SelectionLine | PackingLine | FoldLine]:
    return [
        line
        for line in lines
        if isinstance(line, SelectionLine | PackingLine | FoldLine) and line.unlisted
    ]
