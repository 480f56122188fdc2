"""Explains a run in sentences: a title for each line, and why something was left out."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from llm_common.context.request import FOLDER_STRATEGY
from llm_common.trace.amounts import call_label, missing_tokens
from llm_common.trace.lines import (
    OVER_THE_CAP,
    AnswerLine,
    Candidate,
    FoldLine,
    Line,
    ModelCallLine,
    OffloadLine,
    PackedItem,
    PackingLine,
    ReadBackLine,
    RunBegin,
    RunEnd,
    SelectionLine,
    ToolCallLine,
    ToolListLine,
)
from llm_common.trace.run import RecordedRun

__all__ = [
    "Node",
    "Unseen",
    "near_misses",
    "title",
    "tree",
    "unseen",
    "verdicts",
    "why_in",
    "why_no_answer",
    "why_not_chosen",
    "why_out",
]

NEAR_MISSES: Final = 5

_RULES: Final = {
    "excluded": "A pattern of the request excludes it.",
    "below_cut_off": "Its score of {score:.2f} is below the minimum.",
    "poor_match": "Passages of other files match the request far better.",
    "not_required": "The request does not need items of this kind.",
    "empty": "It is empty.",
    "unavailable": "The store could not load it.",
    "limit_reached": "Better items filled the limit for its kind.",
}
_PACKED: Final = {
    "newest": "It is one of the newest turns.",
    "mentioned": "The request names it.",
    "pinned": "It is pinned.",
    "share": "It is within the share of its kind.",
}
_SHOWN_FORMS: Final = {"pointer": "One line names it", "summary": "Its summary is shown"}
# The part of the allocation that a source draws from, and its name in a sentence.
_PARTS: Final = {
    "turn": ("recent_turns", "turns"),
    "file": ("files", "files and outputs"),
    "output": ("files", "files and outputs"),
    "memory": ("memory", "memories"),
    "project": ("project", "the project"),
}
_OFFLOADED: Final = {
    "preview": "It is longer than a result that stays whole. A preview is shown, and it can be "
    "read.",
    "identical": "It is the same as an output of this call that the prompt shows further up.",
    "changed": "Only what differs from the earlier output of this call is shown. It can be read.",
    "not stored": "The store failed. The beginning and end are shown, and the rest is not kept.",
}
_DROPS: Final = {
    "malformed": "the reply named no tool, or its arguments were not an object",
    "unknown_tool": "no tool has this name",
    "unknown": "no candidate has this id",
    "invalid_args": "its arguments do not fit the tool's schema",
    "unfilled": "the texts do not contain its required arguments",
    "unread": "the request states more than its arguments",
    "tie": "another tool fits equally well",
    "writes": "the tool is not marked read-only",
    "repeat": "an earlier entry is the same",
    "over_limit": "the limit of calls was reached",
}
_FAILED: Final = frozenset({"timeout", "invalid", "error"})
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Unseen:
    """An item that the model did not see, or saw in part.

    Attributes:
        source: Its kind: `turn`, `file`, `memory`, `project`, `output`, `tool`, `messages`.
        id: Its id.
        name: Its path, speaker or tool, or an empty text.
        seq: Number of the line that explains it.
        why: The reason, as a sentence.
        missing: How much was not shown, in words.
        score: The score by which it was ranked. None if it was not ranked.
        is_near: Whether it is a near miss.
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
    """A line with the lines that were recorded inside its step."""

    line: Line
    children: tuple["Node", ...] = ()


def tree(run: RecordedRun) -> tuple[Node, ...]:
    """Return the run's lines as a tree, without its first and last line.

    A line that belongs to no step, or to a step that was not recorded, is at the top.
    """
    lines = [line for line in run.lines if not isinstance(line, RunBegin | RunEnd)]
    owners = {line.step: line.seq for line in lines if line.step}
    children = defaultdict[int, list[Line]](list)
    for line in lines:
        owner = owners.get(line.parent, 0) if line.step else 0
        if owner != line.seq:
            children[owner].append(line)

    def nodes_under(owner: int) -> tuple[Node, ...]:
        nodes = []
        # `pop` ends circles: a forked child continues with the same step numbers.
        for line in children.pop(owner, ()):
            nodes.append(Node(line, nodes_under(line.seq) if line.step else ()))
        return tuple(nodes)

    return nodes_under(0)


