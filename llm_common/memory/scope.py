"""Words and tags under which an event is indexed, so that only its own session finds it.

Every word carries a prefix made of the session id. An index then holds a list of lines per session and word: another
session's lines are not filtered out, they are never met, and a search costs what its own session costs. The prefix is
made of consonants, which leaves the measures of stemmers as they were (Porter 1980 counts from the first vowel on).
"""

import hashlib
from collections.abc import Mapping

from llm_common.core.models import MessageRole
from llm_common.memory.protocol import Event, MemoryFilters, Scalar
from llm_common.ranking import query_terms, split_identifiers
from llm_common.text.canonical import stable_json

__all__ = ["INDEXED_CHARS", "event_tags", "filter_tags", "scoped_terms", "scoped_words"]

INDEXED_CHARS = 16_000
"""How much of a text is indexed; the vector of a longer one could outgrow what PostgreSQL stores (1 MB)."""

_PREFIX_DIGITS = 12
_TAG_DIGITS = 32
_CONSONANTS = str.maketrans("0123456789abcdef", "bcdfghjklmnpqrst")


def scoped_words(session_id: str, text: str) -> list[str]:
    """The words of a line as they are indexed: in lower case, which not every database finds beyond ASCII."""
    prefix = _consonants(session_id, _PREFIX_DIGITS)
    return [prefix + word for word in split_identifiers(text[:INDEXED_CHARS]).lower().split()]


def scoped_terms(session_id: str, query: str) -> list[str]:
    """The words of a query as they are looked up: at most 64, none of them a stop word."""
    prefix = _consonants(session_id, _PREFIX_DIGITS)
    return [prefix + term for term in query_terms(query[:INDEXED_CHARS])]


def event_tags(session_id: str, event: Event) -> list[str]:
    """What can be filtered by, one word for each fact of the event."""
    return _tags(session_id, event.role, event.metadata)


def filter_tags(filters: MemoryFilters) -> list[str]:
    """The words that an event must have among its tags."""
    return _tags(filters.session_id, filters.role, filters.metadata)


def _tags(session_id: str, role: MessageRole | None, metadata: Mapping[str, Scalar]) -> list[str]:
    facts: list[list[Scalar]] = [[key, value] for key, value in metadata.items()]
    if role:
        facts.append([str(role)])
    return [_consonants(stable_json([session_id, *fact]), _TAG_DIGITS) for fact in facts]


def _consonants(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits].translate(_CONSONANTS)
