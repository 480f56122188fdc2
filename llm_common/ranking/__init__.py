"""Rank texts by words and by meaning, and fuse rankings, without a language model."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.ranking.embeddings import Embedder, StaticVectors
    from llm_common.ranking.lexical import BM25, search_stems, word_scores

__all__ = [
    "BM25",
    "Embedder",
    "StaticVectors",
    "search_stems",
    "word_scores",
]

_MODULES = {
    "BM25": "llm_common.ranking.lexical",
    "Embedder": "llm_common.ranking.embeddings",
    "StaticVectors": "llm_common.ranking.embeddings",
    "search_stems": "llm_common.ranking.lexical",
    "word_scores": "llm_common.ranking.lexical",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
