"""Defines `InMemoryMemory`, which keeps events in a dictionary, for tests and short sessions."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count

from llm_common.memory.entry import (
    ECHO_EVENTS,
    Entry,
    check_search,
    checked_entry,
    checked_limit,
    checked_target,
    no_such_event,
    scope_of,
)
from llm_common.memory.protocol import (
    Event,
    FactMemory,
    MemoryFilters,
    MemoryHit,
)
from llm_common.memory.recall import (
    INDEXED_CHARS,
    MAX_MATCHES,
    best_lines,
    counted_terms,
    event_tags,
    filter_tags,
    follows_facts,
    forgets_memory,
    searches_memory,
    shortlist,
    writes_memory,
)
from llm_common.ranking.lexical import folded


@dataclass(slots=True)
class _Line:
    event_number: int
    entry: Entry
    tags: frozenset[str]
    text: str
    fact: int | None = None
    superseded: bool = False

    def is_current(self, now: datetime) -> bool:
        return not self.superseded and (
            self.entry.valid_until is None or self.entry.valid_until > now
        )


class InMemoryMemory(FactMemory):
    """A `FactMemory` that lives as long as its process, for one event loop.

    An event matches if it contains a word of the query, also inside another word. A query of stop
    words alone must occur as a whole. A search reads every event of the session or the user.
    """

    def __init__(self) -> None:
        self._scopes: defaultdict[str, list[_Line]] = defaultdict(list)
        self._event_numbers = count(1)  # 0 is the number of no event

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
        """Store a copy of the event. See `FactMemory.append_event`."""
        entry = checked_entry(
            session_id, event, user=user, key=key, supersedes=supersedes, valid_until=valid_until
        )
        lines = self._scopes[entry.scope]
        tags = frozenset(event_tags(entry))
        now = datetime.now(UTC)
        newest: list[tuple[int, str, bool]] = []
        for line in reversed(lines):
            if line.entry.session_id == session_id:
                # Equal tags mean equal role, metadata and key.
                is_equal = (
                    line.is_current(now)
                    and line.tags == tags
                    and line.entry.event.text == event.text
                    and line.entry.valid_until == entry.valid_until
                )
                newest.append((line.event_number, line.entry.event.role, is_equal))
            if len(newest) == ECHO_EVENTS:
                break
        repeated = entry.find_repeated(newest)
        if repeated is not None:
            return str(repeated)
        fact = _supersede(lines, entry)  # first, since it raises for an unknown id
        # An event is frozen, but its metadata is a dictionary that the caller may still change.
        stored = replace(entry, event=event.model_copy(deep=True))
        event_number = next(self._event_numbers)
        lines.append(_Line(event_number, stored, tags, folded(event.text[:INDEXED_CHARS]), fact))
        return str(event_number)

    async def recent(
        self, session_id: str, *, limit: int = 20, user: str | None = None, history: bool = False
    ) -> list[Event]:
        """Return the newest events, oldest first. See `FactMemory.recent`."""
        limit = checked_limit(session_id, user, limit)
        now = datetime.now(UTC)
        events: list[Event] = []
        # `get`, so that reading does not create the scope.
        for line in reversed(self._scopes.get(scope_of(session_id, user), [])):
            if len(events) >= limit:
                break
            if line.entry.session_id == session_id and (history or line.is_current(now)):
                events.append(line.entry.event.model_copy(deep=True))
        events.reverse()
        return events

    @searches_memory
    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
        """Return the events that contain words of the query. See `MemoryReader.retrieve`."""
        lines = self._scopes.get(check_search(query, k, filters), [])
        # A query of stop words alone, such as "what about it", is searched as a whole.
        terms = [folded(term) for term in counted_terms(query) or [query.strip()[:INDEXED_CHARS]]]
        if k <= 0 or not terms[0]:
            return []
        now = datetime.now(UTC)
        weights = shortlist(_matches(lines, terms, filters, now), lines=len(lines), k=k)
        shortlisted: list[tuple[int, int, bool]] = []
        for position in weights:
            line = lines[position - 1]
            shortlisted.append((position, len(line.text.split()), line.is_current(now)))
        hits: list[MemoryHit] = []
        for position, score in best_lines(weights, shortlisted, k=k):
            line = lines[position - 1]
            hits.append(
                MemoryHit(
                    session_id=line.entry.session_id,
                    event=line.entry.event.model_copy(deep=True),
                    score=score,
                    id=str(line.event_number),
                    key=line.entry.key,
                    current=line.is_current(now),
                )
            )
        return hits

    @forgets_memory
    async def forget(
        self,
        *,
        session_id: str | None = None,
        user: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of a hit's field
    ) -> int:
        """Erase the events. See `FactMemory.forget`."""
        target = checked_target(session_id, user, id)
        scopes = list(self._scopes)  # an id alone may be in any scope
        if target.scope is not None:
            scopes = [target.scope]
        forgotten = 0
        for scope in scopes:
            lines = self._scopes.pop(scope, [])
            remaining: list[_Line] = []
            for line in lines:
                in_session = target.session_id in (None, line.entry.session_id)
                if not in_session or target.event_number not in (None, line.event_number):
                    remaining.append(line)
            forgotten += len(lines) - len(remaining)
            if remaining:
                self._scopes[scope] = remaining
        return forgotten

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close, and the events stay."""


