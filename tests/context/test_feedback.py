"""Weights that are learned from feedback: stored, shared, bounded and useful."""

import asyncio
import math
import pickle
import sqlite3
import stat
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from llm_common.context import (
    AdaptiveWeights,
    ContextBundle,
    ContextFile,
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    FileMetadata,
    IntentType,
    ItemAccount,
    Score,
    classify_intent,
)
from llm_common.context.feedback import HALF_LIFE, STEP, bounded, faded, pushes
from llm_common.context.request import Kind
from llm_common.core import DefaultCounter
from llm_common.errors import StoreError
from tests.context.samples import NOON, file, memory, packed, request_of, turn

WRITING, DEBUGGING = IntentType.CODE_WRITING, IntentType.CODE_DEBUGGING
SUBJECTS = (
    "parser",
    "scheduler",
    "ledger",
    "mailbox",
    "gateway",
    "archive",
    "planner",
    "session",
    "index",
    "cache",
)

TRAINING = [prefix + subject for prefix in ("", "sub", "re") for subject in SUBJECTS[:7]]


def pool_of(subject: str) -> DataPoolSnapshot:
    """Return a pool of files about a subject, one changed today, one mentioned, and unrelated ones."""
    settled = [
        ContextFile(
            id=f"{subject}-{number}",
            path=f"{subject}/overflow{number}.md",
            name="",
            content=f"{subject} overflow " * 60,
        )
        for number in range(6)
    ]
    changed = ContextFile(
        id=f"{subject}-changed",
        path="live/current.md",
        name="current.md",
        content=f"the {subject}, " + "and much more, " * 30,
        metadata=FileMetadata(last_modified=NOON),
    )
    unrelated = [file(f"other{number}.md", "of other matters") for number in range(30)]
    mentioned = file("named.md", "nothing of it, " * 40)
    return DataPoolSnapshot(
        context_files=(*settled, changed, mentioned, *unrelated),
        session_log=tuple(turn(number, f"We talked of the {subject}.") for number in range(5)),
    )


def request_about(subject: str, weights: dict[str, float] | None = None) -> ContextSelectionRequest:
    intent = classify_intent(f"fix the {subject} overflow, see named.md")
    return ContextSelectionRequest(intent=intent, token_budget=900, weights=weights or {}, now=NOON)


async def selected(subject: str, weights: dict[str, float] | None = None) -> ContextBundle:
    return await ContextSelector().select(request_about(subject, weights), pool_of(subject))


def rank(bundle: ContextBundle, item_id: str) -> int:
    files = [account for account in (*bundle.kept, *bundle.dropped) if account.kind == "file"]
    files.sort(key=lambda account: (-account.score, account.id))
    return [account.id for account in files].index(item_id)


def shows(bundle: ContextBundle, item_id: str) -> bool:
    return any(account.id == item_id and account.form == "whole" for account in bundle.kept)


@pytest.fixture
def adaptive(tmp_path: Path) -> AdaptiveWeights:
    return AdaptiveWeights(tmp_path / "weights.db")


async def test_feedback_lifts_helpful_items_within_the_rules_s1_16(
    adaptive: AdaptiveWeights,
) -> None:
    for subject in SUBJECTS[7:]:
        bundle = await selected(subject)
        assert rank(bundle, f"{subject}-changed") == 7
        assert not shows(bundle, f"{subject}-changed")
    for subject in TRAINING:
        bundle = await selected(subject, await adaptive.weights(DEBUGGING, now=NOON))
        await adaptive.record_feedback(bundle, f"{subject}-changed", True, now=NOON)
        await adaptive.record_feedback(
            bundle, bundle.files[1].id, bundle.files[1].path == "live/current.md", now=NOON
        )
    weights = await adaptive.weights(DEBUGGING, now=NOON)
    assert weights["change"] > 1.0 > weights["words"]
    for subject in SUBJECTS[7:]:
        bundle = await selected(subject, weights)
        assert rank(bundle, f"{subject}-changed") == 0
        assert shows(bundle, f"{subject}-changed")
        assert DefaultCounter().count(bundle.render()) == bundle.metadata.total_tokens <= 900
        assert bundle.files[0].name == "named.md"
        assert bundle.turns[-1].id == "t0004"


async def test_without_feedback_there_are_no_weights_s1_16(adaptive: AdaptiveWeights) -> None:
    assert await adaptive.weights(DEBUGGING) == {}
    assert await selected("parser", await adaptive.weights(DEBUGGING)) == await selected("parser")


async def test_weights_apply_to_the_intent_and_strategy_of_the_bundle_s1_16(
    adaptive: AdaptiveWeights,
) -> None:
    assert await adaptive.record_feedback(await selected("parser"), "parser-changed", True)
    assert await adaptive.weights(DEBUGGING) != {}
    assert await adaptive.weights(WRITING) == {}
    assert await adaptive.weights(DEBUGGING, strategy="spec") == {}


