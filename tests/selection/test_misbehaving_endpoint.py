"""Tests selections against an endpoint that misbehaves at random (L14).

Every selection has a number, which its question contains. The endpoint chooses its behaviour by
this number alone, so the campaign knows which selections received the sound choice.
"""

import asyncio
import ctypes
import gc
import json
import logging
import math
import os
import random
import re
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

from llm_common.core import OpenAICompatibleClient
from tests.core.loopback import Loopback, Script, Wire, loopback, ok
from tests.core.misbehaving_server import (
    FAULTS,
    WORKING,
    Act,
    answer_well,
    reply,
    stay_silent,
)
from tests.selection.choosers import CHOOSERS, SOUND_CHOICE
from tests.selection.odd_replies import ODD_REPLIES, OTHER, SOUND, SOUND_ID

KINDS = sorted(CHOOSERS)
DEADLINE_S = 3.0  # a busy machine answers in time too
AT_ONCE = 40
MAX_GROWTH_MB = 8  # after a garbage collection: a leak per selection exceeds any limit
MANY_CONNECTIONS = 1_000_000
_NUMBER = re.compile(r"question (\d+)")


@dataclass
class Endpoint:
    """Behaves differently for each request, depending on the selection's number alone."""

    seed: int
    requests: Counter[int] = field(default_factory=Counter)
    answered: set[int] = field(default_factory=set)

    def act(self, number: int) -> Act:
        """Return the behaviour for the selection's next request."""
        if is_cancelled(number):
            return stay_silent  # so that it never ends before it is cancelled
        rng = random.Random(f"{self.seed}/{number}/{self.requests[number]}")
        sort = rng.choices(["sound", "works", "odd", "fault"], weights=[15, 10, 35, 40])[0]
        if sort == "fault":
            return rng.choice(list(FAULTS.values())).act
        if sort == "odd":
            odd = rng.choice(list(ODD_REPLIES.values()))
            if kind_of(number) in odd.read_by:
                self.answered.add(number)
            return reply(200, odd.body())
        self.answered.add(number)
        return answer_well if sort == "sound" else rng.choice(list(WORKING.values()))

    def script(self) -> Script:
        async def serve(wire: Wire) -> None:
            while (request := await wire.request()) is not None:
                wire.requests.clear()
                number = int(_NUMBER.findall(json.dumps(request.body["messages"]))[0])
                act = self.act(number)
                self.requests[number] += 1
                await act(replace(wire, requests=[request] * self.requests[number]), ok(SOUND))

        return serve


@dataclass
class Tally:
    """Counts the faults of a campaign."""

    uncaught: int = 0
    hung: int = 0
    unsound: int = 0
    too_many_calls: int = 0
    leaked_tasks: int = 0
    leaked_descriptors: int = 0
    grown_mb: float = 0.0
    chosen: int = 0
    cancelled: int = 0

    @property
    def failures(self) -> dict[str, float]:
        limits = {"chosen": math.inf, "cancelled": math.inf, "grown_mb": MAX_GROWTH_MB}
        return {name: count for name, count in vars(self).items() if count > limits.get(name, 0)}


class Chooses(Protocol):
    """Returns the choice as in the model's reply, and the number of model calls."""

    async def __call__(self, number: int) -> tuple[list[Any], int]: ...

    async def aclose(self) -> None: ...


class Selectors:
    """Uses both selectors in turn, with one client for all."""

    def __init__(self, server: Loopback) -> None:
        self._client = OpenAICompatibleClient(server.config())

    async def __call__(self, number: int) -> tuple[list[Any], int]:
        fallback_model = "second" if number % 3 else None
        outcome = await CHOOSERS[kind_of(number)](
            self._client,
            timeout_s=DEADLINE_S / 2 if fallback_model else DEADLINE_S,
            fallback_model=fallback_model,
            query=f"question {number}",
        )
        return outcome.chosen, len(outcome.attempts)

    async def aclose(self) -> None:
        await self._client.aclose()


