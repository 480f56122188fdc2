"""The loop of a task and of an answer: ask a model, run its calls, ask again, within limits."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol, TypeVar

CallT = TypeVar("CallT")
EventT = TypeVar("EventT")
EventT_co = TypeVar("EventT_co", covariant=True)


class Dialogue(Protocol[CallT, EventT_co]):
    """One use of the loop: the model that is asked, and the calls that it may make.

    Attributes:
        goes_on: Whether the model is asked again. `ask` and `run` decide it, and their limits do.
    """

    goes_on: bool

    async def ask(self, turns_left: int, /) -> Sequence[CallT]:
        """Return the calls of the model's next turn, of which `turns_left` can follow."""

    def run(self, calls: Sequence[CallT]) -> AsyncGenerator[EventT_co, None]:
        """Run the calls of a turn, and yield what happens."""


async def model_loop(
    dialogue: Dialogue[CallT, EventT], *, max_turns: int
) -> AsyncGenerator[EventT, None]:
    """Ask a model and run its calls, turn by turn, until the dialogue does not go on.

    The next turn begins when all calls of this one have ended. Closing the generator ends them.

    Args:
        dialogue: Asks the model and runs its calls.
        max_turns: Maximum number of times that the model is asked.

    Yields:
        The events of the calls, in the order in which they happen.
    """
    for turns_left in reversed(range(max_turns)):
        calls = await dialogue.ask(turns_left)
        async with aclosing(dialogue.run(calls)) as events:
            async for event in events:
                yield event
        if not dialogue.goes_on:
            return


class Deadline:
    """The point in time at which model calls and tools end.

    Args:
        timeout_s: Seconds from now. None sets no limit.

    Attributes:
        at: The time of the event loop's clock, or None.
    """

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self.at: float | None = None
        if timeout_s is not None:
            self.at = asyncio.get_running_loop().time() + timeout_s

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.left_s() == 0

    def left_s(self) -> float | None:
        """Return the seconds that are left, at least 0, or None without a limit."""
        if self.at is None:
            return None
        return max(self.at - asyncio.get_running_loop().time(), 0.0)
