"""Tests selections against an endpoint that misbehaves at random (L14).

Every selection has a number, which its question contains. The endpoint chooses its behaviour by
this number alone, so the campaign knows which selections received the sound choice.
"""

import asyncio
import ctypes
import gc
import json
import logging
import os
import random
import re
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from llm_common.core import OpenAICompatibleClient
from tests.core.loopback import Script, Wire, loopback, ok
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


Chooses = Callable[[int], Coroutine[Any, Any, tuple[list[Any], int]]]
"""Returns the choice as in the model's reply, and the number of model calls."""


async def choose(client: OpenAICompatibleClient, number: int) -> tuple[list[Any], int]:
    """Use both selectors in turn, and return the choice and the number of model calls."""
    fallback_model = "second" if number % 3 else None
    outcome = await CHOOSERS[kind_of(number)](
        client,
        timeout_s=DEADLINE_S / 2 if fallback_model else DEADLINE_S,
        fallback_model=fallback_model,
        query=f"question {number}",
    )
    return outcome.chosen, len(outcome.attempts)


async def choose_hastily(url: str, number: int) -> tuple[list[Any], int]:
    """Choose without a timeout, and choose everything if the reply is unreadable."""
    payload = {"model": "m", "messages": [{"role": "user", "content": f"question {number}"}]}
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with httpx.AsyncClient(timeout=None, verify=unverified) as client:
        answer = await client.post(url, json=payload)
    try:
        return json.loads(answer.json()["choices"][0]["message"]["content"])["pointer_ids"], 1
    except (KeyError, ValueError):
        return [SOUND_ID, OTHER], 1


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


async def select_once(
    number: int, chooses: Chooses, endpoint: Endpoint, tally: Counter[str]
) -> None:
    """Run one selection and count its faults. Every 50th is cancelled."""
    task = asyncio.create_task(chooses(number))
    if is_cancelled(number):
        await asyncio.sleep(0.01)
        task.cancel()
    limit = asyncio.create_task(patience())
    await asyncio.wait({task, limit}, return_when=asyncio.FIRST_COMPLETED)
    limit.cancel()
    if not task.done():
        tally["hung"] += 1
        task.cancel()
    elif task.cancelled():
        tally["cancelled"] += 1
    elif task.exception():
        tally["uncaught"] += 1
    else:
        chosen, calls = task.result()
        tally["chosen"] += bool(chosen)
        tally["too many calls"] += calls > 2
        tally["unsound"] += bool(chosen) and (
            chosen != SOUND_CHOICE[kind_of(number)] or number not in endpoint.answered
        )
    endpoint.answered.discard(number)
    endpoint.requests.pop(number, None)


async def campaign(chooses: Chooses, endpoint: Endpoint, *, selections: int) -> Counter[str]:
    """Run the selections in two halves, a few at a time, and compare the memory of both."""
    tally, numbers = Counter[str](), iter(range(selections))

    async def half() -> float:
        async def worker() -> None:
            for _, number in zip(range(selections // 2 // AT_ONCE), numbers, strict=False):
                await select_once(number, chooses, endpoint, tally)

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
        return resident_mb()

    grown_mb = -(await half()) + await half()
    assert grown_mb <= MAX_GROWTH_MB
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
    endpoint = Endpoint(seed=14)
    tasks, open_before = asyncio.all_tasks(), descriptors()
    async with (
        loopback(endpoint.script(), max_connections=MANY_CONNECTIONS) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        tally = await campaign(partial(choose, client), endpoint, selections=selections)
    await asyncio.sleep(0.2)
    assert asyncio.all_tasks() == tasks
    assert descriptors() <= open_before
    assert tally.pop("chosen") > selections / 10
    assert tally.pop("cancelled") > selections / 100
    assert +tally == {}


@pytest.mark.torture
async def test_the_campaign_finds_the_faults_of_hasty_code_l14() -> None:
    endpoint = Endpoint(seed=14)
    async with loopback(endpoint.script(), max_connections=MANY_CONNECTIONS) as server:
        url = f"{server.config().base_url}/chat/completions"
        tally = await campaign(partial(choose_hastily, url), endpoint, selections=160)
    assert set(+tally) >= {"uncaught", "hung", "unsound"}
