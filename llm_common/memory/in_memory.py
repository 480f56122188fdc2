"""`InMemoryMemory`: events in a dictionary, for tests and for sessions that need no file."""

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count, islice
from types import TracebackType
from typing import Self

from llm_common.memory.entry import (
    ECHO_EVENTS,
    Entry,
    check_limit,
    check_search,
    checked_entry,
    checked_target,
    no_such_event,
    scope_of,
)
from llm_common.memory.memory_spans import forgets_memory, searches_memory, writes_memory
from llm_common.memory.protocol import (
    SUMMARISED_EVENTS,
    Event,
    MemoryFilters,
    MemoryHit,
    Summariser,
    summarised,
)
from llm_common.memory.recall import (
    INDEXED_CHARS,
    MAX_MATCHES,
    best_lines,
    event_tags,
    filter_tags,
    follows,
    shortlist,
)
from llm_common.ranking import folded, query_terms


@dataclass(slots=True)
class _Line:
    number: int
    entry: Entry
    tags: frozenset[str]
    text: str
    fact: int | None = None
    superseded: bool = False

    def current(self, now: datetime) -> bool:
        return not self.superseded and (
            self.entry.valid_until is None or self.entry.valid_until > now
        )

    def like(self, entry: Entry, tags: frozenset[str]) -> bool:
        """Whether it has the same role, text, metadata, key and end."""
        return (
            self.tags == tags
            and self.entry.event.text == entry.event.text
            and self.entry.valid_until == entry.valid_until
        )


class InMemoryMemory:
    """A `FactMemory` that lives as long as its process; for one event loop.

    An event matches when it contains a word of the query, inside other words too. A query of stop
    words alone must be contained as a whole. A search reads every event of the session, or of the
    user.

    Args:
        summariser: Makes the summaries; None takes first sentences, see `episode_summary`.
    """

    def __init__(self, *, summariser: Summariser | None = None) -> None:
        self._summariser = summariser
        self._scopes: defaultdict[str, list[_Line]] = defaultdict(list)
        self._numbers = count(1)

    @writes_memory
    async def append_event(
        self,
        session_id: str,
        event: Event,
        *,
        user: str | None = None,
        key: str | None = None,
        supersedes: str | None = None,
        valid_until: datetime | None = None,
    ) -> str:
        """Keeps a copy of the event; see `FactMemory.append_event`."""
        entry = checked_entry(
            session_id, event, user=user, key=key, supersedes=supersedes, valid_until=valid_until
        )
        lines, tags, now = (
            self._scopes[entry.scope],
            frozenset(event_tags(entry)),
            datetime.now(UTC),
        )
        newest = islice(
            (line for line in reversed(lines) if line.entry.session_id == session_id), ECHO_EVENTS
        )
        echoed = entry.echoed(
            (line.number, line.entry.event.role, line.current(now) and line.like(entry, tags))
            for line in newest
        )
        if echoed is not None:
            return str(echoed)
        fact = _supersede(lines, entry)
        kept = replace(entry, event=_copy(event))
        lines.append(
            _Line(next(self._numbers), kept, tags, folded(event.text[:INDEXED_CHARS]), fact)
        )
        return str(lines[-1].number)

    async def recent(
        self, session_id: str, *, limit: int = 20, user: str | None = None, history: bool = False
    ) -> list[Event]:
        """The newest events, oldest first; see `FactMemory.recent`."""
        check_limit(session_id, user, limit)
        now = datetime.now(UTC)
        newest_first = (
            line.entry.event
            for line in reversed(self._scopes.get(scope_of(session_id, user), []))
            if line.entry.session_id == session_id and (history or line.current(now))
        )
        return [_copy(event) for event in islice(newest_first, max(limit, 0))][::-1]

    async def summarize_episode(self, session_id: str, *, user: str | None = None) -> str | None:
        """The summary of the newest events; see `FactMemory.summarize_episode`."""
        return await summarised(
            await self.recent(session_id, limit=SUMMARISED_EVENTS, user=user), self._summariser
        )

    @searches_memory
    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
        """The events that contain words of the query, best first; see `MemoryReader.retrieve`."""
        lines, now = self._scopes.get(check_search(query, k, filters), []), datetime.now(UTC)
        terms = [*map(folded, query_terms(query) or [query.strip()])]
        if k <= 0 or not terms[0]:
            return []
        wanted = set(filter_tags(filters))
        session_id = None if filters.all_sessions else filters.session_id
        newest: dict[int | None, int] = {
            line.fact: position
            for position, line in enumerate(lines, 1)
            if line.fact
            and line.current(now)
            and session_id in (None, line.entry.session_id)
            and filters.key in (None, line.entry.key)
            and follows(filters)
        }
        newest_first = [
            (shown, line.text)
            for position, line in zip(range(len(lines), 0, -1), reversed(lines), strict=True)
            if wanted <= line.tags
            for shown in {
                position if filters.history or line.current(now) else None,
                newest.get(line.fact),
            }
            if shown is not None
        ]
        matches = [
            sorted(
                islice(
                    dict.fromkeys(shown for shown, text in newest_first if term in text),
                    MAX_MATCHES,
                ),
                reverse=True,
            )
            for term in terms
        ]
        weights = shortlist(matches, lines=len(lines), k=k)
        word_counts = {position: len(lines[position - 1].text.split()) for position in weights}
        old = {position for position in weights if not lines[position - 1].current(now)}
        found = best_lines(weights, word_counts, lines=len(lines), k=k, old=old)
        return [
            MemoryHit(
                session_id=line.entry.session_id,
                event=_copy(line.entry.event),
                score=score,
                id=str(line.number),
                key=line.entry.key,
                current=position not in old,
            )
            for position, score in found
            for line in [lines[position - 1]]
        ]

    @forgets_memory
    async def forget(
        self,
        *,
        session_id: str | None = None,
        user: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of a hit's field
    ) -> int:
        """Drops the events; see `FactMemory.forget`."""
        target, forgotten = checked_target(session_id, user, id), 0
        for scope in list(self._scopes) if target.scope is None else [target.scope]:
            lines = self._scopes.pop(scope, [])
            kept = [
                line
                for line in lines
                if target.session_id not in (None, line.entry.session_id)
                or target.number not in (None, line.number)
            ]
            forgotten += len(lines) - len(kept)
            if kept:
                self._scopes[scope] = kept
        return forgotten

    async def aclose(self) -> None:
        """Nothing to close; the events stay."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def _copy(event: Event) -> Event:
    return event.model_copy(deep=True)


def _supersede(lines: list[_Line], entry: Entry) -> int | None:
    """Marks what the entry supersedes.

    The number of the fact whose newest event the entry is, or None.
    """
    fact = None
    if entry.supersedes is not None:
        [*named] = (line for line in lines if line.number == entry.supersedes)
        if not named:
            raise no_such_event(entry.supersedes)
        fact = named[0].fact or named[0].number
    elif entry.key is None:
        return None
    newest = [
        line
        for line in lines
        if not line.superseded
        and (
            line.number == entry.supersedes
            or (fact and line.fact == fact)
            or (entry.key and line.entry.key == entry.key)
        )
    ]
    fact = fact or next((line.fact or line.number for line in newest), None)
    for line in newest:
        line.superseded, line.fact = True, fact
    return fact