async def test_factors_stay_between_a_half_and_two_s1_16(
    adaptive: AdaptiveWeights,
) -> None:
    bundle = await selected("parser")
    for number in range(40):
        another = replace(bundle, metadata=replace(bundle.metadata, selection_strategy=f"{number}"))
        await adaptive.record_feedback(another, "parser-changed", True, now=NOON)
    weights = await adaptive.weights(DEBUGGING, now=NOON)
    assert (weights["change"], weights["words"]) == (2.0, 0.5)


async def test_factors_decay_to_one_s1_16(adaptive: AdaptiveWeights) -> None:
    await adaptive.record_feedback(await selected("parser"), "parser-changed", True, now=NOON)
    at_once = await adaptive.weights(DEBUGGING, now=NOON)
    later = await adaptive.weights(DEBUGGING, now=NOON + timedelta(days=30))
    assert 1.0 > later["words"] > at_once["words"]
    assert await adaptive.weights(DEBUGGING, now=NOON + timedelta(days=400)) == {}


async def test_a_verdict_counts_once_and_its_opposite_replaces_it_s1_16(
    adaptive: AdaptiveWeights, tmp_path: Path
) -> None:
    bundle = await selected("parser")
    assert await adaptive.record_feedback(bundle, "parser-changed", True, now=NOON)
    once = await adaptive.weights(DEBUGGING, now=NOON)
    assert not await adaptive.record_feedback(
        await selected("parser"), "parser-changed", True, now=NOON
    )
    assert await adaptive.weights(DEBUGGING, now=NOON) == once
    assert await adaptive.record_feedback(bundle, "parser-changed", False, now=NOON)
    second = AdaptiveWeights(tmp_path / "other.db")
    await second.record_feedback(bundle, "parser-changed", False, now=NOON)
    assert await adaptive.weights(DEBUGGING, now=NOON) == await second.weights(DEBUGGING, now=NOON)


async def test_an_item_outside_the_bundle_raises_s1_16(adaptive: AdaptiveWeights) -> None:
    pool = DataPoolSnapshot(
        context_files=(file("m1", "rain"), file("f.py", "wind")),
        memory_hits=(memory(1, "rain"), memory(2, "wind")),
    )
    bundle = packed(pool, request_of(900), {})
    with pytest.raises(ValueError, match=r"no item with the id '[^']+'; take one of its accounts"):
        await adaptive.record_feedback(bundle, "m9", True)
    with pytest.raises(ValueError, match="give the kind"):
        await adaptive.record_feedback(bundle, "m1", True)
    assert await adaptive.record_feedback(bundle, "m1", True, kind="memory")
    assert await adaptive.record_feedback(bundle, "m1", True, kind="file")


async def test_the_file_is_private_and_contains_no_texts_or_ids_s1_16(tmp_path: Path) -> None:
    path = tmp_path / "made" / "weights.db"
    await AdaptiveWeights(path).record_feedback(await selected("parser"), "parser-changed", True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        dump = "\n".join(connection.iterdump())
    connection.close()
    assert "debugging" in dump
    assert not any(word in dump for word in ("parser", "overflow", "named.md", "current.md"))


async def test_a_new_object_continues_with_the_same_file_s1_16(
    adaptive: AdaptiveWeights, tmp_path: Path
) -> None:
    await adaptive.record_feedback(await selected("parser"), "parser-changed", True, now=NOON)
    again = AdaptiveWeights(tmp_path / "weights.db")
    assert (
        await again.weights(DEBUGGING, now=NOON)
        == await adaptive.weights(DEBUGGING, now=NOON)
        != {}
    )


PROCESS = """
import asyncio, pickle, sys
from llm_common.context import AdaptiveWeights
async def main():
    adaptive = AdaptiveWeights(sys.argv[1])
    for bundle, item_id, now in pickle.load(sys.stdin.buffer):
        await adaptive.record_feedback(bundle, item_id, True, now=now)
asyncio.run(main())
"""


async def test_tasks_and_processes_that_share_a_file_lose_no_verdict_s1_16(tmp_path: Path) -> None:
    shared, alone = AdaptiveWeights(tmp_path / "shared.db"), AdaptiveWeights(tmp_path / "alone.db")
    verdicts = [(await selected(subject), f"{subject}-changed", NOON) for subject in SUBJECTS]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, str(tmp_path / "shared.db"), stdin=asyncio.subprocess.PIPE
    )
    here = [
        shared.record_feedback(bundle, item_id, True, now=now)
        for bundle, item_id, now in verdicts[5:]
    ]
    await asyncio.gather(process.communicate(pickle.dumps(verdicts[:5])), *here)
    assert process.returncode == 0
    for bundle, item_id, now in verdicts:
        await alone.record_feedback(bundle, item_id, True, now=now)
    assert (
        await shared.weights(DEBUGGING, now=NOON) == await alone.weights(DEBUGGING, now=NOON) != {}
    )


