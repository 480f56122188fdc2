"""The strategy `measured`: what finds most on the evaluation sets.

Turns and outputs were measured with benchmarks/quality_context.py, files by the subjects of 206
commits of seven public repositories against the files that they changed, memories not at all. Each
part lies between 0 and 1 times its weight, so that parts compare. A small change of a weight hardly
moves the mean over the sets, but single sets stand a point or less above their promises: measure
all sets again after any change.
"""

import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter, is_
from typing import Any, Final, TypeAlias, TypeVar

from cachetools import LRUCache

from llm_common.context.mentions import is_code, is_test
from llm_common.context.pool import ContextFile, DataPoolSnapshot, MemorySnippet, TurnEntry
from llm_common.context.request import ContextSelectionRequest, Kind, Score, Scores
from llm_common.decisions.questions import DecisionClient, check_decision_client
from llm_common.ranking import Embedder, TermScanner, folded, prominence, scan
from llm_common.ranking.bm25 import BM25
from llm_common.selection.relevance_ranking import rank_pointers

_VECTOR_WEIGHT: Final = 0.4

_NEIGHBOUR_WEIGHT: Final = 0.5
# characters, about a minute of talk, over which a neighbour's share falls to a third
_NEIGHBOURHOOD: Final = 800.0
# lifts the last turns over what hardly matches, never over a good match
_NEWEST_WEIGHT: Final = 0.3
_NEWEST_DECAY: Final = 3.0  # turns

# content, path, symbols: the name says most about a file
_FILE_FIELD_WEIGHTS: Final = (1.0, 10.0, 5.0)
_FILE_BM25: Final = BM25(k1=1.2, b=0.3)  # long files are long because much is in them
_PATH_VECTOR_WEIGHT: Final = 0.2  # a path is a short text
_CODE_WEIGHT: Final = 0.1
_TEST_WEIGHT: Final = -0.1
_CHANGE_WEIGHT: Final = 0.3
_CHANGE_DECAY: Final = timedelta(weeks=1)
_FILE_CUT_OFF: Final = 0.15  # more than the weight of being code, which is no reason alone

_MEMORY_RECENCY_WEIGHT: Final = 0.2  # this, and the next, as in the specification
_MEMORY_PROJECT_WEIGHT: Final = 0.3
_MEMORY_DECAY: Final = timedelta(days=1)

_MAX_SCORES: Final[Mapping[Kind, float]] = {  # the sum of all parts at their largest
    "turn": 1.0 + _NEIGHBOUR_WEIGHT + _NEWEST_WEIGHT,
    "file": 1.0 + _PATH_VECTOR_WEIGHT + _CODE_WEIGHT + _CHANGE_WEIGHT,
    "memory": 2.0 + _VECTOR_WEIGHT + _MEMORY_RECENCY_WEIGHT + _MEMORY_PROJECT_WEIGHT,
    "output": 3.3,  # as `rank_pointers` says; several pointers that lead to one may exceed it
    "project": 1.0,
}

_ASSISTANT: Final = "assistant"
_SEPARATORS: Final = re.compile(r"[\W_]+")

_Parts = dict[str, float]


