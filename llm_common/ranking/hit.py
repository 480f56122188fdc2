"""`Hit`: one ranked key."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Hit", "best_first"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A key and how well it matched; higher is better, and scores compare only within one ranking."""

    key: str
    score: float


def best_first(hits: Iterable[Hit]) -> list[Hit]:
    """The hits by falling score; equal scores stand in the order of their keys, so that the order is total."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.key))