class Naive:
    """Hasty code: no timeout, a client for each call, and everything if the reply is unreadable."""

    def __init__(self, server: Loopback) -> None:
        self._url = server.config().base_url + "/chat/completions"
        self._leaked: list[Any] = []

    async def __call__(self, number: int) -> tuple[list[Any], int]:
        client = httpx.AsyncClient(timeout=None, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        self._leaked += [client, asyncio.create_task(asyncio.sleep(60))]
        payload = {"model": "m", "messages": [{"role": "user", "content": f"question {number}"}]}
        answer = await client.post(self._url, json=payload)
        self._leaked.append(answer)
        try:
            return json.loads(answer.json()["choices"][0]["message"]["content"])["pointer_ids"], 1
        except (KeyError, ValueError):
            return [SOUND_ID, OTHER], 1

    async def aclose(self) -> None:
        """Close nothing."""

    async def end(self) -> None:
        """Close what `aclose` should have closed, for the other tests of the process."""
        for resource in self._leaked:
            if isinstance(resource, asyncio.Task):
                resource.cancel()
            elif isinstance(resource, httpx.AsyncClient):
                await resource.aclose()


def is_cancelled(number: int) -> bool:
    return number % 50 == 49


def kind_of(number: int) -> str:
    return KINDS[number % 2]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_mb() -> float:
    """Return the memory of the process, after its allocator returned what was freed."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


async def patience() -> None:
    """Wait for the deadline and a second, in turns of the event loop, longer on a busy machine."""
    for _ in range(round((DEADLINE_S + 1) / 0.05)):
        await asyncio.sleep(0.05)


async def select_once(number: int, choose: Chooses, endpoint: Endpoint, tally: Tally) -> None:
    """Run one selection and count its faults. Every 50th is cancelled."""
    task = asyncio.create_task(choose(number))
    if is_cancelled(number):
        await asyncio.sleep(0.01)
        task.cancel()
    limit = asyncio.create_task(patience())
    await asyncio.wait({task, limit}, return_when=asyncio.FIRST_COMPLETED)
    limit.cancel()
    if not task.done():
        tally.hung += 1
        task.cancel()
    elif task.cancelled():
        tally.cancelled += 1
    elif task.exception():
        tally.uncaught += 1
    else:
        chosen, calls = task.result()
        tally.chosen += bool(chosen)
        tally.too_many_calls += calls > 2
        tally.unsound += bool(chosen) and (
            chosen != SOUND_CHOICE[kind_of(number)] or number not in endpoint.answered
        )
    endpoint.answered.discard(number)
    endpoint.requests.pop(number, None)


async def campaign(choose: Chooses, endpoint: Endpoint, *, selections: int) -> Tally:
    """Run the selections in two halves, a few at a time, and compare the memory of both."""
    tally, numbers = Tally(), iter(range(selections))

    async def half() -> float:
        async def worker() -> None:
            for _, number in zip(range(selections // 2 // AT_ONCE), numbers, strict=False):
                await select_once(number, choose, endpoint, tally)

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
        return resident_mb()

    tally.grown_mb = -(await half()) + await half()
    return tally


async def tallied(make: Callable[[Loopback], Chooses], *, selections: int, seed: int) -> Tally:
    """Run a campaign, and count the tasks and descriptors that it left open."""
    endpoint = Endpoint(seed)
    tasks, open_before = asyncio.all_tasks(), descriptors()
    async with loopback(endpoint.script(), max_connections=MANY_CONNECTIONS) as server:
        choose = make(server)
        tally = await campaign(choose, endpoint, selections=selections)
        await choose.aclose()
    await asyncio.sleep(0.2)
    tally.leaked_tasks = len(asyncio.all_tasks() - tasks)
    tally.leaked_descriptors = descriptors() - open_before
    if isinstance(choose, Naive):
        await choose.end()
    return tally


@pytest.fixture(autouse=True)
def _no_records() -> Iterator[None]:
    """Disable logging: pytest keeps log records, which would count as growth."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "selections", [pytest.param(5_040, marks=pytest.mark.torture), 80], ids=["L14-full", "L14"]
)
async def test_no_endpoint_makes_a_selection_unsound_late_or_leaky(selections: int) -> None:
    tally = await tallied(Selectors, selections=selections, seed=14)
    assert tally.failures == {}
    assert tally.chosen > selections / 10
    assert tally.cancelled > selections / 100


@pytest.mark.torture
async def test_the_campaign_finds_the_faults_of_naive_code_l14() -> None:
    tally = await tallied(Naive, selections=160, seed=14)
    assert set(tally.failures) >= {
        "uncaught",
        "hung",
        "unsound",
        "leaked_tasks",
        "leaked_descriptors",
    }
