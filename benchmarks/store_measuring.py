"""How `bench_store.py` measures: what work takes, in turn, in a quiet part of the disk."""

import asyncio
import fcntl
import gc
import itertools
import json
import os
import random
import secrets
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.store_subjects import Subject

__all__ = ["Sample", "in_turn", "measured", "quiet_place", "search_hits", "ticked"]

_TICK_S = 0.001
# linux/fs.h; `chattr +T`
_GET_FLAGS, _SET_FLAGS, _TOP_OF_HIERARCHIES = 0x80086601, 0x40086602, 0x00020000
_PLACES, _TRIED_FILES = 6, 100

_queries = map("q{}".format, itertools.count())


@dataclass(frozen=True, slots=True)
class Sample:
    """The duration of one operation, in seconds."""

    cpu_s: float
    wall_s: float
    stall_s: float = 0.0


async def measured(work: Callable[[], Awaitable[object]], *, repeats: int = 1) -> Sample:
    """Return the duration of the work per repeat."""
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    return Sample((time.process_time() - cpu) / repeats, (time.perf_counter() - wall) / repeats)


async def ticked(work: Callable[[], Awaitable[object]]) -> Sample:
    """Return the duration of the work and the longest stall. The ticking takes a little CPU time."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            longest = max(longest, time.perf_counter() - before - _TICK_S)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(5 * _TICK_S)
    longest = 0.0
    sample = await measured(work)
    await asyncio.sleep(5 * _TICK_S)
    ticking.cancel()
    return Sample(sample.cpu_s, sample.wall_s, longest)


async def in_turn(
    subjects: Sequence[Subject],
    work: Callable[[Subject, str], Awaitable[Sample]],
    *,
    rounds: int,
    drop: bool,
) -> dict[str, list[Sample]]:
    """What the work took each subject in each round.

    One more round comes first, warms up and is not counted.

    Args:
        subjects: Who does it; another one begins each round.
        work: What is done, with the round's query.
        rounds: How often.
        drop: Whether to remove the results of the query after each. Few large ones should be, many
            small ones not: see `quiet_place`.
    """
    samples: dict[str, list[Sample]] = {subject.name: [] for subject in subjects}
    gc.freeze()  # so that no collection looks at what is imported, or at the payloads
    try:
        for number in range(rounds + 1):
            first, query = number % len(subjects), next(_queries)
            for subject in [*subjects[first:], *subjects[:first]]:
                gc.collect()
                sample = await work(subject, query)
                if number:
                    samples[subject.name].append(sample)
                if drop:
                    await subject.drop(query)
    finally:
        gc.unfreeze()
    return samples


def quiet_place(folder: Path) -> Path:
    """Return a new directory in which this file system creates files at its lowest cost.

    ext4 seeks a new inode past every one that was freed in the same part of the disk during the
    last minutes. Whatever was deleted there, an earlier run for one, makes all saves up to ten
    times dearer, and every ratio too good. So several directories are spread over the disk, where
    that can be done, and the best one is taken.
    """
    with suppress(OSError):
        directory = os.open(folder, os.O_RDONLY)
        try:
            [flags] = struct.unpack("i", fcntl.ioctl(directory, _GET_FLAGS, bytes(4)))
            fcntl.ioctl(directory, _SET_FLAGS, struct.pack("i", flags | _TOP_OF_HIERARCHIES))
        finally:
            os.close(directory)
    places = [folder / secrets.token_hex(8) for _ in range(_PLACES)]
    return min(places, key=_creation_s)


@cache
def search_hits(size: int) -> object:
    """Return a tool result of about a number of bytes of JSON."""
    chance = random.Random(size)
    words = [
        "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9)))
        for _ in range(2_000)
    ]
    hits: list[object] = []
    left = size
    while left > 0:
        hit = {
            "title": " ".join(chance.choices(words, k=8)),
            "url": f"https://{chance.choice(words)}.example/{chance.choice(words)}?page={chance.randrange(10_000)}",
            "score": chance.random(),
            "published": None if chance.random() < 0.2 else "2024-05-17T08:30:00Z",
            "authors": [
                {"name": chance.choice(words), "id": chance.randrange(10**6)} for _ in range(2)
            ],
            "snippet": " ".join(chance.choices(words, k=60)) + ' "é…"\n',
        }
        left -= len(json.dumps(hit, ensure_ascii=False, separators=(",", ":")).encode())
        hits.append(hit)
    return {"query": "event loops that never wait", "total": len(hits), "hits": hits}


def _creation_s(place: Path) -> float:
    """Return the CPU time of creating some files in a new directory."""
    (place / "tried").mkdir(parents=True)
    start = time.process_time()
    for number in range(_TRIED_FILES):
        (place / "tried" / str(number)).touch()
    return time.process_time() - start
