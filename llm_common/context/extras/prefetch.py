"""`prefetch_hints`: the items that the next selection is likely to need, by the last ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from llm_common.context.bundle import ContextBundle, ItemAccount
from llm_common.context.request import Kind

PrefetchReason = Literal["mentioned", "pointer_line", "kept_repeatedly"]

_RECENT: Final = 5
_REPEATEDLY: Final = 2
_OUT_OF_REACH: Final = frozenset({"excluded", "not_required", "unavailable"})
_ORDER: Final = {reason: place for place, reason in enumerate(get_args(PrefetchReason))}


@dataclass(frozen=True, slots=True)
class PrefetchHint:
    """An item to prepare: read its text, load its result, compute its vector.

    Attributes:
        kind: Kind of the item.
        id: Its id.
        reason: `mentioned`: the user named it, and there was no room for all of it; `pointer_line`:
            an output of which only a line was shown, for the model to ask for it;
            `kept_repeatedly`: it was shown at least twice.
        times: In how many of the newest bundles.
    """

    kind: Kind
    id: str
    reason: PrefetchReason
    times: int


def prefetch_hints(
    bundles: Sequence[ContextBundle], *, limit: int = 10
) -> tuple[PrefetchHint, ...]:
    """Return the items that the next selection is likely to need, most likely first.

    Ordered by reason as in `PrefetchHint`, then by the number of bundles, then the newest; ties by
    kind and id. Only the five newest bundles count, and only items that the newest one could show.
    An item that was shown after it had been missed no longer counts as missed. The newest turns and
    the project are always there, and never hinted at. Pure.

    Args:
        bundles: The last selections, oldest first.
        limit: Most hints to give.

    Raises:
        ValueError: `limit` is negative.
    """
    if limit < 0:
        raise ValueError(f"limit is {limit}; it must be 0 or more")
    newest_first = bundles[-_RECENT:][::-1]
    ages: dict[tuple[Kind, str], dict[PrefetchReason, list[int]]] = {}
    for age, bundle in enumerate(newest_first):
        for account in (*bundle.kept, *bundle.dropped):
            by_reason = ages.setdefault((account.kind, account.id), {})
            reason = _reason(account)
            if reason == "kept_repeatedly" or (reason and "kept_repeatedly" not in by_reason):
                by_reason.setdefault(reason, []).append(age)

    ranked: list[tuple[int, int, int, Kind, str, PrefetchHint]] = []
    for account in (*newest_first[0].kept, *newest_first[0].dropped) if newest_first else ():
        by_reason = ages[account.kind, account.id]
        reason = _first_reason(by_reason)
        if reason is not None and account.reason not in _OUT_OF_REACH:
            times = len(by_reason[reason])
            hint = PrefetchHint(account.kind, account.id, reason, times)
            newest = by_reason[reason][0]
            ranked.append((_ORDER[reason], -times, newest, account.kind, account.id, hint))
    return tuple(hint for *_, hint in sorted(ranked)[:limit])


def _reason(account: ItemAccount) -> PrefetchReason | None:
    """Return the reason that one bundle gives for an item."""
    if account.rule == "mentioned" and account.form != "whole":
        return "mentioned"
    if account.form == "left_out" or account.reason == "newest" or account.kind == "project":
        return None
    if account.kind == "output" and account.form == "pointer":
        return "pointer_line"
    return "kept_repeatedly"


def _first_reason(ages: Mapping[PrefetchReason, Sequence[int]]) -> PrefetchReason | None:
    reasons = set(ages)
    if len(ages.get("kept_repeatedly", ())) < _REPEATEDLY:
        reasons.discard("kept_repeatedly")
    return min(reasons, key=_ORDER.__getitem__, default=None)