class MeasuredStrategy:
    """Ranks by shared words first, by what is known of each kind of item second.

    The parts of a score, by name:

    - turn: `words` and `vectors`, together at most 1; `neighbours`, half the share of those around
      it, falling off over 800 characters; `newest`, `.3 * exp(-turns since / 3)`. Neither the clock
      nor the day counts: an old turn that answers beats a new one that does not.
    - file: `words` over content, path and defined symbols; `vectors` of the path, .2; `code` .1;
      `tests` -.1; `change`, `.3 * exp(-age in weeks)`.
    - memory: `relevance`, as its store gave it, within [0, 1]; `words`; `vectors` .4; `recency`,
      `.2 * exp(-days)`; `project` .3.
    - output: as `rank_pointers` ranks, for the request and the assistant's last turn.
    - project: 1.

    `words` and `vectors` compare within a kind: the best match has 1. Priority hints are read as
    part of the request. Without an embedder `vectors` is 0. A request's weights are factors of the
    parts. `score_pool` divides a score by that of `max_scores`: what a selection shows lies between
    0 and 1. Folded texts are cached for the next selection, which never changes a score. Threads
    may share a strategy.

    To use vectors: `ContextSelector(strategies={"measured":
    MeasuredStrategy(embedder=StaticVectors())})`.

    Args:
        embedder: Gives the similarity of texts, such as `StaticVectors` of the extra `embeddings`.
        max_cached_chars: Most characters of folded files and turns to cache; the default holds
            2,500 files of 20 KB, 0 holds none.
        judge: A decision model that `ContextSelector.select` asks, by one request a selection,
            which of the 40 best items help; see `judge_items`. Where it fails, the bundle's
            `metadata.judge` says why. None asks none; `score` itself never does.
        judge_timeout_s: Seconds that this request may take.

    Raises:
        TypeError: `judge` is no `DecisionClient`.
        ValueError: `judge_timeout_s` is not positive.
    """

    cut_offs: Mapping[Kind, float] = {"file": _FILE_CUT_OFF}
    max_scores: Mapping[Kind, float] = _MAX_SCORES

    def __init__(
        self,
        *,
        embedder: Embedder | None = None,
        max_cached_chars: int = 50_000_000,
        judge: DecisionClient | None = None,
        judge_timeout_s: float = 5.0,
    ) -> None:
        if judge is not None:
            check_decision_client(judge)
        if not judge_timeout_s > 0:
            raise ValueError(f"judge_timeout_s is {judge_timeout_s}; it must be more than 0")
        self.judge, self.judge_timeout_s = judge, judge_timeout_s
        self._embedder = embedder
        self._cache = TextCache(max_chars=max_cached_chars)
        self._turn_words = TermScanner(weights=(1.0,), max_chars=max_cached_chars)
        self._file_words = TermScanner(
            weights=_FILE_FIELD_WEIGHTS, bm25=_FILE_BM25, max_chars=max_cached_chars
        )

    def score(
        self, pool: DataPoolSnapshot, request: ContextSelectionRequest, *, now: datetime
    ) -> Scores:
        """Value and parts of every item; linear in the pool, in any order of its items."""
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
        documents = self._cache.get_all(turns, _turn_texts, _folded_turn)
        words = self._turn_words.scan(query, documents)
        vectors = self._likeness(query, [turn.content for turn in turns])
        top = max(map(sum, zip(words, vectors, strict=True)), default=0.0) or 1.0
        own = [(word + vector) / top for word, vector in zip(words, vectors, strict=True)]
        around = _surroundings(own, [len(turn.content) for turn in turns])
        ages = range(len(turns) - 1, -1, -1)
        return {
            ("turn", turn.id): {
                "words": word / top,
                "vectors": vector / top,
                "neighbours": _NEIGHBOUR_WEIGHT * near,
                "newest": _NEWEST_WEIGHT * math.exp(-age / _NEWEST_DECAY),
            }
            for turn, word, vector, near, age in zip(
                turns, words, vectors, around, ages, strict=True
            )
        }

    def _file_parts(
        self, files: Sequence[ContextFile], query: str, now: datetime
    ) -> dict[tuple[Kind, str], _Parts]:
        documents = self._cache.get_all(files, _file_texts, _folded_file)
        words = self._file_words.scan(query, documents)
        vectors = self._likeness(
            query, [_SEPARATORS.sub(" ", file.path) for file in files], _PATH_VECTOR_WEIGHT
        )
        return {
            ("file", file.id): {
                "words": word,
                "vectors": vector,
                "code": _CODE_WEIGHT if is_code(file.path, file.language) else 0.0,
                "tests": _TEST_WEIGHT if is_test(file.path) else 0.0,
                "change": _CHANGE_WEIGHT * _decay(file.metadata.last_modified, now, _CHANGE_DECAY),
            }
            for file, word, vector in zip(files, words, vectors, strict=True)
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
                "project": _MEMORY_PROJECT_WEIGHT
                if project and project == snippet.metadata.project
                else 0.0,
            }
            for snippet, word, vector in zip(snippets, words, vectors, strict=True)
        }

    def _output_parts(self, pool: DataPoolSnapshot, query: str) -> dict[tuple[Kind, str], _Parts]:
        if not pool.tool_outputs:
            return {}
        outputs = sorted(pool.tool_outputs, key=lambda pointer: pointer.pointer_id)
        ranked = rank_pointers(query, outputs, embedder=self._embedder)
        return {("output", entry.pointer.pointer_id): dict(entry.parts) for entry in ranked}

    def _likeness(
        self, query: str, texts: Sequence[str], weight: float = _VECTOR_WEIGHT
    ) -> list[float]:
        if self._embedder is None:
            return [0.0] * len(texts)
        return [weight * value for value in prominence(self._embedder.similarities(query, texts))]


def _turn_texts(turn: TurnEntry) -> tuple[str, str]:
    return turn.role, turn.content


def _file_texts(file: ContextFile) -> tuple[str, str]:
    return file.content, file.path


def _folded_turn(role: str, content: str) -> tuple[str, ...]:
    return (folded(f"{role}: {content}"),)


def _folded_file(content: str, path: str) -> tuple[str, ...]:
    text = folded(content)
    return text, folded(path), defined_symbols(text, path)


