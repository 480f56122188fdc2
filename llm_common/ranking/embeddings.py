"""Measure similarity of meaning: the protocol `Embedder`, and static vectors that work offline."""

import math
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from cachetools import LRUCache

from llm_common._threads import ForkSafeLock
from llm_common.errors import ConfigError, missing_extra

if TYPE_CHECKING:
    import numpy as np

_MAX_CHARS: Final = 4_000  # the mean vector hardly changes with more words
_MAX_CACHED: Final = 20_000  # texts, whose vectors take a kilobyte each
_CACHED_POOLS: Final = 4  # a row of a pool takes a kilobyte too
_DIMENSIONS: Final = 256  # of the vectors that the package contains


@runtime_checkable
class Embedder(Protocol):
    """Measures how similar texts are in meaning. Safe to share between threads."""

    def similarities(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return the cosine of each text with the query, in order. Deterministic."""


def prominence(similarities: Sequence[float]) -> list[float]:
    """Return how far each similarity rises above the average, from 0 to 1.

    The cosines of a pool lie close together, and only the best are informative. A value less than a
    standard deviation above the mean becomes 0. Higher values are stretched over 0 to 1. A value
    that is not finite counts as 0.
    """
    if not similarities:
        return []
    finite = []
    for similarity in similarities:
        finite.append(similarity if math.isfinite(similarity) else 0.0)
    mean = math.fsum(finite) / len(finite)
    variance = math.fsum((similarity - mean) ** 2 for similarity in finite) / len(finite)
    floor = mean + math.sqrt(variance)
    excess = [max(0.0, similarity - floor) for similarity in finite]
    top = max(excess)
    return [value / top for value in excess] if top > 0 else excess


class StaticVectors:
    """Compares mean word vectors, in 2 ms a text of 4,000 characters and .5 ms a query.

    Needs the extra `embeddings`. The vectors (16 MB, 32,000 word pieces, 256 dimensions; Miller,
    WordLlama, 2024) are read from the files of the installed package `wordllama`. Its code is not
    run, so nothing is downloaded and no logging is configured. Only the first 4,000 characters of a
    text count. An LRU cache keeps the vectors of 20,000 texts.

    Raises:
        ConfigError: If the extra is not installed.
    """

    def __init__(self) -> None:
        try:
            import numpy as np  # noqa: PLC0415 - an extra
            from safetensors.numpy import load_file  # noqa: PLC0415 - an extra
            from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
        except ImportError as exc:
            raise _missing_extra() from exc
        weights, vocabulary = _installed_files()
        self._np = np
        self._pieces = load_file(weights)["embedding.weight"].astype(np.float32)
        self._tokenizer = Tokenizer.from_file(str(vocabulary))
        self._lock = ForkSafeLock(self._reset)
        self._reset()

    def _reset(self) -> None:
        self._vectors: LRUCache[str, np.ndarray[tuple[int], np.dtype[np.float32]]]
        self._vectors = LRUCache(_MAX_CACHED)
        self._pools: LRUCache[tuple[str, ...], np.ndarray[tuple[int, int], np.dtype[np.float32]]]
        self._pools = LRUCache(_CACHED_POOLS)

    def similarities(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the cosine of each text with the query, 0 for a text without words."""
        if not texts:
            return []
        pool = tuple(texts)
        with self._lock:  # cachetools is not thread-safe, so one caller embeds at a time
            rows = self._pools.get(pool)
            if rows is None:
                rows = self._rows(pool)
                # Rows of a larger pool would take more memory than all cached vectors.
                if len(pool) <= _MAX_CACHED:
                    self._pools[pool] = rows
            query_row = self._rows((query,))[0]
        # Outside the lock, because finished rows never change.
        cosines: list[float] = (rows @ query_row).tolist()
        return cosines

    def _rows(self, texts: Sequence[str]) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
        """Return the normalized vector of each text."""
        heads = [text[:_MAX_CHARS] for text in texts]
        # Collected before any is added, because an insertion may evict what this call needs.
        vectors: dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]] = {}
        new: dict[str, str] = {}
        for head in heads:
            if head in self._vectors:
                vectors[head] = self._vectors[head]
            else:
                new[head] = head.encode(errors="replace").decode()  # without lone surrogates
        encodings = self._tokenizer.encode_batch([*new.values()], add_special_tokens=False)
        for head, encoding in zip(new, encodings, strict=True):
            vector = self._np.zeros(_DIMENSIONS, self._np.float32)
            if encoding.ids:
                vector = self._pieces[encoding.ids].sum(axis=0)
                vector /= self._np.linalg.norm(vector) or 1.0
            vectors[head] = self._vectors[head] = vector
        return self._np.stack([vectors[head] for head in heads])


@cache
def installed_vectors() -> StaticVectors | None:
    """Load the static vectors, once a process. Return None without the extra."""
    try:
        return StaticVectors()
    except ConfigError:
        return None


def _installed_files() -> tuple[Path, Path]:
    """Return the files of the weights and the vocabulary in the installed package."""
    spec = find_spec("wordllama")  # does not import it, which would configure logging
    if spec is None or spec.origin is None:
        raise _missing_extra()
    folder = Path(spec.origin).parent
    files = (
        folder / "weights" / f"l2_supercat_{_DIMENSIONS}.safetensors",
        folder / "tokenizers" / "l2_supercat_tokenizer_config.json",
    )
    if not all(file.is_file() for file in files):
        raise _missing_extra()
    return files


def _missing_extra() -> ConfigError:
    return missing_extra("static vectors need an extra", "embeddings")
