"""Hints at the items that the next selection is likely to need."""

from dataclasses import replace

import pytest

from llm_common.context import ContextBundle, DataPoolSnapshot, PrefetchHint, Score, prefetch_hints
from llm_common.context.request import Kind
from tests.context.samples import PROJECT, file, memory, output, packed, request_of, turn

SMALL = file("rain.py", "def rain(): return 1\n")
LARGE = file("long.py", "def long_story(): return 'and so on'\n" * 1_600)
KNOWN = memory(1, "It rained.")
NAMED = output(1)
GOOD = Score(1.0)
MENTIONED = Score(1.0, {}, "mentioned")
EXCLUDED = Score(1.0, {}, "excluded")


def bundle_of(
    scores: dict[tuple[Kind, str], Score], *, budget: int = 6_000, text: str | None = None
) -> ContextBundle:
    """Pack a turn, the project, and the items above that have a score."""
    pool = DataPoolSnapshot(
        session_log=(turn(1, "Does it rain?"),),
        context_files=tuple(item for item in (SMALL, LARGE) if ("file", item.id) in scores),
        memory_hits=(KNOWN,) if ("memory", KNOWN.id) in scores else (),
        tool_outputs=(NAMED,) if ("output", NAMED.pointer_id) in scores else (),
        project_state=PROJECT,
    )
    return packed(pool, request_of(budget), scores, texts={NAMED.pointer_id: text} if text else {})


ALL: dict[tuple[Kind, str], Score] = {
    ("file", "rain.py"): GOOD,
    ("file", "long.py"): MENTIONED,
    ("memory", "m1"): GOOD,
    ("output", NAMED.pointer_id): GOOD,
}
LARGE_HINT = PrefetchHint("file", "long.py", "mentioned", 1)
LINE_HINT = PrefetchHint("output", NAMED.pointer_id, "pointer_line", 1)


def test_mentions_that_did_not_fit_come_before_lines_and_repeats_s1_16() -> None:
    assert prefetch_hints([bundle_of(ALL)]) == (LARGE_HINT, LINE_HINT)
    assert prefetch_hints([bundle_of(ALL)] * 2) == (
        replace(LARGE_HINT, times=2),
        replace(LINE_HINT, times=2),
        PrefetchHint("file", "rain.py", "kept_repeatedly", 2),
        PrefetchHint("memory", "m1", "kept_repeatedly", 2),
    )


def test_an_item_shown_since_is_no_longer_missed_s1_16() -> None:
    line, shown = bundle_of(ALL), bundle_of(ALL, budget=60_000, text="It rains.")
    assert prefetch_hints([line, shown]) == (
        PrefetchHint("file", "rain.py", "kept_repeatedly", 2),
        PrefetchHint("memory", "m1", "kept_repeatedly", 2),
    )
    assert prefetch_hints([shown, line])[:2] == (LARGE_HINT, LINE_HINT)


def test_items_outside_the_newest_selection_are_not_hinted_at_s1_16() -> None:
    without = bundle_of({("memory", "m1"): GOOD, ("file", "rain.py"): EXCLUDED})
    assert prefetch_hints([bundle_of(ALL)] * 3 + [without]) == (
        PrefetchHint("memory", "m1", "kept_repeatedly", 4),
    )


def test_only_the_five_newest_selections_count_s1_16() -> None:
    alone = bundle_of({("memory", "m1"): GOOD, ("file", "long.py"): EXCLUDED})
    assert [hint.times for hint in prefetch_hints([alone] * 9)] == [5]
    lines_long_ago = [bundle_of(ALL), *[bundle_of({})] * 5, bundle_of({("memory", "m1"): GOOD})]
    assert prefetch_hints(lines_long_ago) == ()


def test_at_most_limit_hints_are_returned_the_best_ones_s1_16() -> None:
    bundles = [bundle_of(ALL)] * 2
    for limit in range(5):
        assert prefetch_hints(bundles, limit=limit) == prefetch_hints(bundles)[:limit]
    with pytest.raises(ValueError, match="limit"):
        prefetch_hints(bundles, limit=-1)


def test_without_selections_there_are_no_hints_s1_16() -> None:
    assert prefetch_hints([]) == ()
    assert prefetch_hints([bundle_of(ALL, budget=150)] * 2) == (replace(LARGE_HINT, times=2),)
