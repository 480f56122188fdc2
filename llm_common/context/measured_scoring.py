"""The strategy `measured`: what finds most on the evaluation sets.

Turns and outputs were measured with benchmarks/quality_context.py, files by the subjects of 206 commits of seven public
repositories against the files that they changed, memories not at all. Each part lies between 0 and 1 times its weight,
so that parts compare. Around all weights the mean over the sets hardly moves, but single sets do: some stand a point or
less above what is promised of them, so that a change of a weight wants all sets measured again.
"""

import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter, is_
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from llm_common.context.mentions import is_code, is_test
from llm_common.context.pool import ContextFile, DataPoolSnapshot, MemorySnippet, TurnEntry
from llm_common.context.request import ContextSelectionRequest, Kind, Score, Scores
from llm_common.ranking import Embedder, TermScanner, folded, scan, standing_out
from llm_common.selection.relevance_ranking import rank_pointers

__all__ = ["AnalysisCache", "MeasuredStrategy", "defined_symbols"]

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


_KEYWORDS: Final = "class const def enum fn func function impl interface macro module struct trait type".split()  # noqa: SIM905
# One pattern a keyword: a pattern that begins with letters is searched for much faster than a choice of patterns.
_DEFINITIONS: Final = {
    word: re.compile(rf"{word}[ \t]{{1,8}}(?:\([^)\n]{{0,80}}\)[ \t]?)?(\w{{1,80}})") for word in _KEYWORDS
}
_BY_EXTENSION: Final[Mapping[str, list[str]]] = {
    extension: keywords.split()
    for extensions, keywords in (
        ("py pyi pyx", "class def"),
        ("rb rake", "class def module"),
        ("go", "const func interface struct type"),
        ("rs", "const enum fn impl macro struct trait type"),
        ("js jsx mjs cjs ts tsx mts cts vue svelte", "class const enum function interface type"),
    )
    for extension in extensions.split()
}


def defined_symbols(text: str, path: str = "") -> str:
    """Names that follow a keyword such as `class`, `def`, `func` or `struct`, spaced.

    For ranking alone, so that a word of prose after such a keyword does no harm, and speed counts: Python takes 1.5 ms
    a megabyte, a language that the path does not tell 9 ms.

    Args:
        text: The program, in any case.
        path: Its extension tells which keywords define something; without one that is known, all do.
    """
    keywords = _BY_EXTENSION.get(path.rpartition(".")[2].lower(), _KEYWORDS)
    return " ".join(name for word in keywords for name in _DEFINITIONS[word].findall(text))


_VECTOR_WEIGHT: Final = 0.4

_NEIGHBOUR_WEIGHT: Final = 0.5
_NEIGHBOURHOOD: Final = 800.0  # characters, about a minute of talk, over which a neighbour's share falls to a third
_NEWEST_WEIGHT: Final = 0.3  # lifts the last turns over what hardly matches, never over a good match
_NEWEST_DECAY: Final = 3.0  # turns

_FILE_FIELD_WEIGHTS: Final = (1.0, 10.0, 5.0)  # content, path, symbols: a file is mostly told by its name
_FILE_LENGTH_SHARE: Final = 0.3  # long files are long because much is in them
_PATH_VECTOR_WEIGHT: Final = 0.2  # a path is a short text
_CODE_WEIGHT: Final = 0.1
_TEST_WEIGHT: Final = -0.1
_CHANGE_WEIGHT: Final = 0.3
_CHANGE_DECAY: Final = timedelta(weeks=1)
_FILE_CUT_OFF: Final = 0.15  # being code is no reason alone

_MEMORY_RECENCY_WEIGHT: Final = 0.2  # this, and the next, as in the specification
_MEMORY_PROJECT_WEIGHT: Final = 0.3
_MEMORY_DECAY: Final = timedelta(days=1)

_ASSISTANT: Final = "assistant"
_SEPARATORS: Final = re.compile(r"[\W_]+")

_Parts = dict[str, float]


