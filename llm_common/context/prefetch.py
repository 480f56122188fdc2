"""Predict the items that the next selection is likely to need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from llm_common.context.bundle import ContextBundle, ItemAccount
from llm_common.context.request import Kind

PrefetchReason = Literal["mentioned", "pointer_line", "kept_repeatedly"]

_RECENT: Final = 5
_REPEATEDLY: Final = 2
# A rule and not the budget kept these items out, so preparing them would not help.
_EXCLUDED: Final = frozenset({"excluded", "not_required", "unavailable"})
_REASONS: Final[tuple[PrefetchReason, ...]] = get_args(PrefetchReason)  # most likely first


@dataclass(frozen=True, slots=True)
class PrefetchHint:
    """An item to prepare, by reading its text, loading its result or computing its vector.

    Attributes:
        kind: Kind of the item.
        id: Id of the item.
        reason: `mentioned` (the user named it, and not all of it fitted), `pointer_line` (only a
            line of an output was shown, and the model may read it), or `kept_repeatedly` (it was
            shown at least twice).
        times: Number of recent bundles to which the reason applies.
    """

    kind: Kind
    id: str
    reason: PrefetchReason
    times: int


def prefetch_hints(
    bundles: Sequence[ContextBundle], *, limit: int = 10
) -> tuple[PrefetchHint, ...]:
    """Predict the items that the next selection is likely to need. Pure.

    Only the five newest bundles count, and only items that the newest bundle could show. An item
    that was shown after it had been missed no longer counts as missed. The newest turns and the
    project are always shown, so they are never hinted at.

    Args:
        bundles: The last selections, oldest first.
        limit: Maximum number of hints.

    Returns:
        The hints, most likely first: by reason, in the order of `PrefetchHint`, then by number of
        bundles, then by age. Ties are in the order of kind and id.

    Raises:
        ValueError: If `limit` is negative.
    """
    if limit < 0:
        raise ValueError(f"limit is {limit}; it must be 0 or more")
    if not bundles:
        return ()
    newest_first = bundles[-_RECENT:][::-1]
    ages: dict[tuple[Kind, str], dict[PrefetchReason, list[int]]] = {}
    for age, bundle in enumerate(newest_first):
        for account in (*bundle.kept, *bundle.dropped):
            by_reason = ages.setdefault((account.kind, account.id), {})
            reason = _reason(account)
            # Newest first, so an entry here is a bundle that showed the item later.
            if reason == "kept_repeatedly" or (reason and "kept_repeatedly" not in by_reason):
                by_reason.setdefault(reason, []).append(age)

    ranked: list[tuple[int, int, int, Kind, str, PrefetchHint]] = []
    # An item that the newest pool no longer contained cannot be prepared.
    for account in (*newest_first[0].kept, *newest_first[0].dropped):
        by_reason = ages[account.kind, account.id]
        reason = _first_reason(by_reason)
        if reason is not None and account.reason not in _EXCLUDED:
            times, newest = len(by_reason[reason]), by_reason[reason][0]
            hint = PrefetchHint(account.kind, account.id, reason, times)
            priority = _REASONS.index(reason)
            ranked.append((priority, -times, newest, account.kind, account.id, hint))
    return tuple(hint for *_, hint in sorted(ranked)[:limit])


def _reason(account: ItemAccount) -> PrefetchReason | None:
    """Return the reason for which a bundle hints at an item, or None."""
    if account.rule == "mentioned" and account.form != "whole":
        return "mentioned"
    if account.form == "left_out" or account.reason == "newest" or account.kind == "project":
        return None
    if account.kind == "output" and account.form == "pointer":
        return "pointer_line"
    return "kept_repeatedly"


def _first_reason(ages: Mapping[PrefetchReason, Sequence[int]]) -> PrefetchReason | None:
    for reason in _REASONS:
        if len(ages.get(reason, ())) >= (_REPEATEDLY if reason == "kept_repeatedly" else 1):
            return reason
    return None
