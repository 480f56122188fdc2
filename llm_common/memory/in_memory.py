"""`InMemoryMemory`: events in a dictionary, for tests and for sessions that need no file."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Self

from llm_common.memory.protocol import (
    SUMMARISED_EVENTS,
    Event,
    MemoryFilters,
    MemoryHit,
    Summariser,
    check_event,
    check_limit,
    check_search,
    summarised,
)
from llm_common.memory.recall import INDEXED_CHARS, MAX_MATCHES, best_lines, event_tags, filter_tags, shortlist
from llm_common.ranking import query_terms


@dataclass(frozen=True, slots=True)
class _Line:
    event: Event
    tags: frozenset[str]
    text: str


class InMemoryMemory:
    """A `Memory` that lives as long as its process; for one event loop.

    An event matches when it contains a word of the query, inside other words too. A query of stop words alone must be
    contained as a whole. A search reads every event of the session.

    Args:
        summariser: Makes the summaries; None takes first sentences, see `episode_summary`.
    """

    def __init__(self, *, summariser: Summariser | None = None) -> None:
        self._summariser = summariser
        self._sessions: defaultdict[str, list[_Line]] = defaultdict(list)

    async def append_event(self, session_id: str, event: Event) -> None:
        """Keeps a copy of the event; see `MemoryWriter.append_event`."""
        check_event(session_id, event)
        line = _Line(_copy(event), frozenset(event_tags(session_id, event)), event.text[:INDEXED_CHARS].lower())
        self._sessions[session_id].append(line)

    async def recent(self, session_id: str, *, limit: int = 20) -> list[Event]:
        """The newest events, oldest first; see `Memory.recent`."""
        check_limit(session_id, limit)
        lines = self._sessions.get(session_id, [])
        return [_copy(line.event) for line in lines[-limit:]] if limit > 0 else []

    async def summarize_episode(self, session_id: str) -> str | None:
        """The summary of the newest events; see `MemoryWriter.summarize_episode`."""
        return await summarised(await self.recent(session_id, limit=SUMMARISED_EVENTS), self._summariser)

    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
        """The events that contain words of the query, best first; see `MemoryReader.retrieve`."""
        session_id = check_search(query, k, filters)
        lines = self._sessions.get(session_id, [])
        terms = query_terms(query) or [query.strip().lower()]
        if k <= 0 or not terms[0]:
            return []
        wanted = set(filter_tags(filters))
        newest_first = [
            (position, lines[position - 1].text)
            for position in range(len(lines), 0, -1)
            if wanted <= lines[position - 1].tags
        ]
        matches = [
            list(islice((position for position, text in newest_first if term in text), MAX_MATCHES)) for term in terms
        ]
        weights = shortlist(matches, lines=len(lines), k=k)
        word_counts = {position: len(lines[position - 1].text.split()) for position in weights}
        return [
            MemoryHit(session_id=session_id, event=_copy(lines[position - 1].event), score=score)
            for position, score in best_lines(weights, word_counts, lines=len(lines), k=k)
        ]

    async def aclose(self) -> None:
        """Nothing to close; the events stay."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _copy(event: Event) -> Event:
    return event.model_copy(deep=True)