def _matches(
    lines: list[_Line], terms: Sequence[str], filters: MemoryFilters, now: datetime
) -> list[list[int]]:
    """Return the newest positions that match each term, newest first, for `shortlist`.

    A line that is no longer current counts as the newest line of its fact.
    """
    tags = set(filter_tags(filters))
    newest = _newest_of_facts(lines, filters, now)
    matches: list[set[int]] = [set() for _ in terms]
    for position in range(len(lines), 0, -1):  # newest first: the limit leaves out the oldest
        line = lines[position - 1]
        if not tags <= line.tags:
            continue
        positions: set[int] = set()
        if filters.history or line.is_current(now):
            positions.add(position)
        if line.fact in newest:
            positions.add(newest[line.fact])
        for term, matching in zip(terms, matches, strict=True):
            if len(matching) < MAX_MATCHES and term in line.text:
                matching.update(positions)
    return [sorted(matching, reverse=True) for matching in matches]


def _newest_of_facts(
    lines: list[_Line], filters: MemoryFilters, now: datetime
) -> dict[int | None, int]:
    """Return the position of the newest current line of each fact that the filters admit."""
    newest: dict[int | None, int] = {}
    if not follows_facts(filters):
        return newest
    session_id = None if filters.all_sessions else filters.session_id
    for position, line in enumerate(lines, start=1):
        in_session = session_id in (None, line.entry.session_id)
        has_key = filters.key in (None, line.entry.key)
        if line.fact is not None and in_session and has_key and line.is_current(now):
            # Later lines replace earlier ones.
            newest[line.fact] = position
    return newest


def _supersede(lines: list[_Line], entry: Entry) -> int | None:
    """Mark the lines that the entry supersedes, and return the number of its fact."""
    fact = None
    if entry.supersedes is not None:
        for line in lines:
            if line.event_number == entry.supersedes:
                # A fact has the number of its first event.
                fact = line.fact or line.event_number
        if fact is None:
            raise no_such_event(entry.supersedes)
    elif entry.key is None:
        return None
    newest: list[_Line] = []
    for line in lines:
        is_named = line.event_number == entry.supersedes or (fact is not None and line.fact == fact)
        has_key = entry.key is not None and line.entry.key == entry.key
        if not line.superseded and (is_named or has_key):
            newest.append(line)
    if fact is None and newest:  # the first time that an event under the key is superseded
        fact = newest[0].fact or newest[0].event_number
    for line in newest:
        line.superseded, line.fact = True, fact
    return fact
