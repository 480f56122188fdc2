"""How many tokens a run had, how many a prompt showed, and what used a budget."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson

from llm_common.pointers.pointer import summary_line
from llm_common.text.display import one_line
from llm_common.trace.lines import (
    OffloadLine,
    PackedItem,
    PackingLine,
    SelectionLine,
    ToolCallLine,
)
from llm_common.trace.run import RecordedRun

FORM_NAMES: Final = {
    "whole": "whole",
    "summary": "summary",
    "passages": "in part",
    "excerpt": "head and tail",
    "pointer": "one line",
    "left_out": "left out",
    "preview": "preview",
    "identical": "same as before",
    "changed": "changes only",
    "not stored": "not stored",
}
"""The forms of packed items and of offloaded results, in words."""

_CHARS_PER_TOKEN: Final = 4.0  # of English text, where a trace has nothing to measure by
_SOURCES: Final = ("project", "file", "memory", "output", "turn")
_MAX_LABEL_CHARS: Final = 120


class Share(NamedTuple):
    """A part of a budget, and its place on a bar."""

    source: str
    tokens: int
    start: int
    width: int


@dataclass(frozen=True, slots=True)
class Flow:
    """An output, or another item of the pool, with its tokens before and after the choice.

    Attributes:
        label: Its call with the arguments, or its name.
        id: Its id, or an empty text if the label says it.
        source: Its kind, such as `output`.
        returned: Tokens of the whole. An estimate, unless the caller knows them.
        shown: Tokens in the prompt.
        form: In which form it is shown, in words.
    """

    label: str
    id: str
    source: str
    returned: int
    shown: int
    form: str


@dataclass(frozen=True, slots=True)
class Flows:
    """The outputs of a run, those with the most tokens in the prompt first.

    Attributes:
        items: The outputs.
        are_exact: Whether the caller counted the tokens of every output.
    """

    items: tuple[Flow, ...]
    are_exact: bool = False

    @property
    def returned(self) -> int:
        """Return the tokens of all items."""
        return sum(item.returned for item in self.items)

    @property
    def shown(self) -> int:
        """Return the tokens in the prompt."""
        return sum(item.shown for item in self.items)

    @property
    def are_outputs(self) -> bool:
        """Return whether tools returned the items."""
        return any(item.source == "output" for item in self.items)


def missing_tokens(item: PackedItem, line: PackingLine) -> int:
    """Estimate the tokens of an item that are not shown, by the length of shown tokens."""
    sample = [shown_item for shown_item in line.items if shown_item.form == "whole"]
    if not sample:  # tokens of parts include marks, so they tell the length less exactly
        sample = [shown_item for shown_item in line.items if shown_item.chars_shown]
    chars_per_token = _CHARS_PER_TOKEN
    if chars := sum(shown_item.chars_shown for shown_item in sample):
        chars_per_token = chars / max(sum(shown_item.tokens for shown_item in sample), 1)
    return round(max(item.chars - item.chars_shown, 0) / chars_per_token)


def shares(line: PackingLine, width: int) -> list[Share]:
    """Divide a bar among the sources, headings and fences, and the free part of a budget.

    Parts without tokens are left out.
    """
    sums = dict.fromkeys(_SOURCES, 0)
    for item in line.items:
        sums[item.source] += item.tokens
    listed = sum(sums.values())
    # Includes the tokens of shown items over `MAX_LISTED`, which the line does not have.
    sums["marks"] = max(line.tokens - listed, 0)
    sums["free"] = max(line.budget - sum(sums.values()), 0)
    total = max(sum(sums.values()), 1)
    parts = []
    tokens_before = start = 0
    for source, tokens in sums.items():
        # Cumulative sums are rounded, not widths, so that the parts always fill the bar.
        tokens_before += tokens
        end = round(tokens_before * width / total)
        if tokens:
            parts.append(Share(source, tokens, start, end - start))
        start = end
    return parts


def labels(run: RecordedRun) -> dict[str, str]:
    """Return a label of each output by its id: the tool, then the arguments.

    The arguments are known if the trace has texts. Otherwise the label is the tool.
    """
    names: dict[str, str] = {}
    for line in run.lines:
        match line:
            case ToolCallLine(pointer_id=str(pointer_id)):
                names[pointer_id] = call_label(line)
            case SelectionLine(of="outputs"):
                for candidate in line.candidates:
                    names.setdefault(candidate.id, candidate.text or candidate.name)
            case OffloadLine(pointer_id=str(pointer_id)):
                names.setdefault(pointer_id, line.tool)
    return names


def call_label(call: ToolCallLine) -> str:
    """Return a tool with its arguments on one line, such as `get_prices ticker=MSFT`."""
    label = f"{call.tool} {call.args}"
    with suppress(orjson.JSONDecodeError):  # the trace cut long arguments
        args = orjson.loads(call.args or "{}")
        if isinstance(args, dict):
            label = summary_line(tool_name=call.tool, args=args)
    return one_line(label, max_chars=_MAX_LABEL_CHARS)


def flows(run: RecordedRun, *, returned_tokens: Mapping[str, int] = MappingProxyType({})) -> Flows:
    """Return how much each output of a run returned, and how much of it a prompt showed.

    Args:
        run: The run.
        returned_tokens: Tokens of whole outputs by pointer id, where the caller has counted them.
            The others are estimated by their length.
    """
    packing = run.sent_packing
    names = labels(run)
    items = [*(_offloaded(run, names) if packing is None else _packed(packing, names))]
    # Outputs of calls that no packing and no preview names never reached a prompt.
    known_ids = {item.id for item in items}
    for call in run.of(ToolCallLine):
        if call.pointer_id and call.pointer_id not in known_ids:
            returned = round((call.result_bytes or 0) / _CHARS_PER_TOKEN)
            label = names[call.pointer_id]
            items.append(Flow(label, call.pointer_id, "output", returned, 0, "left out"))
    counted = [
        replace(item, returned=returned_tokens.get(item.id, item.returned)) for item in items
    ]
    counted.sort(key=lambda item: (-item.shown, -item.returned))
    are_exact = bool(items) and all(item.id in returned_tokens for item in items)
    return Flows(tuple(counted), are_exact)


def _packed(packing: PackingLine, names: Mapping[str, str]) -> Iterator[Flow]:
    for item in packing.items:
        # Turns are short and many, and the prompt has them in full.
        if item.source == "turn":
            continue
        label = names.get(item.id) or item.name or item.id
        item_id = "" if label == item.id else item.id
        returned = item.tokens + missing_tokens(item, packing)
        form = FORM_NAMES[item.form]
        yield Flow(label, item_id, item.source, returned, item.tokens, form)


def _offloaded(run: RecordedRun, names: Mapping[str, str]) -> Iterator[Flow]:
    for line in run.of(OffloadLine):
        item_id = line.pointer_id or ""
        label = names.get(item_id, line.tool)
        returned = round(line.total_chars / _CHARS_PER_TOKEN)
        shown = round(min(line.shown_chars, line.total_chars) / _CHARS_PER_TOKEN)
        yield Flow(label, item_id, "output", returned, shown, FORM_NAMES[line.outcome])
