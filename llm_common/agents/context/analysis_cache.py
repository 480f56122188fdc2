"""`AnalysisCache`: what was worked out from a text, kept for as long as the text stays the same."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable

__all__ = ["AnalysisCache"]


class AnalysisCache:
    """Analyses by the item and the texts that they were made from, the least recently used forgotten first.

    An analysis is only given for equal texts, so that results never depend on what was asked before. Threads may share
    a cache; one of them analyses at a time.

    Args:
        max_chars: How many characters of analysed texts it keeps; longer texts are not kept.
    """

    def __init__(self, *, max_chars: int) -> None:
        self._max_chars = max_chars
        self._chars = 0
        self._kept: OrderedDict[Hashable, tuple[tuple[str, ...], tuple[str, ...]]] = OrderedDict()
        self._lock = threading.Lock()

    def get_all(
        self, items: Iterable[tuple[Hashable, tuple[str, ...]]], analyse: Callable[..., tuple[str, ...]]
    ) -> list[tuple[str, ...]]:
        """For each key and its texts `analyse(*texts)`, or what it gave the last time for the key and equal texts.

        Args:
            items: Keys and texts.
            analyse: Pure.
        """
        found: list[tuple[str, ...]] = []
        with self._lock:
            for key, texts in items:
                kept = self._kept.get(key)
                if kept and kept[0] == texts:
                    self._kept.move_to_end(key)
                    found.append(kept[1])
                else:
                    found.append(analyse(*texts))
                    self._keep(key, texts, found[-1])
        return found

    def _keep(self, key: Hashable, texts: tuple[str, ...], analysis: tuple[str, ...]) -> None:
        self._forget(key)
        if 0 < _chars(texts) <= self._max_chars:
            self._kept[key] = texts, analysis
            self._chars += _chars(texts)
        while self._chars > self._max_chars:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: Hashable) -> None:
        if kept := self._kept.pop(key, None):
            self._chars -= _chars(kept[0])

    def __len__(self) -> int:
        return len(self._kept)


def _chars(texts: tuple[str, ...]) -> int:
    return sum(map(len, texts))