async def test_another_file_raises_a_store_error_s1_16(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(
        "not a database, but long enough to be looked at by SQLite " * 50
    )
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE others (id)")
    connection.close()
    for name in ("text", "other.db", ""):
        with pytest.raises(StoreError):
            await AdaptiveWeights(tmp_path / name).weights(DEBUGGING)


PARTS: list[dict[str, float]] = [
    {"words": 1.0, "change": 0.0, "code": 0.1},
    {"words": 0.2, "change": 0.3, "code": 0.1},
    {"words": 0.6, "change": 0.0, "code": 0.1},
]


def bundle_of(*parts: dict[str, float]) -> ContextBundle:
    pool = DataPoolSnapshot(
        context_files=tuple(file(f"f{number}.py", "rain " * 9) for number in range(len(parts))),
        memory_hits=(memory(1, "It rained."),),
    )
    scores: dict[tuple[Kind, str], Score] = {
        ("file", f"f{number}.py"): Score(sum(of_one.values()), of_one)
        for number, of_one in enumerate(parts)
    }
    return packed(
        pool, request_of(5_000), {**scores, ("memory", "m1"): Score(1.0, {"relevance": 1.0})}
    )


def account_of(bundle: ContextBundle, item_id: str) -> ItemAccount:
    return next(account for account in (*bundle.kept, *bundle.dropped) if account.id == item_id)


def moves(item_id: str, *parts: dict[str, float], helpful: bool = True) -> dict[str, float]:
    bundle = bundle_of(*parts)
    return pushes(bundle, account_of(bundle, item_id), helpful=helpful)


def test_a_verdict_moves_the_parts_that_distinguish_the_item_s1_16() -> None:
    helpful, unhelpful = moves("f1.py", *PARTS), moves("f1.py", *PARTS, helpful=False)
    assert helpful["change"] > 0 > helpful["words"]
    assert unhelpful["change"] < 0 < unhelpful["words"]
    assert "code" not in helpful  # all have it


def test_a_winning_item_moves_less_than_a_losing_one_s1_16() -> None:
    losing, winning = moves("f1.py", *PARTS[:2]), moves("f0.py", *PARTS[:2])
    assert abs(losing["words"]) > 1.2 * abs(winning["words"])


def test_without_differences_or_rivals_nothing_moves_s1_16() -> None:
    assert moves("m1", *PARTS) == {}  # no rival
    assert moves("f0.py", {"words": 1.0}, {"words": 1.0}) == {}
    # a single part orders alike by any factor
    assert moves("f0.py", {"words": 1.0}, {"words": 0.2}) == {"words": 0.0}
    assert moves("f0.py", {"words": math.inf, "code": math.nan}, {"words": 0.2, "code": 0.1}) == {}


def test_a_dropped_item_is_compared_with_the_kept_ones_s1_16() -> None:
    bundle = bundle_of(*PARTS)
    dropped = tuple(account_of(bundle, name) for name in ("f0.py", "f1.py"))
    divided = replace(
        bundle,
        kept=tuple(account for account in bundle.kept if account not in dropped),
        dropped=dropped,
    )
    missed = pushes(divided, account_of(bundle, "f1.py"), helpful=True)
    assert missed["change"] > 0 > missed["words"]
    assert missed == pushes(
        bundle_of(PARTS[2], PARTS[1]), account_of(bundle, "f1.py"), helpful=True
    )


FINITE_OR_NOT = st.dictionaries(
    st.sampled_from(["words", "change", "code"]), st.floats(), max_size=3
)


@given(st.lists(FINITE_OR_NOT, min_size=2, max_size=5), st.booleans())
def test_the_moves_of_a_verdict_are_small_and_add_up_to_zero_s1_16(
    parts: list[dict[str, float]], helpful: bool
) -> None:
    all_moves = moves("f0.py", *parts, helpful=helpful).values()
    assert all(abs(move) <= STEP for move in all_moves)
    assert sum(all_moves) == pytest.approx(0.0, abs=1e-9)


def test_a_factor_is_bounded_and_halves_in_its_half_life_s1_16() -> None:
    assert math.exp(bounded(9.0)) == pytest.approx(2.0)
    assert math.exp(bounded(-9.0)) == pytest.approx(0.5)
    assert bounded(0.1) == 0.1
    assert faded(0.4, HALF_LIFE) == faded(0.4, timedelta(days=30)) == pytest.approx(0.2)
    assert faded(0.4, 10 * HALF_LIFE) < 0.001
    assert faded(0.4, -timedelta(days=400)) == 0.4
