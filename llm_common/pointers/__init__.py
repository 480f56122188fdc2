"""Pointers to stored outputs: their store, listing, search and reading.

The public names are in `llm_common.agents.context_pointers`. These are for the applications of this
library, and may change.
"""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.parts.result_parts import ResultParts
    from llm_common.pointers.listing import QueryPage, QuerySummary, newest_pointers, read_pointer
    from llm_common.pointers.reading import MIN_LIMIT_TOKENS, ResultPart, read_payload, stored_text
    from llm_common.pointers.records import QueryFiles
    from llm_common.pointers.search import PointerMatch, find_pointers

__all__ = [
    "MIN_LIMIT_TOKENS",
    "PointerMatch",
    "QueryFiles",
    "QueryPage",
    "QuerySummary",
    "ResultPart",
    "ResultParts",
    "find_pointers",
    "newest_pointers",
    "read_payload",
    "read_pointer",
    "stored_text",
]

_MODULES = {
    "MIN_LIMIT_TOKENS": "llm_common.pointers.reading",
    "PointerMatch": "llm_common.pointers.search",
    "QueryFiles": "llm_common.pointers.records",
    "QueryPage": "llm_common.pointers.listing",
    "QuerySummary": "llm_common.pointers.listing",
    "ResultPart": "llm_common.pointers.reading",
    "ResultParts": "llm_common.parts.result_parts",
    "find_pointers": "llm_common.pointers.search",
    "newest_pointers": "llm_common.pointers.listing",
    "read_payload": "llm_common.pointers.reading",
    "read_pointer": "llm_common.pointers.listing",
    "stored_text": "llm_common.pointers.reading",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
