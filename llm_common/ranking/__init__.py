"""Orders text: full-text ranking and the fusion of rankings, without a model."""

from llm_common.ranking.fusion import max_normalised, min_max_normalised, reciprocal_rank_fusion, weighted_sum
from llm_common.ranking.hit import Hit, best_first
from llm_common.ranking.lexical import MAX_QUERY_TERMS, LexicalIndex, query_terms, split_identifiers

__all__ = [
    "MAX_QUERY_TERMS",
    "Hit",
    "LexicalIndex",
    "best_first",
    "max_normalised",
    "min_max_normalised",
    "query_terms",
    "reciprocal_rank_fusion",
    "split_identifiers",
    "weighted_sum",
]
