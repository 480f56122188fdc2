"""Compression of old turns to summaries, also if the summariser fails."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from llm_common.context import (
    ContextSelector,
    DataPoolSnapshot,
    Summarise,
    TurnEntry,
    compress_turns,
)
from llm_common.context.compression import COMPRESSED_IDS, SUMMARY_ROLE
from tests.context.samples import CharacterCounter, request_of, turn

WINDOW = 4
GROUP = 50
TARGET = 20


class Summariser:
    """Names the first and last turn of a group, and records the groups."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []

    async def __call__(self, turns: Sequence[TurnEntry]) -> str:
        self.groups.append([item.id for item in turns])
        return f" {turns[0].id} to {turns[-1].id} "


def talk(count: int) -> list[TurnEntry]:
    """Return turns of ten tokens each, so that five fill a group."""
    return [turn(index, f"turn {index:05}") for index in range(count)]


async def compressed(turns: Sequence[TurnEntry], summarise: Summarise) -> tuple[TurnEntry, ...]:
    return await compress_turns(
        turns,
        summarise,
        keep_newest=WINDOW,
        group_tokens=GROUP,
        target_tokens=TARGET,
        counter=CharacterCounter(),
    )


async def test_each_full_group_becomes_a_summary_with_its_ids_s1_16() -> None:
    turns = talk(17)  # 13 old ones: two groups, three left over
    first, second, *later = await compressed(turns, Summariser())
    assert (first.content, second.content) == ("t0000 to t0004", "t0005 to t0009")
    assert first.metadata == {COMPRESSED_IDS: ["t0000", "t0001", "t0002", "t0003", "t0004"]}
    assert (first.role, first.tokens, first.timestamp) == (SUMMARY_ROLE, 14, turns[4].timestamp)
    assert later == turns[10:]
    assert first.id != second.id


async def test_the_order_of_the_turns_never_matters_s1_16() -> None:
    turns = talk(30)
    expected = await compressed(turns, Summariser())
    Random(1).shuffle(turns)
    assert await compressed(turns, Summariser()) == expected


async def test_compressing_again_changes_nothing_and_calls_no_summariser_s1_16() -> None:
    once = await compressed(talk(30), Summariser())
    again = Summariser()
    assert await compressed(once, again) == once
    assert again.groups == []


async def test_the_beginning_changes_only_with_a_full_group_s1_16() -> None:
    summarise = Summariser()
    turns: tuple[TurnEntry, ...] = ()
    beginnings = []
    for item in talk(40):
        turns = await compressed([*turns, item], summarise)
        beginnings.append([summary.content for summary in turns if summary.role == SUMMARY_ROLE])
    for before, after in pairwise(beginnings):
        assert after[: len(before)] == before
    assert len({len(item) for item in beginnings}) - 1 == len(summarise.groups) == 7
    assert [turn_id for group in summarise.groups for turn_id in group] == [
        f"t{index:04}" for index in range(35)
    ]


async def test_a_late_turn_comes_after_the_summaries_s1_16() -> None:
    once = await compressed(talk(17), Summariser())
    late = turn(-5, "late")
    assert await compressed([*once, late], Summariser()) == (*once[:2], late, *once[2:])


async def test_all_turns_with_their_summaries_compress_alike_s1_16() -> None:
    turns = talk(40)
    summaries = [
        summary
        for summary in await compressed(turns[:25], Summariser())
        if summary.role == SUMMARY_ROLE
    ]
    step_by_step = await compressed(
        [*await compressed(turns[:25], Summariser()), *turns[25:]], Summariser()
    )
    assert await compressed([*turns, *summaries], Summariser()) == step_by_step


async def raising(turns: Sequence[TurnEntry]) -> str:
    raise RuntimeError(turns[0].content)


async def empty(turns: Sequence[TurnEntry]) -> str:
    return " \n"


async def nothing(turns: Sequence[TurnEntry]) -> None:
    return None


async def not_text(turns: Sequence[TurnEntry]) -> str:
    return ["a", "list"]  # type: ignore[return-value]


async def too_long(turns: Sequence[TurnEntry]) -> str:
    return "x" * (TARGET + 1)


def not_awaitable(turns: Sequence[TurnEntry]) -> str:
    return "text"


@pytest.mark.parametrize("summarise", [raising, empty, nothing, not_text, too_long, not_awaitable])
async def test_a_failing_summariser_leaves_the_turns_unchanged_s1_16(
    summarise: Summarise, caplog: pytest.LogCaptureFixture
) -> None:
    turns = talk(30)
    assert await compressed(turns, summarise) == tuple(turns)
    assert len(caplog.records) <= 2
    assert "turn 0" not in caplog.text


async def test_a_summary_may_have_exactly_the_target_tokens_s1_16() -> None:
    async def as_long_as_allowed(turns: Sequence[TurnEntry]) -> str:
        return "x" * TARGET

    first, *_ = await compressed(talk(10), as_long_as_allowed)
    assert (first.role, first.tokens) == (SUMMARY_ROLE, TARGET)


async def test_summaries_before_a_failure_stay_and_later_groups_are_retried_s1_16() -> None:
    good = Summariser()

    async def second_fails(turns: Sequence[TurnEntry]) -> str:
        return await good(turns) if not good.groups else ""

    once = await compressed(talk(30), second_fails)
    assert [item.role == SUMMARY_ROLE for item in once[:2]] == [True, False]
    assert await compressed(once, Summariser()) == await compressed(talk(30), Summariser())


async def test_cancellation_reaches_the_summariser_and_the_caller_s1_16() -> None:
    started = asyncio.Event()

    async def hanging(turns: Sequence[TurnEntry]) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    task = asyncio.create_task(compressed(talk(30), hanging))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_metadata_alone_does_not_make_a_turn_a_summary() -> None:
    forged = turn(0, "hello").model_copy(update={"metadata": {COMPRESSED_IDS: ["t0001"]}})
    odd = turn(2, "odd", role=SUMMARY_ROLE).model_copy(
        update={"metadata": {COMPRESSED_IDS: "t0001"}}
    )
    assert await compressed([forged, turn(1, "there"), odd], Summariser()) == (
        forged,
        turn(1, "there"),
        odd,
    )


@pytest.mark.parametrize(
    ("newest", "group", "target"), [(-1, 50, 20), (0, 50, 0), (0, 50, 50), (0, 20, 50)]
)
async def test_inconsistent_limits_raise(newest: int, group: int, target: int) -> None:
    with pytest.raises(ValueError, match="target_tokens"):
        await compress_turns(
            [], Summariser(), keep_newest=newest, group_tokens=group, target_tokens=target
        )


async def test_a_selection_accepts_compressed_turns_s1_16() -> None:
    turns = await compressed(talk(30), Summariser())
    bundle = await ContextSelector().select(request_of(4_000), DataPoolSnapshot(session_log=turns))
    assert bundle.turns == turns
    assert "summary: t0000 to t0004" in bundle.render()
