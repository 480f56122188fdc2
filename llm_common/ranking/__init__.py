"""Read questions and rank texts by words and by meaning, without a language model."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.ranking.embeddings import Embedder, StaticVectors
    from llm_common.ranking.lexical import search_stems

__all__ = [
    "Embedder",
    "StaticVectors",
    "search_stems",
]

_MODULES = {
    "Embedder": "llm_common.ranking.embeddings",
    "StaticVectors": "llm_common.ranking.embeddings",
    "search_stems": "llm_common.ranking.lexical",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