def _last_words(turns: Sequence[TurnEntry]) -> list[str]:
    """The assistant's last turn, which a short answer of the user refers to."""
    return next(([turn.content] for turn in reversed(turns) if turn.role == _ASSISTANT), [])


def _surroundings(values: Sequence[float], lengths: Sequence[int]) -> list[float]:
    """The value of the neighbours of each, relative to the highest; it falls with the distance."""
    fades = [math.exp(-(length + 1) / _NEIGHBOURHOOD) for length in lengths]
    before = _carried(values, fades)
    after = _carried(values[::-1], fades[::-1])[::-1]
    around = [left + right for left, right in zip(before, after, strict=True)]
    top = max(around, default=0.0)
    return [value / top for value in around] if top else around


def _carried(values: Sequence[float], fades: Sequence[float]) -> list[float]:
    """For each, the sum of the values before it, faded by every text in between."""
    carried, shares = 0.0, []
    for value, fade in zip(values, fades, strict=True):
        shares.append(carried)
        carried = (carried + value) * fade
    return shares


def _decay(moment: datetime | None, now: datetime, unit: timedelta) -> float:
    """`exp(-age)` in that unit; 1 for a time in the future, 0 without a time."""
    return math.exp(-max(0.0, (now - moment) / unit)) if moment else 0.0


def _within_one(value: float) -> float:
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0


def _weighted(parts: _Parts, weights: Mapping[str, float]) -> Score:
    parts = {name: value * weights.get(name, 1.0) for name, value in parts.items()}
    total = sum(parts.values())
    return Score(total if math.isfinite(total) else 0.0, parts)


_KEYWORDS: Final = [
    "class",
    "const",
    "def",
    "enum",
    "fn",
    "func",
    "function",
    "impl",
    "interface",
    "macro",
    "module",
    "struct",
    "trait",
    "type",
]
# One pattern a keyword: a pattern that begins with letters is searched for much faster than a
# choice of patterns.
_DEFINITIONS: Final = {
    word: re.compile(rf"{word}[ \t]{{1,8}}(?:\([^)\n]{{0,80}}\)[ \t]?)?(\w{{1,80}})")
    for word in _KEYWORDS
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

    For ranking alone: a word of prose after such a keyword does no harm. Python takes 1.5 ms a
    megabyte, a language without a known extension 9 ms.

    Args:
        text: The program, in any case.
        path: Its extension selects the keywords that define something; without a known one, all do.
    """
    keywords = _BY_EXTENSION.get(path.rpartition(".")[2].lower(), _KEYWORDS)
    return " ".join(name for word in keywords for name in _DEFINITIONS[word].findall(text))


Texts: TypeAlias = tuple[str, ...]
Item = TypeVar("Item")


class TextCache:
    """Texts derived from the texts of items; the least recently used are evicted first.

    An entry is keyed by the texts themselves, so results never depend on earlier calls. Threads may
    share a cache; one of them derives at a time.

    Args:
        max_chars: Most characters of derived texts to keep, about those of the texts themselves; 0
            keeps none.
    """

    def __init__(self, *, max_chars: int) -> None:
        self._max_chars = max_chars
        self._derived: LRUCache[tuple[object, ...], Texts] = LRUCache(max_chars, getsizeof=_chars)
        self._last: dict[object, tuple[Sequence[Any], list[Texts]]] = {}
        self._lock = threading.Lock()

    def get_all(
        self, items: Sequence[Item], texts_of: Callable[[Item], Texts], derive: Callable[..., Texts]
    ) -> list[Texts]:
        """For each item `derive(*texts)` of its texts.

        Items that begin with the very objects of the last call are not read again: a conversation
        that has grown by a turn costs that turn.

        Args:
            items: Frozen; neither they nor the returned list may be changed.
            texts_of: Gives the texts of an item.
            derive: Pure.
        """
        with self._lock:
            known, found = self._last.get(derive, ((), []))
            if len(known) > len(items) or not all(map(is_, known, items)):
                known, found = (), []
            if len(known) < len(items):
                found = [
                    *found,
                    *(self._get(texts_of(item), derive) for item in items[len(known) :]),
                ]
                if sum(map(_chars, found)) <= self._max_chars:
                    self._last[derive] = items, found
        return found

    def _get(self, texts: Texts, derive: Callable[..., Texts]) -> Texts:
        derived = self._derived.get((derive, *texts))
        if derived is None:
            derived = derive(*texts)
            if _chars(derived) <= self._max_chars:
                self._derived[derive, *texts] = derived
        return derived


def _chars(texts: Texts) -> int:
    return 1 + sum(map(len, texts))  # 1, so that empty texts have a size too
