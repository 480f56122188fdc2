"""Every bit of stored results, flipped one after another."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from llm_common.errors import CorruptPointerError
from tests.pointers.campaigns.naive_store import NaiveStore, PointerStore
from tests.pointers.campaigns.traffic import OURS, save

COUNTS = pytest.mark.parametrize(
    ("count", "longest"),
    [pytest.param(3, 40, id="short"), pytest.param(200, 200, id="full", marks=pytest.mark.torture)],
)


def flip_every_bit(store: PointerStore, base: Path, *, count: int, longest: int) -> tuple[int, int]:
    """Flip every bit, and return how many flips there were and how many loads noticed."""
    chance, flipped, noticed = random.Random(7), 0, 0
    for number in range(count):
        text = "".join(chance.choices('abc 019.,-"[]{}é雨', k=chance.randint(1, longest)))
        pointer = asyncio.run(
            save(
                store, f"call {number}", chance.choice([text, {"rows": [text]}, [1.5, text, None]])
            )
        )
        path = base / "q" / f"{pointer.pointer_id}.result.json"
        whole = path.read_bytes()
        with path.open("r+b", buffering=0) as file:
            for bit in range(len(whole) * 8):
                os.pwrite(file.fileno(), bytes([whole[bit // 8] ^ 1 << bit % 8]), bit // 8)
                flipped += 1
                try:
                    store.load_result(pointer=pointer)
                except (CorruptPointerError, ValueError):
                    noticed += 1
                os.pwrite(file.fileno(), whole[bit // 8 : bit // 8 + 1], bit // 8)
        store.load_result(pointer=pointer)
    return flipped, noticed


@COUNTS
def test_every_flipped_bit_is_noticed_l18_f_051(tmp_path: Path, count: int, longest: int) -> None:
    flipped, noticed = flip_every_bit(OURS(tmp_path), tmp_path, count=count, longest=longest)
    assert flipped > 300
    assert noticed == flipped


@COUNTS
def test_the_harness_catches_a_store_without_digests_l18(
    tmp_path: Path, count: int, longest: int
) -> None:
    flipped, noticed = flip_every_bit(NaiveStore(tmp_path), tmp_path, count=count, longest=longest)
    assert noticed < flipped
