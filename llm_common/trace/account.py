"""Explains a run in sentences: what each line says, and why the model did not see something."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from llm_common.context.request import FOLDER_STRATEGY
from llm_common.trace.lines import (
    OVER_THE_CAP,
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
_SHOWN_FORMS: Final = {"pointer": "One line names it", "summary": "Its summary is shown"}
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


_FAILED: Final = frozenset({"timeout", "invalid", "error"})
_Key = tuple[str, str]


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
    """Return the run's steps, each with those that happened in it.

    Its first and last line are left out.
    """
    lines = [line for line in run.lines if not isinstance(line, RunBegin | RunEnd)]
    owners = {line.step: line.seq for line in lines if line.step}
    children = defaultdict[int, list[Line]](list)
    for line in lines:
        owner = owners.get(line.parent, 0) if line.step else 0
        if owner != line.seq:
            children[owner].append(line)

    def nodes_under(owner: int) -> tuple[Node, ...]:
        lines = children.pop(owner, ())  # once: two processes may have used one number
        return tuple(Node(line, nodes_under(line.seq) if line.step else ()) for line in lines)

    return nodes_under(0)


def title(line: Line) -> str:
    """Return what a line says, in one sentence."""
    match line:
        case SelectionLine():
            sentence = _selection_title(line)
        case PackingLine():
            counts = packed_counts(line)
            sentence = f"Packed {line.tokens:,} of {line.budget:,} tokens: {counts}"
        case FoldLine():
            parts = len(line.parts) + line.unlisted
            sent = f"{line.messages_sent:,} of {line.messages_given:,} messages"
            sentence = (
                f"Folded a history to {sent}, {line.tokens:,} tokens: "
                f"{parts:,} parts are behind pointers"
            )
        case ModelCallLine():
            sentence = _call_title(line)
        case ToolCallLine(failure=str(failure)):
            sentence = f"Called {line.tool}: failed: {failure}"
        case ToolCallLine():
            sentence = f"Called {line.tool}: {line.result_bytes or 0:,} bytes"
        case AnswerLine():
            sentence = f"Answered from {line.prompt_tokens:,} tokens"
            if line.status != "ok":
                sentence += f": {line.status}. {line.problem}"
        case _:
            sentence = line.kind.replace("_", " ")
    return sentence


def _selection_title(line: SelectionLine) -> str:
    if line.status in _FAILED:
        return f"Choosing {line.of} failed ({line.status}): {line.problem}"
    total = len(line.candidates) + line.unlisted
    chooser = {"model": "a model", "lexical": "the ranking by words"}.get(line.used, line.used)
    if line.cached:
        chooser += " (from the cache)"
    return f"Chose {len(line.chosen):,} of {total:,} {line.of} by {chooser}"


def _call_title(line: ModelCallLine) -> str:
    attempt = line.attempt
    sentence = f"Asked {attempt.model or 'the default model'}: "
    if usage := attempt.usage:
        sentence += f"{usage.prompt_tokens:,} tokens in, {usage.completion_tokens:,} out, "
    if attempt.error:
        return f"{sentence}failed ({attempt.error}, {attempt.reason})"
    return f"{sentence}ended by {line.finish_reason or 'itself'}"


def packed_counts(line: PackingLine) -> str:
    """Return how many items are whole, in part and out."""
    total = len(line.items) + line.unlisted
    whole = sum(item.form == "whole" for item in line.items)
    out = sum(item.form == "left_out" for item in line.items) + line.unlisted
    return f"{whole:,} whole, {total - whole - out:,} in part, {out:,} out"


def missing_tokens(item: PackedItem, line: PackingLine) -> int:
    """Estimate the tokens of an item that are not shown, by the tokens of whole items."""
    sample = [other for other in line.items if other.form == "whole"]
    if not sample:  # parts tell less exactly how long a token is, but better than nothing
        sample = [other for other in line.items if other.chars_shown]
    chars_per_token = _CHARS_PER_TOKEN
    if chars := sum(other.chars_shown for other in sample):
        chars_per_token = chars / max(sum(other.tokens for other in sample), 1)
    return round(max(item.chars - item.chars_shown, 0) / chars_per_token)


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
    """Return the five best items that only the budget, or a limit, kept out."""
    left_out = [item for item in line.items if item.form == "left_out"]
    able = [item for item in left_out if item.reason in {"no_room", "limit_reached"}]
    return sorted(able, key=lambda item: -item.score)[:NEAR_MISSES]


def why_in(item: PackedItem) -> str:
    """Return why an item of a packing is in."""
    return _KEPT.get(item.reason, f"{item.reason.replace('_', ' ')}.")


def why_out(item: PackedItem, line: PackingLine) -> str:
    """Return why an item of a packing is out, or not whole."""
    if item.reason.startswith("same as "):
        return f"It says the same as {item.reason.removeprefix('same as ')}, which is shown."
    about = f"about {missing_tokens(item, line):,} tokens"
    if item.form != "left_out":
        part = _SHOWN_FORMS.get(item.form, "A part is shown")
        return f"{part}; {about} of it had no room."
    if item.reason in _RULES:
        return _RULES[item.reason].format(score=item.score)
    if item.reason == "no_room":
        return _why_no_room(item, line, about)
    return f"{item.reason.replace('_', ' ')}."


def _why_no_room(item: PackedItem, line: PackingLine, about: str) -> str:
    """Return what took the room. Scores compare within a kind, and each kind has a part."""
    free = f"{max(line.budget - line.tokens, 0):,}"
    if line.strategy == FOLDER_STRATEGY:
        best = max(other.score for other in line.items)
        return (
            f"No room for a passage of it: {free} of {line.budget:,} tokens are free, and files "
            f"share them by their lead: it scores {item.score:.2f}, the best {best:.2f}."
        )
    sentence = f"No room: it needs {about}, and {free} of {line.budget:,} are free."
    if not line.tokens:
        return sentence
    part, nouns = _PARTS[item.source]
    kind = line.intent.replace("_", " ")
    share = f"{line.allocation.get(part, 0):,} tokens for {nouns}"
    sentence += f" A {kind} request has {share}, and what others leave"
    rivals = [other for other in line.items if other.source == item.source]
    scores = [rival.score for rival in rivals if rival.form != "left_out"]
    if not scores:
        return f"{sentence}."
    return (
        f"{sentence}; of its kind, others gave more for their tokens, down to a score of "
        f"{min(scores):.2f}; it scores {item.score:.2f}."
    )


def why_not_chosen(candidate: Candidate, line: SelectionLine) -> str:  # noqa: PLR0911 - one a reason
    """Return why a candidate of a selection was not chosen."""
    if candidate.reason == "dropped":
        for drop in line.dropped:
            if drop.id == candidate.id:
                problems = f": {'; '.join(drop.problems)}" if drop.problems else ""
                return f"Its call was refused: {_DROPS.get(drop.reason, drop.reason)}{problems}."
    if line.status in _FAILED and not line.chosen:
        problem = line.problem or "no reason was given"
        return f"Choosing failed ({line.status}), so nothing was chosen: {problem}."
    if candidate.reason == OVER_THE_CAP:
        return f"It fits, but {len(line.chosen)} better ones are the most that are kept."
    if candidate.reason == "not shown":
        return (
            "The model was not shown it: others rank better by their words, and only so many fit "
            "in a question."
        )
    if candidate.probability is not None:
        least = line.limits.get("min_probability", 0.5)
        return (
            f"The model holds it {candidate.probability:.0%} likely to help; more than {least:.0%} "
            "is needed."
        )
    if line.used != "lexical":
        return "The model was shown it and did not choose it."
    if line.of == "outputs":
        return "It has no word of the question."
    return "Its words do not fit the task best."


def unseen(run: RecordedRun) -> list[Unseen]:
    """Return what the model did not see, or not whole: the nearest misses first, then by score.

    Of an item that several steps chose from, the last one counts.
    """
    verdict_of: dict[_Key, Unseen | None] = {}
    for line in run.lines:
        verdict_of.update(_verdicts_on_items(line))
    missed = [verdict for verdict in verdict_of.values() if verdict is not None]
    return sorted(
        missed,
        key=lambda item: (not item.is_near, item.source == "tool", -(item.score or 0.0), item.seq),
    )


def _verdicts_on_items(line: Line) -> Iterator[tuple[_Key, Unseen | None]]:
    """Yield the key of each thing that a line tells of, with why it is not seen, None if it is."""
    match line:
        case SelectionLine():
            yield from _of_selection(line)
        case PackingLine():
            yield from _of_packing(line)
        case ToolCallLine(failure=str(failure)):
            why = f"The tool failed ({failure}), so there is no output."
            unseen_output = Unseen("output", line.tool, "", line.seq, why, "its output")
            yield ("call", f"{line.tool} {line.seq}"), unseen_output
        case FoldLine():
            for part in line.parts:
                messages = f"message {part.first}"
                if part.last > part.first:
                    messages = f"messages {part.first} to {part.last}"
                why = (
                    f"The history is over {line.limit_tokens:,} tokens: "
                    f"{messages} went behind this pointer."
                )
                size = f"{part.tokens:,} tokens"
                yield (
                    ("messages", part.pointer_id),
                    Unseen("messages", part.pointer_id, messages, line.seq, why, size),
                )


def _of_selection(line: SelectionLine) -> Iterator[tuple[_Key, Unseen | None]]:
    source = line.of.removesuffix("s")
    for candidate in line.candidates:
        key = source, candidate.id
        if candidate.reason == "chosen":
            yield key, None
            continue
        size = f"{candidate.size_bytes or 0:,} bytes"
        score = candidate.score if candidate.probability is None else candidate.probability
        yield (
            key,
            Unseen(
                source,
                candidate.id,
                candidate.name,
                line.seq,
                why_not_chosen(candidate, line),
                missing=size if source == "output" else "its output: it was not called",
                score=score,
                is_near=candidate.reason == OVER_THE_CAP,
            ),
        )
    names = {candidate.id for candidate in line.candidates}
    for drop in line.dropped:
        if drop.id not in names:
            why = f"The model named it, but {_DROPS.get(drop.reason, drop.reason)}."
            missing = Unseen(source, drop.id, "", line.seq, why, "it does not exist")
            yield (source, drop.id), missing


def _of_packing(line: PackingLine) -> Iterator[tuple[_Key, Unseen | None]]:
    near = {(item.source, item.id) for item in near_misses(line)}
    for item in line.items:
        key = item.source, item.id
        if item.form == "whole" or item.chars_shown >= item.chars > 0:
            yield key, None
            continue
        missing = f"about {missing_tokens(item, line):,} tokens"
        if item.form != "left_out":
            missing += " of it"
        yield (
            key,
            Unseen(
                item.source,
                item.id,
                item.name,
                line.seq,
                why_out(item, line),
                missing,
                item.score,
                is_near=key in near,
            ),
        )


def verdicts(run: RecordedRun) -> list[str]:
    """Return what concerns the whole run: how it ended, and what is not in its lines."""
    failed = [line for line in run.of(SelectionLine) if line.status in _FAILED]
    sentences = _endings(run)
    sentences += [f"Line {line.seq}: {title(line)}" for line in failed]
    for line in run.lines:
        if isinstance(line, SelectionLine | PackingLine | FoldLine) and line.unlisted:
            more = f"{line.unlisted:,} more items of line {line.seq}"
            sentences.append(f"{more} are not listed here.")
    for packing in run.of(PackingLine):
        if packing.not_weighed:
            counts = [
                f"{count:,} {reason}" for reason, count in sorted(packing.not_weighed.items())
            ]
            sentences.append(f"Not weighed in line {packing.seq} were {', '.join(counts)} files.")
    if run.end is not None and run.end.lost:
        lost = f"{run.end.lost:,} lines are missing"
        sentences.append(f"{lost}: they had no room, or could not be made.")
    return [*sentences, *run.notes]


def _endings(run: RecordedRun) -> list[str]:
    """Return how the run and its answers ended, where that was not well."""
    sentences = []
    if run.end is None:
        sentences.append("The trace has no end: the run goes on, or its process was killed.")
    elif run.end.status != "ok":
        sentences.append(f"The run ended with the status {run.end.status}.")
    for answer in run.of(AnswerLine):
        if answer.status == "no_data":
            sentences.append(f"No model was asked for an answer: {answer.problem}")
        elif answer.status != "ok":
            sentences.append(f"There is no answer ({answer.status}): {answer.problem}")
    return sentences
