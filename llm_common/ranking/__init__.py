"""Rank texts by words and by meaning, and fuse rankings, without a language model."""

from llm_common.ranking.embeddings import Embedder, StaticVectors

__all__ = [
    "Embedder",
    "StaticVectors",
]