class MeasuredStrategy:
    """Ranks by shared words first, by what is known of each kind of item second.

    The parts of a score, by name:

    - turn: `words` and `vectors`, together at most 1; `neighbours`, half the share of those around it, falling off over
      800 characters; `newest`, `.3 * exp(-turns since / 3)`. Neither the clock nor the day counts: an old turn that
      answers beats a new one that does not.
    - file: `words` over content, path and defined symbols; `vectors` of the path, .2; `code` .1; `tests` -.1; `change`,
      `.3 * exp(-age in weeks)`.
    - memory: `relevance`, what its store said, within [0, 1]; `words`; `vectors` .4; `recency`, `.2 * exp(-days)`;
      `project` .3.
    - output: as `rank_pointers` ranks, for the request and the assistant's last turn.
    - project: 1.

    `words` and `vectors` compare within a kind: the best match has 1. Priority hints are read as part of the request.
    Without an embedder `vectors` is left out. A request's weights are factors of the parts. Texts are folded once and
    remembered for the next selection; the result is the same without. Threads may share a strategy.

    A selector takes vectors so: `ContextSelector(strategies={"measured": MeasuredStrategy(embedder=StaticVectors())})`.

    Args:
        embedder: Knows which texts mean something alike, such as `StaticVectors` of the extra `embeddings`.
        max_cached_chars: Characters of files and turns to remember, folded, for as long as the strategy lives; the
            default holds 2,500 files of 20 KB, 0 holds none.
    """

    cut_offs: Mapping[Kind, float] = {"file": _FILE_CUT_OFF}

    def __init__(self, *, embedder: Embedder | None = None, max_cached_chars: int = 50_000_000) -> None:
        self._embedder = embedder
        self._cache = AnalysisCache(max_chars=max_cached_chars)
        self._turn_words = TermScanner(weights=(1.0,), max_chars=max_cached_chars)
        self._file_words = TermScanner(
            weights=_FILE_FIELD_WEIGHTS, length_share=_FILE_LENGTH_SHARE, max_chars=max_cached_chars
        )

    def score(self, pool: DataPoolSnapshot, request: ContextSelectionRequest, *, now: datetime) -> Scores:
        """Value and parts of every item of the pool; linear in the pool, the same for any order of its items."""
        query = "\n".join([request.intent.text, *request.priority_hints])
        turns = sorted(sorted(pool.session_log, key=attrgetter("id")), key=attrgetter("timestamp"))
        project = request.intent.metadata.current_project
        parts: dict[tuple[Kind, str], _Parts] = {}
        parts |= self._turn_parts(turns, query)
        parts |= self._file_parts(pool.context_files, query, now)
        parts |= self._memory_parts(pool.memory_hits, query, project, now)
        parts |= self._output_parts(pool, "\n".join([query, *_last_words(turns)]))
        if pool.project_state:
            parts["project", pool.project_state.name] = {"project": 1.0}
        if request.weights:
            return {key: _weighted(of_item, request.weights) for key, of_item in parts.items()}
        return {key: Score(sum(of_item.values()), of_item) for key, of_item in parts.items()}

    def _turn_parts(self, turns: Sequence[TurnEntry], query: str) -> dict[tuple[Kind, str], _Parts]:
        keys, documents = self._cache.get_all(turns, _turn_texts, _folded_turn)
        words = self._turn_words.scan(query, documents)
        vectors = self._likeness(query, [turn.content for turn in turns])
        top = max(map(sum, zip(words, vectors, strict=True)), default=0.0) or 1.0
        own = [(word + vector) / top for word, vector in zip(words, vectors, strict=True)]
        around = _surroundings(own, [len(turn.content) for turn in turns])
        ages = range(len(turns) - 1, -1, -1)
        return {
            key: {
                "words": word / top,
                "vectors": vector / top,
                "neighbours": _NEIGHBOUR_WEIGHT * near,
                "newest": _NEWEST_WEIGHT * math.exp(-age / _NEWEST_DECAY),
            }
            for key, word, vector, near, age in zip(keys, words, vectors, around, ages, strict=True)
        }

    def _file_parts(self, files: Sequence[ContextFile], query: str, now: datetime) -> dict[tuple[Kind, str], _Parts]:
        keys, documents = self._cache.get_all(files, _file_texts, _folded_file)
        words = self._file_words.scan(query, documents)
        vectors = self._likeness(query, [_SEPARATORS.sub(" ", file.path) for file in files], _PATH_VECTOR_WEIGHT)
        return {
            key: {
                "words": word,
                "vectors": vector,
                "code": _CODE_WEIGHT if is_code(file.path, file.language) else 0.0,
                "tests": _TEST_WEIGHT if is_test(file.path) else 0.0,
                "change": _CHANGE_WEIGHT * _decay(file.metadata.last_modified, now, _CHANGE_DECAY),
            }
            for key, file, word, vector in zip(keys, files, words, vectors, strict=True)
        }

    def _memory_parts(
        self, snippets: Sequence[MemorySnippet], query: str, project: str | None, now: datetime
    ) -> dict[tuple[Kind, str], _Parts]:
        words = scan(query, [(folded(snippet.text),) for snippet in snippets], weights=(1.0,))
        vectors = self._likeness(query, [snippet.text for snippet in snippets])
        return {
            ("memory", snippet.id): {
                "relevance": _within_one(snippet.relevance_score),
                "words": word,
                "vectors": vector,
                "recency": _MEMORY_RECENCY_WEIGHT * _decay(snippet.timestamp, now, _MEMORY_DECAY),
                "project": _MEMORY_PROJECT_WEIGHT if project and project == snippet.metadata.project else 0.0,
            }
            for snippet, word, vector in zip(snippets, words, vectors, strict=True)
        }

    def _output_parts(self, pool: DataPoolSnapshot, query: str) -> dict[tuple[Kind, str], _Parts]:
        if not pool.tool_outputs:
            return {}
        outputs = sorted(pool.tool_outputs, key=lambda pointer: pointer.pointer_id)
        ranked = rank_pointers(query, outputs, embedder=self._embedder)
        return {("output", entry.pointer.pointer_id): dict(entry.parts) for entry in ranked}

    def _likeness(self, query: str, texts: Sequence[str], weight: float = _VECTOR_WEIGHT) -> list[float]:
        if self._embedder is None:
            return [0.0] * len(texts)
        return [weight * value for value in standing_out(self._embedder.similarities(query, texts))]


