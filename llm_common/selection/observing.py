"""What a selection tells of itself: a span with ids and scores, a count, and one warning if it failed."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal

from llm_common._metrics import Attribute, measure
from llm_common._telemetry import Span, operation, set_found
from llm_common.selection.results import RelevanceSelection, ToolSelection

_log = logging.getLogger(__name__)

Source = Literal["tool_outputs", "tools"]
_NOUNS: Final[Mapping[Source, str]] = {"tool_outputs": "outputs", "tools": "tools"}


class ObservedSelection:
    """A selection that is being made."""

    def __init__(self, source: Source, current: Span) -> None:
        self._source: Source = source
        self._current = current

    def ends(self, selection: RelevanceSelection | ToolSelection, scores: Mapping[str, float] | None = None) -> None:
        """Tells what was chosen; a failed selection is one warning with its status, its model and the cause.

        Args:
            selection: The whole selection.
            scores: Of a ranking, by id; a decision model's probabilities are taken from the selection.
        """
        if isinstance(selection, ToolSelection):
            known = {choice.tool: choice.probability for choice in selection.choices}
            ids = dict.fromkeys(call.tool for call in selection.calls)
            asked = len(selection.attempts) - bool(selection.choices)  # without the decision model
        else:
            known = {choice.pointer_id: choice.probability for choice in selection.choices}
            ids = dict.fromkeys(pointer.pointer_id for pointer in selection.pointers)
            asked = len(selection.attempts) + (selection.used == "lexical" and selection.failed)
        known |= scores or {}
        facts: dict[str, Attribute] = {
            "gen_ai.data_source.id": self._source,
            "llm_common.selection.status": selection.status,
            "llm_common.selection.used": selection.used,
            "llm_common.selection.fallback": asked > 1,
        }
        for name, value in facts.items():
            self._current.set_attribute(name, value)
        set_found(self._current, {each: known.get(each) for each in ids})
        measure("llm_common.selections", 1, facts)
        if selection.failed:
            self._current.fail(selection.status)
            model = next((attempt.model for attempt in reversed(selection.attempts) if attempt.model), "not known")
            noun, problem = _NOUNS[self._source], selection.problem
            _log.warning("no %s were chosen: status %s, model %s: %s", noun, selection.status, model, problem)


@contextmanager
def retrieval(
    source: Source, *, candidates: int | None = None, max_selected: int | None = None
) -> Iterator[ObservedSelection]:
    """A `retrieval` operation for the duration of a selection.

    Args:
        source: What is chosen from.
        candidates: How many there are, if that is known.
        max_selected: Most that may be chosen, likewise.
    """
    facts: dict[str, Attribute] = {"gen_ai.data_source.id": source}
    facts |= {} if candidates is None else {"llm_common.retrieval.candidates": candidates}
    facts |= {} if max_selected is None else {"gen_ai.retrieval.top_k": max_selected}
    with operation("retrieval", source, facts) as current:
        yield ObservedSelection(source, current)
