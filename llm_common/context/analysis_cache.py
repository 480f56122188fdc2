"""`AnalysisCache`: what was worked out from a text, kept for as long as the text stays the same."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, NamedTuple, TypeAlias, TypeVar

from llm_common.context.request import Kind

__all__ = ["AnalysisCache"]

Key: TypeAlias = tuple[Kind, str]
Analysis: TypeAlias = tuple[str, ...]
Item = TypeVar("Item")


class _Analysed(NamedTuple):
    """Items, and what was found of each."""

    items: Sequence[Any]
    keys: list[Key]
    found: list[Analysis]
    chars: int


_NOTHING = _Analysed((), [], [], 0)


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
        self._kept: OrderedDict[Key, tuple[tuple[str, ...], Analysis]] = OrderedDict()
        self._last: dict[object, _Analysed] = {}
        self._lock = threading.Lock()

    def get_all(
        self,
        items: Sequence[Item],
        describe: Callable[[Item], tuple[Key, tuple[str, ...]]],
        analyse: Callable[..., Analysis],
    ) -> tuple[list[Key], list[Analysis]]:
        """The key of each item, and `analyse(*texts)` of its texts, or what that gave before for equal ones of the key.

        Items that begin with the very objects of the last time are not even looked at again: a conversation that has
        grown by a turn costs that turn.

        Args:
            items: Frozen; neither they nor what is returned may be changed.
            describe: Gives key and texts of an item.
            analyse: Pure.
        """
        with self._lock:
            last = self._last.get(analyse, _NOTHING)
            if len(last.items) > len(items) or not all(map(is_, last.items, items)):
                last = _NOTHING
            new = items[len(last.items) :]
            if not new:
                return last.keys, last.found
            keys, found, chars = [*last.keys], [*last.found], last.chars
            for key, texts in map(describe, new):
                keys.append(key)
                found.append(self._get(key, texts, analyse))
                chars += _chars(texts)
            if chars <= self._max_chars:
                self._last[analyse] = _Analysed(items, keys, found, chars)
        return keys, found

    def _get(self, key: Key, texts: tuple[str, ...], analyse: Callable[..., Analysis]) -> Analysis:
        kept = self._kept.get(key)
        if kept and kept[0] == texts:
            self._kept.move_to_end(key)
            return kept[1]
        analysis = analyse(*texts)
        self._keep(key, texts, analysis)
        return analysis

    def _keep(self, key: Key, texts: tuple[str, ...], analysis: Analysis) -> None:
        self._forget(key)
        if 0 < _chars(texts) <= self._max_chars:
            self._kept[key] = texts, analysis
            self._chars += _chars(texts)
        while self._chars > self._max_chars:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: Key) -> None:
        if kept := self._kept.pop(key, None):
            self._chars -= _chars(kept[0])

    def __len__(self) -> int:
        return len(self._kept)


def _chars(texts: tuple[str, ...]) -> int:
    return sum(map(len, texts))
