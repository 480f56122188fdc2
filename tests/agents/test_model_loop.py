"""`model_loop`: how often a dialogue is asked, and what ends it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from llm_common.agents.runs import Deadline, model_loop


class Dialogue:
    """Asks for two calls a turn until its last turn."""

    def __init__(self, *, last_turn: int) -> None:
        self.goes_on = True
        self.turns_left: list[int] = []
        self.ended = 0
        self._last_turn = last_turn

    async def ask(self, turns_left: int, /) -> Sequence[str]:
        self.turns_left.append(turns_left)
        return [f"{len(self.turns_left)}{name}" for name in "ab"]

    async def run(self, calls: Sequence[str]) -> AsyncGenerator[str, None]:
        try:
            for call in calls:
                yield call
        finally:
            self.ended += 1
        self.goes_on = len(self.turns_left) < self._last_turn


async def events_of(dialogue: Dialogue, max_turns: int) -> list[str]:
    return [event async for event in model_loop(dialogue, max_turns=max_turns)]


async def test_a_loop_asks_again_as_long_as_its_dialogue_goes_on() -> None:
    dialogue = Dialogue(last_turn=2)
    assert await events_of(dialogue, 9) == ["1a", "1b", "2a", "2b"]
    assert dialogue.turns_left == [8, 7]


@pytest.mark.parametrize("max_turns", [0, 1, 3])
async def test_a_loop_never_asks_more_often_than_allowed(max_turns: int) -> None:
    dialogue = Dialogue(last_turn=9)
    await events_of(dialogue, max_turns)
    assert dialogue.turns_left == list(reversed(range(max_turns)))


async def test_closing_a_loop_ends_the_calls_of_its_turn() -> None:
    dialogue = Dialogue(last_turn=9)
    async with aclosing(model_loop(dialogue, max_turns=9)) as events:
        assert await anext(events) == "1a"
    assert (dialogue.ended, dialogue.turns_left) == (1, [8])


async def test_a_deadline_without_a_limit_is_never_over() -> None:
    deadline = Deadline(None)
    assert (deadline.at, deadline.left_s(), deadline.is_over) == (None, None, False)


async def test_a_deadline_that_has_passed_leaves_no_time() -> None:
    over, far = Deadline(-1.0), Deadline(1_000.0)
    assert (over.left_s(), over.is_over, far.is_over) == (0.0, True, False)
    left_s = far.left_s()
    assert left_s is not None
    assert 0 < left_s <= 1_000
