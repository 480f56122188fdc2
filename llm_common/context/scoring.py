"""Scores every item of a pool by a named strategy, by default `measured`, and sets its rule.

`measured` is what finds most on the evaluation sets. Turns and outputs were measured with
benchmarks/quality_context.py, files by the subjects of 206 commits of seven public repositories
against the files that they changed, memories not at all. Each part lies between 0 and 1 times its
weight, so that parts compare. A small change of a weight hardly moves the mean over the sets, but
single sets stand a point or less above their promises: measure all sets again after any change.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import inf, isfinite
from operator import add, attrgetter
from typing import Final, Protocol

from llm_common.context.mentions import excluded_items, is_code, is_test, mentioned_files
from llm_common.context.request import (
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    Kind,
    MemorySnippet,
    Score,
    Scores,
    TurnEntry,
)
from llm_common.context.spec_scoring import SpecStrategy
from llm_common.decisions.questions import DecisionClient, check_decision_client
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking import Embedder
from llm_common.ranking.embeddings import prominence
from llm_common.ranking.lexical import BM25, TermScanner, folded, scan
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
Texts = tuple[str, ...]


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
        self._folded_turns = TextCache(_folded_turn, max_chars=max_cached_chars)
        self._folded_files = TextCache(_folded_file, max_chars=max_cached_chars)
        self._turn_words = TermScanner(weights=(1.0,), max_chars=max_cached_chars)
        self._file_words = TermScanner(
            weights=_FILE_FIELD_WEIGHTS, bm25=_FILE_BM25, max_chars=max_cached_chars
        )

    def score(
        self, pool: DataPoolSnapshot, request: ContextSelectionRequest, *, now: datetime
    ) -> Scores:
        """Return value and parts of every item. Linear in the pool, in any order of its items."""
        query = "\n".join([request.intent.text, *request.priority_hints])
        turns = sorted(sorted(pool.session_log, key=attrgetter("id")), key=attrgetter("timestamp"))
        project = request.intent.metadata.current_project
        parts: dict[tuple[Kind, str], _Parts] = {}
        parts |= self._turn_parts(turns, query)
        parts |= self._file_parts(pool.context_files, query, now)
        parts |= self._memory_parts(pool.memory_hits, query, project, now)
        # A short answer of the user refers to the assistant's last turn.
        last_words = [turn.content for turn in turns if turn.role == _ASSISTANT][-1:]
        parts |= self._output_parts(pool.tool_outputs, "\n".join([query, *last_words]))
        if pool.project_state:
            parts["project", pool.project_state.name] = {"project": 1.0}
        scores: dict[tuple[Kind, str], Score] = {}
        for key, item_parts in parts.items():
            if request.weights:
                for name, factor in request.weights.items():
                    if name in item_parts:
                        item_parts[name] *= factor
            value = sum(item_parts.values())
            scores[key] = Score(value if math.isfinite(value) else 0.0, item_parts)
        return scores

    def _turn_parts(self, turns: Sequence[TurnEntry], query: str) -> dict[tuple[Kind, str], _Parts]:
        documents = self._folded_turns.get_all([(turn.role, turn.content) for turn in turns])
        words = self._turn_words.scan(query, documents)
        vectors = self._likeness(query, [turn.content for turn in turns])
        matches = [*map(add, words, vectors)]
        top = max(matches, default=0.0) or 1.0
        lengths = [len(turn.content) for turn in turns]
        neighbours = _surroundings([match / top for match in matches], lengths)
        parts: dict[tuple[Kind, str], _Parts] = {}
        for number, turn in enumerate(turns):
            age = len(turns) - 1 - number
            parts["turn", turn.id] = {
                "words": words[number] / top,
                "vectors": vectors[number] / top,
                "neighbours": _NEIGHBOUR_WEIGHT * neighbours[number],
                "newest": _NEWEST_WEIGHT * math.exp(-age / _NEWEST_DECAY),
            }
        return parts

    def _file_parts(
        self, files: Sequence[ContextFile], query: str, now: datetime
    ) -> dict[tuple[Kind, str], _Parts]:
        documents = self._folded_files.get_all([(file.content, file.path) for file in files])
        words = self._file_words.scan(query, documents)
        paths = [_SEPARATORS.sub(" ", file.path) for file in files]
        vectors = self._likeness(query, paths, _PATH_VECTOR_WEIGHT)
        parts: dict[tuple[Kind, str], _Parts] = {}
        for number, file in enumerate(files):
            parts["file", file.id] = {
                "words": words[number],
                "vectors": vectors[number],
                "code": _CODE_WEIGHT * is_code(file.path, file.language),
                "tests": _TEST_WEIGHT if is_test(file.path) else 0.0,
                "change": _CHANGE_WEIGHT * _decay(file.metadata.last_modified, now, _CHANGE_DECAY),
            }
        return parts

    def _memory_parts(
        self, snippets: Sequence[MemorySnippet], query: str, project: str | None, now: datetime
    ) -> dict[tuple[Kind, str], _Parts]:
        texts = [snippet.text for snippet in snippets]
        words = scan(query, [(folded(text),) for text in texts], weights=(1.0,))
        vectors = self._likeness(query, texts)
        parts: dict[tuple[Kind, str], _Parts] = {}
        for number, snippet in enumerate(snippets):
            is_of_project = bool(project) and project == snippet.metadata.project
            relevance = snippet.relevance_score
            parts["memory", snippet.id] = {
                "relevance": min(max(relevance, 0.0), 1.0) if math.isfinite(relevance) else 0.0,
                "words": words[number],
                "vectors": vectors[number],
                "recency": _MEMORY_RECENCY_WEIGHT * _decay(snippet.timestamp, now, _MEMORY_DECAY),
                "project": _MEMORY_PROJECT_WEIGHT * is_of_project,
            }
        return parts

    def _output_parts(
        self, outputs: Sequence[ContextPointer], query: str
    ) -> dict[tuple[Kind, str], _Parts]:
        if not outputs:
            return {}
        by_id = sorted(outputs, key=attrgetter("pointer_id"))
        ranked = rank_pointers(query, by_id, embedder=self._embedder)
        return {("output", entry.pointer.pointer_id): dict(entry.parts) for entry in ranked}

    def _likeness(
        self, query: str, texts: Sequence[str], weight: float = _VECTOR_WEIGHT
    ) -> list[float]:
        if self._embedder is None:
            return [0.0] * len(texts)
        return [weight * value for value in prominence(self._embedder.similarities(query, texts))]


def _folded_turn(role: str, content: str) -> Texts:
    return (folded(f"{role}: {content}"),)


def _folded_file(content: str, path: str) -> Texts:
    text = folded(content)
    return text, folded(path), defined_symbols(text, path)


def _surroundings(values: Sequence[float], lengths: Sequence[int]) -> list[float]:
    """Return what the neighbours of each are worth, by their distance, relative to the highest."""
    fades = [math.exp(-(length + 1) / _NEIGHBOURHOOD) for length in lengths]
    before = _carried(values, fades)
    after = _carried(values[::-1], fades[::-1])[::-1]
    around = [*map(add, before, after)]
    top = max(around, default=0.0)
    return [value / top for value in around] if top else around


def _carried(values: Sequence[float], fades: Sequence[float]) -> list[float]:
    """Return, for each, the sum of the values before it, faded by every text in between."""
    carried, shares = 0.0, []
    for value, fade in zip(values, fades, strict=True):
        shares.append(carried)
        carried = (carried + value) * fade
    return shares


def _decay(moment: datetime | None, now: datetime, unit: timedelta) -> float:
    """Return `exp(-age)` in that unit: 1 for a time in the future, 0 without a time."""
    return math.exp(-max(0.0, (now - moment) / unit)) if moment else 0.0


_KEYWORDS: Final = (
    "class const def enum fn func function impl interface macro module struct trait type".split()  # noqa: SIM905
)
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


class TextCache:
    """Texts derived from the texts of items, kept for the items of the last call.

    An entry is keyed by the texts themselves, so results never depend on earlier calls. A
    conversation that has grown by a turn costs that turn. Threads may share a cache.

    Args:
        derive: Derives the texts. Pure.
        max_chars: Maximum number of characters of derived texts to keep, about those of the texts
            themselves. 0 keeps none.
    """

    def __init__(self, derive: Callable[..., Texts], *, max_chars: int) -> None:
        self._derive = derive
        self._max_chars = max_chars
        self._derived: dict[Texts, Texts] = {}  # replaced, never changed: threads may read it

    def get_all(self, items: Sequence[Texts]) -> list[Texts]:
        """Return `derive(*texts)` for the texts of each item."""
        known = self._derived
        derived: dict[Texts, Texts] = {}
        chars = 0
        for texts in items:
            if texts not in derived:
                derived[texts] = known.get(texts) or self._derive(*texts)
                chars += 1 + sum(map(len, derived[texts]))  # 1, so that empty texts have a size
        if chars <= self._max_chars:
            self._derived = derived
        return [derived[texts] for texts in items]


class Strategy(Protocol):
    """A way to score; pure and safe to share between threads.

    A strategy may have `max_scores` beside, the highest score of each kind: `score_pool` then
    returns its scores as shares of them, between 0 and 1. The scores of a kind without one stay as
    they are.
    """

    @property
    def cut_offs(self) -> Mapping[Kind, float]:
        """The minimum score of each kind; a kind without one accepts any score."""

    def score(
        self, pool: DataPoolSnapshot, request: ContextSelectionRequest, *, now: datetime
    ) -> Scores:
        """Value and parts of every item, keyed by kind and id; a project's id is its name.

        `score_pool` sets the rule of a score. The order of the pool must not matter.
        """


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "measured": MeasuredStrategy(max_cached_chars=0),
    "spec": SpecStrategy(),
}
"""The strategies by name; these cache no text."""


def score_pool(
    pool: DataPoolSnapshot,
    request: ContextSelectionRequest,
    *,
    now: datetime,
    strategies: Mapping[str, Strategy] = STRATEGIES,
) -> Scores:
    """The score of every item of the pool, once each, with a finite value and a rule.

    The first rule that holds counts: `excluded` (by a pattern of the request), `not_required` (a
    project that the intent does not need), `mentioned` (a file that the query or a hint names),
    `pinned`, `below_cut_off`, `ranked` (QR-1 and QR-3 of the specification, section "Quality
    Requirements"). Mentioned and pinned items have no cut-off. Pure, linear in the pool, the same
    for any order of its items.

    Where the strategy has `max_scores`, each score is divided by that of its kind, with its parts,
    and a negative one is 0. Weights that lift a score above the maximum lift the maximum with it.
    So no order and no ratio changes.

    Args:
        pool: The candidates.
        request: Names the strategy; a `min_relevance` replaces the strategy's cut-offs. It is
            compared with the returned scores, a cut-off with the strategy's.
        now: The moment that ages are measured from; UTC when it has no zone.
        strategies: The strategies that the request may name.

    Raises:
        ValueError: There is no strategy of that name.
    """
    strategy = strategies.get(request.strategy)
    if strategy is None:
        raise ValueError(
            f"there is no strategy {request.strategy!r}; use one of {sorted(strategies)}"
        )
    scores = strategy.score(pool, request, now=now if now.tzinfo else now.replace(tzinfo=UTC))
    maxima = _maxima(strategy, scores)
    fixed = _fixed_rules(pool, request)
    ruled: dict[tuple[Kind, str], Score] = {}
    for key, score in scores.items():
        kind = key[0]
        maximum = maxima.get(kind)
        cut_off = request.min_relevance
        if cut_off is None:
            cut_off = strategy.cut_offs.get(kind, -inf) / (maximum or 1.0)
        ruled[key] = _ruled(score, fixed.get(key), maximum, cut_off)
    return ruled


def _maxima(strategy: Strategy, scores: Scores) -> dict[Kind, float]:
    """Return what scores are divided by: the strategy's maximum of a kind, or a higher score."""
    maxima: dict[Kind, float] = dict(getattr(strategy, "max_scores", {}))
    for (kind, _), score in scores.items():
        if kind in maxima and maxima[kind] < score.value < inf:
            maxima[kind] = score.value
    return maxima


def _fixed_rules(
    pool: DataPoolSnapshot, request: ContextSelectionRequest
) -> dict[tuple[Kind, str], str]:
    """Return the rules that hold at any score. Later ones override earlier ones."""
    rules: dict[tuple[Kind, str], str] = {}
    for file in pool.context_files:
        if file.metadata.is_pinned:
            rules["file", file.id] = "pinned"
    for file_id in mentioned_files(pool.context_files, request):
        rules["file", file_id] = "mentioned"
    if pool.project_state and not request.intent.metadata.requires_project:
        rules["project", pool.project_state.name] = "not_required"
    rules |= dict.fromkeys(excluded_items(pool, request.exclude_patterns), "excluded")
    return rules


def _ruled(score: Score, fixed: str | None, maximum: float | None, cut_off: float) -> Score:
    value, parts = score.value if isfinite(score.value) else 0.0, score.parts
    if maximum is not None:
        value = max(value / maximum, 0.0)
        parts = {name: part / maximum for name, part in parts.items()}
    return Score(value, parts, fixed or ("ranked" if value >= cut_off else "below_cut_off"))
