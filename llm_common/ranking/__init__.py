"""Orders text: full-text ranking and the fusion of rankings, without a model."""

from llm_common.ranking.embeddings import Embedder, StaticVectors, prominence
from llm_common.ranking.fusion import max_normalised, reciprocal_rank_fusion, weighted_sum
from llm_common.ranking.lexical import (
    MAX_QUERY_TERMS,
    Hit,
    best_first,
    query_terms,
    split_identifiers,
    split_request,
)
from llm_common.ranking.scan import (
    StreamedScan,
    TermScanner,
    folded,
    places_of,
    scan,
    search_stems,
    stem,
)

__all__ = [
    "MAX_QUERY_TERMS",
    "Embedder",
    "Hit",
    "StaticVectors",
    "StreamedScan",
    "TermScanner",
    "best_first",
    "folded",
    "max_normalised",
    "places_of",
    "prominence",
    "query_terms",
    "reciprocal_rank_fusion",
    "scan",
    "search_stems",
    "split_identifiers",
    "split_request",
    "stem",
    "weighted_sum",
]
