"""How much each output of a run returned, and how much of it a prompt showed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import orjson

from llm_common.text import one_line, stable_json
from llm_common.trace import (
    ModelCallLine,
    OffloadLine,
    PackingLine,
    RecordedRun,
    SelectionLine,
    ToolCallLine,
    account,
)

FORM_NAMES: Final = {
    "whole": "whole",
    "summary": "summary",
    "passages": "in part",
    "excerpt": "head and tail",
    "pointer": "one line",
    "left_out": "left out",
}
_OFFLOAD_FORMS: Final = {
    "whole": "whole",
    "preview": "preview",
    "identical": "same as before",
    "changed": "changes only",
    "not stored": "not stored",
}
_MAX_LABEL_CHARS: Final = 120


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


def labels(run: RecordedRun) -> dict[str, str]:
    """Return a label of each output by its id: the tool, then the arguments.

    The arguments are known if the trace has texts. Otherwise the label is the tool.
    """
    names: dict[str, str] = {}
    for line in run.lines:
        match line:
            case ToolCallLine(pointer_id=str(pointer_id)):
                names[pointer_id] = call_label(line.tool, line.args)
            case SelectionLine(of="outputs"):
                for candidate in line.candidates:
                    names.setdefault(candidate.id, candidate.text or candidate.name)
            case OffloadLine(pointer_id=str(pointer_id)):
                names.setdefault(pointer_id, line.tool)
    return names


def call_label(tool: str, args: str | None) -> str:
    """Return a tool with its arguments on one line, such as `get_prices ticker=MSFT`.

    Args:
        tool: Name of the tool.
        args: The arguments as JSON, or None if they are unknown.
    """
    parts = [tool]
    try:
        values = orjson.loads(args or "{}")
    except orjson.JSONDecodeError:  # the trace cut long arguments
        values = {"": args}
    for name, value in values.items() if isinstance(values, dict) else ():
        text = value if isinstance(value, str) else stable_json(value)
        parts.append(f"{name}={text}" if name else text)
    return one_line(" ".join(parts), max_chars=_MAX_LABEL_CHARS)


def sent_packing(run: RecordedRun) -> PackingLine | None:
    """Return the packing that the last prompt was made from, or None if the run packed nothing.

    A prompt that is too long is packed again under a smaller budget, so the last packing before the
    last model call counts.
    """
    packings = run.of(PackingLine)
    calls = answer_calls(run)
    if calls:
        packings = [line for line in packings if line.seq < calls[-1].seq] or packings
    return packings[-1] if packings else None


def answer_calls(run: RecordedRun) -> list[ModelCallLine]:
    """Return the model calls that do not belong to a selection."""
    selections = {line.step for line in run.of(SelectionLine) if line.step}
    return [line for line in run.of(ModelCallLine) if line.parent not in selections]


def flows(run: RecordedRun, *, returned_tokens: Mapping[str, int] = MappingProxyType({})) -> Flows:
    """Return how much each output of a run returned, and how much of it a prompt showed.

    Args:
        run: The run.
        returned_tokens: Tokens of whole outputs by pointer id, where the caller has counted them.
            The others are estimated by their length.
    """
    packing = sent_packing(run)
    names = labels(run)
    items = _offloaded(run, names) if packing is None else _packed(packing, names)
    # Outputs of calls that no packing and no preview names never reached a prompt.
    known_ids = {item.id for item in items}
    for call in run.of(ToolCallLine):
        if call.pointer_id and call.pointer_id not in known_ids:
            returned = round((call.result_bytes or 0) / account.CHARS_PER_TOKEN)
            label = names[call.pointer_id]
            items.append(Flow(label, call.pointer_id, "output", returned, 0, "left out"))
    counted = [
        replace(item, returned=returned_tokens.get(item.id, item.returned)) for item in items
    ]
    counted.sort(key=lambda item: (-item.shown, -item.returned))
    are_exact = bool(items) and all(item.id in returned_tokens for item in items)
    return Flows(tuple(counted), are_exact)


def _packed(packing: PackingLine, names: dict[str, str]) -> list[Flow]:
    items = []
    for item in packing.items:
        # Turns are short and many, and the prompt has them in full.
        if item.source == "turn":
            continue
        label = names.get(item.id) or item.name or item.id
        item_id = "" if label == item.id else item.id
        form = FORM_NAMES[item.form]
        returned = item.tokens + account.missing_tokens(item, packing)
        items.append(Flow(label, item_id, item.source, returned, item.tokens, form))
    return items


def _offloaded(run: RecordedRun, names: dict[str, str]) -> list[Flow]:
    items = []
    for line in run.of(OffloadLine):
        item_id = line.pointer_id or ""
        label = names.get(item_id, line.tool)
        returned = round(line.total_chars / account.CHARS_PER_TOKEN)
        shown = round(min(line.shown_chars, line.total_chars) / account.CHARS_PER_TOKEN)
        form = _OFFLOAD_FORMS[line.outcome]
        items.append(Flow(label, item_id, "output", returned, shown, form))
    return items
