"""Orders text: full-text ranking and the fusion of rankings, without a model."""

from llm_common.ranking.embeddings import Embedder, StaticVectors

__all__ = [
    "Embedder",
    "StaticVectors",
]
