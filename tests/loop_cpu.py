"""Measures how long an event loop is busy between two of its ticks."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

_PAUSE_S = 0.001


async def longest_tick_s(work: Awaitable[T]) -> tuple[float, T]:
    """Await some work, and return the most CPU seconds of the loop between two ticks.

    CPU seconds of its thread alone, so that the load of the machine and other threads don't count.
    """
    loop = asyncio.get_running_loop()
    longest_s = 0.0
    last_s = time.thread_time()

    has_ended = False

    def tick() -> None:
        nonlocal longest_s, last_s
        now_s = time.thread_time()
        longest_s = max(longest_s, now_s - last_s)
        last_s = now_s
        if not has_ended:
            loop.call_later(_PAUSE_S, tick)

    loop.call_soon(tick)
    try:
        result = await work
    finally:
        has_ended = True
    return max(longest_s, time.thread_time() - last_s), result
