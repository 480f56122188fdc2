"""`LexicalRelevanceSelector`: picks stored outputs without a model."""

import asyncio
from collections.abc import Sequence

from llm_common._telemetry import span
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking import Embedder
from llm_common.selection.relevance_ranking import rank_pointers, selection_cap
from llm_common.selection.results import RelevanceSelection, distinct, explained

__all__ = ["LexicalRelevanceSelector"]


class LexicalRelevanceSelector:
    """Picks the pointers that a query needs by full-text ranking and recency (see `rank_pointers`).

    Takes the place of `ContextRelevanceSelector` where no model is at hand. Deterministic; may be shared by tasks.

    Args:
        max_selected: Most pointers to keep; None takes `LLM_COMMON_CONTEXT_SELECTION_MAX_POINTERS`, else 6.
        embedder: Knows which texts mean something alike, such as `StaticVectors` of the extra `embeddings`: worth a few
            hundredths of recall; None ranks without.

    Raises:
        ValueError: `max_selected` is negative.
        ConfigError: The variable does not hold a number.
    """

    def __init__(self, max_selected: int | None = None, *, embedder: Embedder | None = None) -> None:
        self._max_selected = selection_cap(max_selected)
        self._embedder = embedder

    async def select(self, *, query: str, pointers: Sequence[ContextPointer]) -> list[ContextPointer]:
        """The pointers of `select_detailed`, best first."""
        return (await self.select_detailed(query=query, pointers=pointers)).pointers

    async def select_detailed(self, *, query: str, pointers: Sequence[ContextPointer]) -> RelevanceSelection:
        """The best pointers with an account of the choice; runs in a thread, so the event loop stays free.

        Args:
            query: What the next model call is to answer; with the last message of the assistant it ranks better.
            pointers: The candidates.

        Returns:
            At most `max_selected` pointers, best first. None, with the status `empty`, when no candidate shares a word
            with the query: recency alone never chooses.
        """
        candidates = distinct(pointers)
        if not candidates or not self._max_selected:
            return RelevanceSelection(status="no_candidates", used="lexical", choices=explained(candidates, []))
        with span("pointers.select", used="lexical", candidates=len(candidates)) as current:
            ranked = await asyncio.to_thread(rank_pointers, query, candidates, embedder=self._embedder)
            related = ranked if any(entry.matches for entry in ranked) else []
            kept = [entry.pointer for entry in related[: self._max_selected]]
            current.set_attribute("selected", len(kept))
        return RelevanceSelection(
            pointers=kept,
            status="ok" if kept else "empty",
            used="lexical",
            choices=explained(candidates, kept, over_the_cap=[entry.pointer for entry in related[len(kept) :]]),
        )
