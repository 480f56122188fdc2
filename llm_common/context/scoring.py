"""Scores every item of a pool by a named strategy, and sets its rule."""

from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf, isfinite
from typing import Final, Protocol

from llm_common.context.measured_scoring import MeasuredStrategy
from llm_common.context.mentions import excluded_items, mentioned_files
from llm_common.context.pool import DataPoolSnapshot
from llm_common.context.request import ContextSelectionRequest, Kind, Score, Scores
from llm_common.context.spec_scoring import SpecStrategy


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