def title(  # noqa: C901 - one case a kind
    line: Line, labels: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return one sentence about a line.

    Args:
        line: The line.
        labels: Labels of outputs by pointer id. An output without one has the name of its tool.
    """
    match line:
        case SelectionLine():
            sentence = _selection_title(line)
        case PackingLine():
            forms = [item.form for item in line.items]
            whole = forms.count("whole")
            out = forms.count("left_out") + line.unlisted
            in_part = len(forms) + line.unlisted - whole - out
            sentence = f"Packed {line.tokens:,} of {line.budget:,} tokens: "
            sentence += f"{whole:,} whole, {in_part:,} in part, {out:,} out"
        case FoldLine():
            parts = len(line.parts) + line.unlisted
            sentence = (
                f"Folded a history to {line.messages_sent:,} of {line.messages_given:,} messages, "
                f"{line.tokens:,} tokens: {parts:,} parts are behind pointers"
            )
        case OffloadLine():
            sentence = _offload_title(line, labels.get(line.pointer_id or "", line.tool))
        case ToolListLine():
            tools = len(line.shown) + len(line.hidden) + line.unlisted
            sentence = f"Showed {len(line.shown):,} of {tools:,} tools, "
            sentence += f"{line.tokens:,} of {line.limit_tokens:,} tokens"
        case ReadBackLine():
            sentence = _read_back_title(line)
        case ModelCallLine():
            sentence = _call_title(line)
        case ToolCallLine(failure=str(failure)):
            sentence = f"Called {call_label(line)}: failed: {failure}"
        case ToolCallLine():
            sentence = f"Called {call_label(line)}: {line.result_bytes or 0:,} bytes"
        case AnswerLine():
            sentence = _answer_title(line)
        case _:
            sentence = line.kind.replace("_", " ")
    return sentence


def _selection_title(line: SelectionLine) -> str:
    if line.status in _FAILED:
        return f"Choosing {line.of} failed ({line.status}): {line.problem}"
    total = len(line.candidates) + line.unlisted
    chooser = {"model": "a model", "lexical": "word ranking"}.get(line.used, line.used)
    return f"Chose {len(line.chosen):,} of {total:,} {line.of} by {chooser}"


def _offload_title(line: OffloadLine, label: str) -> str:
    size = f"{line.total_chars:,} characters of {label}"
    if line.outcome == "whole":
        return f"Showed all {size}"
    shown = f"showed {line.shown_chars:,}"
    if line.outcome == "not stored":
        return f"Could not store {size}, {shown}"
    return f"Stored {size} as {line.pointer_id}, {shown}"


def _read_back_title(line: ReadBackLine) -> str:
    what = f"Called {line.tool}"
    if line.tool is None:
        part = f" by {', '.join(line.parts)}" if line.parts else ""
        what = f"Read {line.pointer_id}{part}"
    if line.failure:
        return f"{what}: failed: {line.failure}"
    return f"{what}: {line.chars:,} characters"


def _call_title(line: ModelCallLine) -> str:
    attempt = line.attempt
    if line.is_without_model:
        tokens = attempt.usage.prompt_tokens if attempt.usage else 0
        # A client that asks no model may not have counted the prompt.
        size = f" of {tokens:,} tokens" if tokens else ""
        return f"Asked no model: the prompt{size} was ready to send"
    sentence = f"Called {attempt.model or 'the default model'}: "
    if usage := attempt.usage:
        sentence += f"{usage.prompt_tokens:,} tokens in, {usage.completion_tokens:,} out, "
    if attempt.error:
        return f"{sentence}failed ({attempt.error}, {attempt.reason})"
    return f"{sentence}finish reason {line.finish_reason or 'unknown'}"


def _answer_title(line: AnswerLine) -> str:
    if line.is_without_model:
        return f"Built a prompt of {line.prompt_tokens:,} tokens for no model"
    sentence = f"Answered from {line.prompt_tokens:,} tokens"
    if line.status != "ok":
        sentence += f": {line.status}. {line.problem}"
    return sentence


def near_misses(line: PackingLine) -> list[PackedItem]:
    """Return the five best items that were left out only by the budget or a limit."""
    candidates = []
    for item in line.items:
        # The other reasons leave an item out, however large the budget is.
        if item.form == "left_out" and item.reason in {"no_room", "limit_reached"}:
            candidates.append(item)
    return sorted(candidates, key=lambda item: -item.score)[:NEAR_MISSES]


def why_in(item: PackedItem) -> str:
    """Return why an item is in the prompt."""
    return _PACKED.get(item.reason, f"{item.reason.replace('_', ' ')}.")


def why_out(item: PackedItem, line: PackingLine) -> str:
    """Return why an item is not in the prompt, or only in part."""
    if item.reason.startswith("same as "):
        return f"It has the same text as {item.reason.removeprefix('same as ')}, which is shown."
    if item.form != "left_out":
        part = _SHOWN_FORMS.get(item.form, "A part is shown")
        reason = "did not fit"
        if line.strategy == FOLDER_STRATEGY:
            reason += ", or matches far less than the best part"
        return f"{part}. The rest {reason}."
    if item.reason in _RULES:
        return _RULES[item.reason].format(score=item.score)
    if item.reason == "no_room":
        return _why_no_room(item, line)
    return f"{item.reason.replace('_', ' ')}."


def _why_no_room(item: PackedItem, line: PackingLine) -> str:
    """Return what used the budget instead of an item."""
    free = f"{max(line.budget - line.tokens, 0):,}"
    if line.strategy == FOLDER_STRATEGY:
        best = max(rival.score for rival in line.items)
        return (
            f"No passage of it fits: {free} of {line.budget:,} tokens are free. Files share them "
            f"by score. It scores {item.score:.2f}, the best file {best:.2f}."
        )
    sentence = (
        f"It does not fit: it needs about {missing_tokens(item, line):,} tokens, "
        f"and {free} of {line.budget:,} are free."
    )
    # Nothing was packed, so no other item took its tokens.
    if not line.tokens:
        return sentence
    part, nouns = _PARTS[item.source]
    kind = line.intent.replace("_", " ")
    share = f"{line.allocation.get(part, 0):,} tokens for {nouns}"
    sentence += f" A request of the type {kind!r} reserves {share}, plus what other kinds leave."
    # Only scores of the same kind compare: each kind has a formula and a share.
    scores = []
    for rival in line.items:
        if rival.source == item.source and rival.form != "left_out":
            scores.append(rival.score)
    if scores:
        sentence += (
            f" Items with more score for their tokens used them. The lowest of these scored "
            f"{min(scores):.2f}, and this one {item.score:.2f}."
        )
    return sentence


def why_not_chosen(candidate: Candidate, line: SelectionLine) -> str:  # noqa: PLR0911 - one a reason
    """Return why a candidate of a selection was not chosen."""
    # The most specific reason first: a refused call also has a status.
    if candidate.reason == "dropped":
        for drop in line.dropped:
            if drop.id == candidate.id:
                problems = f": {'; '.join(drop.problems)}" if drop.problems else ""
                return f"Its call was refused: {_DROPS.get(drop.reason, drop.reason)}{problems}."
    # With `fail_closed=False` the word ranking chose something after a failed call.
    if line.status in _FAILED and not line.chosen:
        problem = line.problem or "no reason was recorded"
        return f"Choosing failed ({line.status}), so nothing was chosen: {problem}."
    if candidate.reason == OVER_THE_CAP:
        return f"It matches, but better candidates filled the limit of {len(line.chosen)}."
    if candidate.reason == "not shown":
        return (
            "The model did not see it: the catalogue in the question is limited, and other tools "
            "rank higher by words."
        )
    if line.used != "lexical":
        return "The model saw it and did not choose it."
    if line.of == "outputs":
        return "It has no word of the question."
    return "Another tool matches the words of the task better."


def unseen(run: RecordedRun) -> list[Unseen]:
    """Return the items that the model did not see, or saw in part.

    Near misses come first, then outputs and items by score, then tools. If several steps chose
    from an item, the last step counts.
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
    """Yield the key of each item of a line, with why it was left out, or None if it was not."""
    match line:
        case SelectionLine():
            yield from _verdicts_of_selection(line)
        case PackingLine():
            yield from _verdicts_of_packing(line)
        case ToolCallLine(failure=str(failure)):
            why = f"The tool failed ({failure}), so there is no output."
            unseen_output = Unseen("output", line.tool, "", line.seq, why, "its output")
            # By line too, since a tool can fail several times.
            yield ("call", f"{line.tool} {line.seq}"), unseen_output
        case OffloadLine():
            key = "output", line.pointer_id or f"{line.tool} {line.seq}"
            yield key, _verdict_of_offload(line)
        case ToolListLine():
            yield from _verdicts_of_tool_list(line)
        case FoldLine():
            yield from _verdicts_of_fold(line)


def _verdicts_of_tool_list(line: ToolListLine) -> Iterator[tuple[_Key, Unseen | None]]:
    for name in line.shown:
        yield ("tool", name), None
    why = (
        f"The definitions of all tools exceed {line.limit_tokens:,} tokens, and others fit the "
        "conversation better."
    )
    for name in line.hidden:
        yield ("tool", name), Unseen("tool", name, "", line.seq, why, "its definition")


def _verdicts_of_fold(line: FoldLine) -> Iterator[tuple[_Key, Unseen | None]]:
    for part in line.parts:
        messages = f"message {part.first}"
        if part.last > part.first:
            messages = f"messages {part.first} to {part.last}"
        why = (
            f"The history is over {line.limit_tokens:,} tokens: "
            f"{messages} moved behind this pointer."
        )
        size = f"{part.tokens:,} tokens"
        unseen_part = Unseen("messages", part.pointer_id, messages, line.seq, why, size)
        yield ("messages", part.pointer_id), unseen_part


def _verdict_of_offload(line: OffloadLine) -> Unseen | None:
    if line.outcome == "whole":
        return None
    missing = f"{max(line.total_chars - line.shown_chars, 0):,} characters"
    why = _OFFLOADED[line.outcome]
    return Unseen("output", line.pointer_id or line.tool, line.tool, line.seq, why, missing)


def _verdicts_of_selection(line: SelectionLine) -> Iterator[tuple[_Key, Unseen | None]]:
    source = line.of.removesuffix("s")
    for candidate in line.candidates:
        key = source, candidate.id
        if candidate.reason == "chosen":
            yield key, None
            continue
        missing = "its output: it was not called"
        if source == "output":
            missing = f"{candidate.size_bytes or 0:,} bytes"
        unseen_candidate = Unseen(
            source,
            candidate.id,
            candidate.name,
            line.seq,
            why_not_chosen(candidate, line),
            missing,
            candidate.score,
            is_near=candidate.reason == OVER_THE_CAP,
        )
        yield key, unseen_candidate
    candidate_ids = {candidate.id for candidate in line.candidates}
    for drop in line.dropped:
        if drop.id not in candidate_ids:
            why = f"The model named it, but {_DROPS.get(drop.reason, drop.reason)}."
            # The model made this name up, so it is not a candidate.
            unknown = Unseen(source, drop.id, "", line.seq, why, "it does not exist")
            yield (source, drop.id), unknown


def _verdicts_of_packing(line: PackingLine) -> Iterator[tuple[_Key, Unseen | None]]:
    near_keys = {(item.source, item.id) for item in near_misses(line)}
    for item in line.items:
        key = item.source, item.id
        # Passages can cover the whole text.
        if item.form == "whole" or item.chars_shown >= item.chars > 0:
            yield key, None
            continue
        missing = f"about {missing_tokens(item, line):,} tokens"
        if item.form != "left_out":
            missing += " of it"
        unseen_item = Unseen(
            item.source,
            item.id,
            item.name,
            line.seq,
            why_out(item, line),
            missing,
            item.score,
            is_near=key in near_keys,
        )
        yield key, unseen_item


def verdicts(run: RecordedRun) -> list[str]:
    """Return sentences about the whole run: how it ended, and what its lines omit."""
    sentences = _endings(run)
    for selection in run.of(SelectionLine):
        if selection.status in _FAILED:
            sentences.append(f"Step {selection.seq}: {title(selection)}")
    for line in run.lines:
        if isinstance(line, SelectionLine | PackingLine | FoldLine) and line.unlisted:
            more = f"{line.unlisted:,} more items of step {line.seq}"
            sentences.append(f"{more} are not listed.")
    for packing in run.of(PackingLine):
        if packing.not_weighed:
            counts = [
                f"{count:,} {reason}" for reason, count in sorted(packing.not_weighed.items())
            ]
            sentences.append(f"Step {packing.seq} skipped {', '.join(counts)} files.")
    if run.end is not None and run.end.lost:
        sentences.append(
            f"{run.end.lost:,} lines are missing: the file was full, or they could not be encoded."
        )
    return [*sentences, *run.notes]


def _endings(run: RecordedRun) -> list[str]:
    """Return how the run and its answers ended, unless all went well."""
    sentences = []
    if run.end is None:
        sentences.append("The trace has no end: the run is not over, or its process was killed.")
    elif run.end.status != "ok":
        sentences.append(f"The run ended with the status {run.end.status}.")
    problems = map(_answer_problem, run.of(AnswerLine))
    return [*sentences, *filter(None, problems)]


def _answer_problem(line: AnswerLine) -> str | None:
    """Return why there is no answer, as a sentence, or None if there is one."""
    if line.status == "ok":
        return None
    if line.status == "no_data":
        return f"No model was called for an answer: {line.problem}"
    return f"There is no answer ({line.status}): {line.problem}"


def why_no_answer(run: RecordedRun) -> str:
    """Return why a run, or its trace, has no text of an answer, as a sentence."""
    line = run.answer
    if line is not None:
        if line.is_without_model:
            return "No model was asked: no endpoint is configured. The prompt was ready to send."
        # The same sentences as in `verdicts`, from which a page leaves them out.
        return _answer_problem(line) or (
            f"A model answered with {line.text_chars:,} characters. The trace was recorded without "
            "texts."
        )
    if any(isinstance(line, OffloadLine | ToolListLine | FoldLine) for line in run.lines):
        return (
            "Not recorded: a hook or a gateway records what the model sees, and not what it "
            "answers."
        )
    if run.of(ModelCallLine):
        return "No model was asked for an answer. It was asked only what to choose."
    return "No model was asked. The run only chose what a model would see."
