"""Score every item of a pool by a named strategy, by default `measured`, and set its rule.

`measured` has the highest recall on the evaluation sets. Turns and outputs were measured with
benchmarks/quality_context.py. Files were measured by the subjects of 206 commits of seven public
repositories against the files that they changed. Memories were not measured. Each part lies between
0 and its weight, so that parts compare. A small change of a weight hardly moves the mean over the
sets, but some sets are only a point above their promises. Measure all sets again after any change.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
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
    weighted,
    with_zone,
)
from llm_common.context.spec_scoring import SpecStrategy, decay
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking import Embedder
from llm_common.ranking.embeddings import prominence
from llm_common.ranking.lexical import BM25, folded, scan_columns
from llm_common.selection.relevance_ranking import rank_pointers

_VECTOR_WEIGHT: Final = 0.4

# Characters over which a neighbour's share falls to a third, about a minute of talk.
_NEIGHBOURHOOD: Final = 800.0
# A turn counts as so many characters more, since the next one often changes the matter. With 1,
# LoCoMo's bundles have .05 less of the evidence.
_BREAK_CHARS: Final = 180

# Of content and path. The path says most about a file.
_FILE_FIELD_WEIGHTS: Final = (1.0, 10.0)
_FILE_BM25: Final = BM25(k1=1.2, b=0.3)  # a long file is not wordy, it contains more
_PATH_VECTOR_WEIGHT: Final = 0.2  # low, because a path is a short text
_CODE_WEIGHT: Final = 0.1
_TEST_WEIGHT: Final = -0.1
_CHANGE_WEIGHT: Final = 0.3
_CHANGE_DECAY: Final = timedelta(weeks=1)
_FILE_CUT_OFF: Final = 0.15  # above `_CODE_WEIGHT`, since being code alone is not relevant

# The values for memories are from the specification.
_MEMORY_RECENCY_WEIGHT: Final = 0.2
_MEMORY_PROJECT_WEIGHT: Final = 0.3
_MEMORY_DECAY: Final = timedelta(days=1)

# The sum of all parts at their largest.
_MAX_SCORES: Final[Mapping[Kind, float]] = {
    "turn": 1.0,
    "file": 1.0 + _PATH_VECTOR_WEIGHT + _CODE_WEIGHT + _CHANGE_WEIGHT,
    # 2.0 for the store's relevance and the words, each at most 1.
    "memory": 2.0 + _VECTOR_WEIGHT + _MEMORY_RECENCY_WEIGHT + _MEMORY_PROJECT_WEIGHT,
    "output": 3.3,  # the maximum of `rank_pointers`, unless the query names one
    "project": 1.0,
}

_ASSISTANT: Final = "assistant"
_SEPARATORS: Final = re.compile(r"[\W_]+")

# The key of an item, and the parts of its score.
_ItemParts = tuple[tuple[Kind, str], dict[str, float]]


class MeasuredStrategy:
    """Ranks items by the words they share with the request, and by features of their kind.

    The parts of a score, by name:

    - turn: `words`, `vectors` and `neighbours`, the scores of the turns before it or after it,
      fading over 800 characters. The best turn has 1. Its time does not count, so an old turn that
      answers beats a new one that does not.
    - file: `words` over content and path. `vectors` of the path, .2. `code`, .1.
      `tests`, -.1. `change`, `.3 * exp(-age in weeks)`.
    - memory: `relevance`, as its store returned it, within [0, 1]. `words`. `vectors`, .4.
      `recency`, `.2 * exp(-age in days)`. `project`, .3.
    - output: the parts of `rank_pointers`, for the request and the assistant's last turn.
    - project: 1.

    `words` and `vectors` compare within a kind, and the best match has 1. Priority hints are part
    of the request. Without an embedder `vectors` is 0. The request's weights are factors of the
    parts. `score_pool` divides scores by `max_scores`, so that a selection's scores are between 0
    and 1. Threads may share a strategy.

    To use vectors: `ContextSelector(strategies={"measured":
    MeasuredStrategy(embedder=StaticVectors())})`.

    Args:
        embedder: Measures the similarity of texts, such as `StaticVectors` of the extra
            `embeddings`. None uses words alone.
    """

    cut_offs: Mapping[Kind, float] = {"file": _FILE_CUT_OFF}
    max_scores: Mapping[Kind, float] = _MAX_SCORES

    def __init__(self, *, embedder: Embedder | None = None) -> None:
        self._embedder = embedder

    def score(
        self, pool: DataPoolSnapshot, request: ContextSelectionRequest, *, now: datetime
    ) -> Scores:
        """Return the value and the parts of every item. Takes time linear in the pool."""
        query = "\n".join([request.intent.text, *request.priority_hints])
        # Ids break ties in time, so that the order of the pool does not matter.
        turns = sorted(pool.session_log, key=attrgetter("timestamp", "id"))
        project = request.intent.metadata.current_project
        # A short answer of the user refers to the assistant's last turn.
        replies = (turn.content for turn in reversed(turns) if turn.role == _ASSISTANT)
        scores: dict[tuple[Kind, str], Score] = {}
        for key, parts in chain(
            self._turn_parts(turns, query),
            self._file_parts(pool.context_files, query, now),
            self._memory_parts(pool.memory_hits, query, project, now),
            self._output_parts(pool.tool_outputs, query, next(replies, "")),
        ):
            scores[key] = weighted(parts, request.weights)
        if pool.project_state:
            scores["project", pool.project_state.name] = weighted({"project": 1.0}, request.weights)
        return scores

    def _turn_parts(self, turns: Sequence[TurnEntry], query: str) -> Iterator[_ItemParts]:
        # With the speaker, since a request may name one.
        documents = [folded(f"{turn.role}: {turn.content}") for turn in turns]
        words = scan_columns(query, [documents], weights=(1.0,))
        contents = [turn.content for turn in turns]
        vectors = self._vector_scores(query, contents)
        matches = [*map(add, words, vectors)]
        neighbours = _neighbour_scores(matches, contents)
        top = max(map(add, matches, neighbours), default=0.0) or 1.0  # 1.0 if no turn matches
        for index, turn in enumerate(turns):
            yield (
                ("turn", turn.id),
                {
                    "words": words[index] / top,
                    "vectors": vectors[index] / top,
                    "neighbours": neighbours[index] / top,
                },
            )

    def _file_parts(
        self, files: Sequence[ContextFile], query: str, now: datetime
    ) -> Iterator[_ItemParts]:
        fields = [
            [folded(file.content) for file in files],
            [folded(file.path) for file in files],
        ]
        words = scan_columns(query, fields, weights=_FILE_FIELD_WEIGHTS, bm25=_FILE_BM25)
        paths = [_SEPARATORS.sub(" ", file.path) for file in files]
        vectors = self._vector_scores(query, paths, _PATH_VECTOR_WEIGHT)
        for index, file in enumerate(files):
            change = decay(file.metadata.last_modified, now, _CHANGE_DECAY)
            yield (
                ("file", file.id),
                {
                    "words": words[index],
                    "vectors": vectors[index],
                    "code": _CODE_WEIGHT * is_code(file.path, file.language),
                    "tests": _TEST_WEIGHT if is_test(file.path) else 0.0,  # never -0.0
                    "change": _CHANGE_WEIGHT * change,
                },
            )

    def _memory_parts(
        self, snippets: Sequence[MemorySnippet], query: str, project: str | None, now: datetime
    ) -> Iterator[_ItemParts]:
        texts = [snippet.text for snippet in snippets]
        words = scan_columns(query, [list(map(folded, texts))], weights=(1.0,))
        vectors = self._vector_scores(query, texts)
        for index, snippet in enumerate(snippets):
            is_of_project = bool(project) and project == snippet.metadata.project
            # A store may return any number, and `_MAX_SCORES` relies on at most 1.
            relevance = snippet.relevance_score
            recency = decay(snippet.timestamp, now, _MEMORY_DECAY)
            yield (
                ("memory", snippet.id),
                {
                    "relevance": min(max(relevance, 0.0), 1.0) if isfinite(relevance) else 0.0,
                    "words": words[index],
                    "vectors": vectors[index],
                    "recency": _MEMORY_RECENCY_WEIGHT * recency,
                    "project": _MEMORY_PROJECT_WEIGHT * is_of_project,
                },
            )

    def _output_parts(
        self, outputs: Sequence[ContextPointer], query: str, context: str
    ) -> Iterator[_ItemParts]:
        # `rank_pointers` breaks ties in time by position.
        by_id = sorted(outputs, key=attrgetter("pointer_id"))
        for ranked in rank_pointers(query, by_id, context=context, embedder=self._embedder):
            yield ("output", ranked.pointer.pointer_id), dict(ranked.parts)

    def _vector_scores(
        self, query: str, texts: Sequence[str], weight: float = _VECTOR_WEIGHT
    ) -> list[float]:
        if self._embedder is None:
            return [0.0] * len(texts)
        similarities = self._embedder.similarities(query, texts)
        return [weight * value for value in prominence(similarities)]


def _neighbour_scores(values: Sequence[float], texts: Sequence[str]) -> list[float]:
    """Return the faded sum of the values before or after each text, whichever is larger."""
    fades = [math.exp(-(len(text) + _BREAK_CHARS) / _NEIGHBOURHOOD) for text in texts]
    before = _faded_sums(values, fades)
    after = _faded_sums(values[::-1], fades[::-1])[::-1]
    # Not both, since the newest text has none after it.
    return [*map(max, before, after)]


def _faded_sums(values: Sequence[float], fades: Sequence[float]) -> list[float]:
    """Return for each position the sum of the values before it, faded by the texts between."""
    total, sums = 0.0, []
    for value, fade in zip(values, fades, strict=True):
        sums.append(total)
        total = (total + value) * fade
    return sums


class Strategy(Protocol):
    """A way to score items. Pure, and safe to share between threads.

    A strategy may also have `max_scores`, a mapping from kind to the highest score. `score_pool`
    then divides the scores of these kinds by it, so that they are between 0 and 1.
    """

    @property
    def cut_offs(self) -> Mapping[Kind, float]:
        """Return the minimum score of each kind. A kind without one accepts any score."""

    def score(
        self, pool: DataPoolSnapshot, request: ContextSelectionRequest, *, now: datetime
    ) -> Scores:
        """Return the value and the parts of every item, by kind and id.

        The id of a project is its name. The order of the pool must not matter. `score_pool` sets
        the rule of each score.
        """


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "measured": MeasuredStrategy(),
    "spec": SpecStrategy(),
}
"""The default strategies by name."""


def score_pool(
    pool: DataPoolSnapshot,
    request: ContextSelectionRequest,
    *,
    now: datetime,
    strategies: Mapping[str, Strategy] = STRATEGIES,
) -> Scores:
    """Score every item of the pool, with a finite value and a rule.

    The first of these rules that applies is set: `excluded` (by a pattern of the request),
    `not_required` (a project that the intent does not need), `mentioned` (a file that the query or
    a hint names), `pinned`, `below_cut_off`, `ranked`. They follow QR-1 and QR-3 of the
    specification, section "Quality Requirements". Mentioned and pinned items have no cut-off. Pure,
    linear in the pool, and independent of its order.

    If the strategy has `max_scores`, each score and its parts are divided by the maximum of the
    kind, and a negative score becomes 0. A score above the maximum, which weights can cause,
    replaces the maximum. So no order and no ratio changes.

    Args:
        pool: The candidates.
        request: Names the strategy. Its `min_relevance` replaces the strategy's cut-offs, and is
            compared with the returned scores. A cut-off is compared with the strategy's scores.
        now: The time from which ages are measured. A time without a zone is in UTC.
        strategies: The strategies that the request may name.

    Returns:
        A score for each item, by kind and id.

    Raises:
        ValueError: If the request names an unknown strategy.
    """
    strategy = strategies.get(request.strategy)
    if strategy is None:
        raise ValueError(
            f"there is no strategy {request.strategy!r}; use one of {sorted(strategies)}"
        )
    scores = strategy.score(pool, request, now=with_zone(now))
    maxima = _maxima(strategy, scores)
    fixed = _fixed_rules(pool, request)
    ruled: dict[tuple[Kind, str], Score] = {}
    for key, score in scores.items():
        kind = key[0]
        maximum = maxima.get(kind)
        cut_off = request.min_relevance
        if cut_off is None:
            # The strategy's cut-off is compared after the division too.
            cut_off = strategy.cut_offs.get(kind, -inf) / (maximum or 1.0)
        value, parts = score.value, score.parts
        if not isfinite(value):
            value = 0.0
        if maximum is not None:
            value = max(value / maximum, 0.0)
            parts = {name: part / maximum for name, part in parts.items()}
        rule = fixed.get(key)
        if rule is None:
            rule = "ranked" if value >= cut_off else "below_cut_off"
        ruled[key] = Score(value, parts, rule)
    return ruled


def _maxima(strategy: Strategy, scores: Scores) -> dict[Kind, float]:
    """Return the divisor of each kind: the strategy's maximum, or a higher score."""
    # Not in the protocol, so that a caller's strategy may leave it out.
    maxima: dict[Kind, float] = dict(getattr(strategy, "max_scores", {}))
    for (kind, _), score in scores.items():
        # An infinite maximum would turn all other scores of its kind into 0.
        if kind in maxima and maxima[kind] < score.value < inf:
            maxima[kind] = score.value
    return maxima


def _fixed_rules(
    pool: DataPoolSnapshot, request: ContextSelectionRequest
) -> dict[tuple[Kind, str], str]:
    """Return the rules that do not depend on the score."""
    rules: dict[tuple[Kind, str], str] = {}  # in ascending priority, so that later ones replace
    for file in pool.context_files:
        if file.metadata.is_pinned:
            rules["file", file.id] = "pinned"
    for file_id in mentioned_files(pool.context_files, request):
        rules["file", file_id] = "mentioned"
    if pool.project_state and not request.intent.metadata.requires_project:
        rules["project", pool.project_state.name] = "not_required"
    rules |= dict.fromkeys(excluded_items(pool, request.exclude_patterns), "excluded")
    return rules