def _turn_texts(turn: TurnEntry) -> tuple[tuple[Kind, str], tuple[str, ...]]:
    return ("turn", turn.id), (turn.role, turn.content)


def _file_texts(file: ContextFile) -> tuple[tuple[Kind, str], tuple[str, ...]]:
    return ("file", file.id), (file.content, file.path)


def _folded_turn(role: str, content: str) -> tuple[str, ...]:
    return (folded(f"{role}: {content}"),)


def _folded_file(content: str, path: str) -> tuple[str, ...]:
    text = folded(content)
    return text, folded(path), defined_symbols(text, path)


def _last_words(turns: Sequence[TurnEntry]) -> list[str]:
    """The assistant's last turn: what a short answer of the user refers to."""
    return next(([turn.content] for turn in reversed(turns) if turn.role == _ASSISTANT), [])


def _surroundings(values: Sequence[float], lengths: Sequence[int]) -> list[float]:
    """What the neighbours of each are worth, relative to the best surroundings; a share falls with the distance."""
    fades = [math.exp(-(length + 1) / _NEIGHBOURHOOD) for length in lengths]
    before = _carried(values, fades)
    after = _carried(values[::-1], fades[::-1])[::-1]
    around = [left + right for left, right in zip(before, after, strict=True)]
    top = max(around, default=0.0)
    return [value / top for value in around] if top else around


def _carried(values: Sequence[float], fades: Sequence[float]) -> list[float]:
    """What of the values before each arrives there, when a text in between lets only its share of them through."""
    carried, shares = 0.0, []
    for value, fade in zip(values, fades, strict=True):
        shares.append(carried)
        carried = (carried + value) * fade
    return shares


def _decay(moment: datetime | None, now: datetime, unit: timedelta) -> float:
    """`exp(-age)` in that unit; 1 for what lies in the future, 0 for what has no time."""
    return math.exp(-max(0.0, (now - moment) / unit)) if moment else 0.0


def _within_one(value: float) -> float:
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0


def _weighted(parts: _Parts, weights: Mapping[str, float]) -> Score:
    parts = {name: value * weights.get(name, 1.0) for name, value in parts.items()}
    total = sum(parts.values())
    return Score(total if math.isfinite(total) else 0.0, parts)
