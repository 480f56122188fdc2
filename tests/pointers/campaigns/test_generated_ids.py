"""Ids that were made to reach something else than they should."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import ContextPointer
from llm_common.errors import InvalidIdError, PointerNotFoundError, UnsafePathError
from tests.pointers.campaigns.naive_store import NaiveStore
from tests.pointers.campaigns.traffic import OURS, save

PARTS = [
    *(
        "..",
        "/",
        "\\",
        ".",
        "~",
        "%2e",
        "%2f",
        "\0",
        "\n",
        " ",
        "*",
        "$HOME",
        ":",
        "C:",
        "nul",
        "con.txt",
        "-rf",
        ".lock",
    ),
    *(
        "\u202e",
        "．",
        "／",
        "é",
        "e\u0301",
        "\ud800",
        "a",
        "Z9",
        "_",
        "q",
        "outside",
        "secret.meta.json",
        "a" * 130,
    ),
]

COUNTS = pytest.mark.parametrize(
    "count",
    [pytest.param(250, id="short"), pytest.param(100_000, id="full", marks=pytest.mark.torture)],
)


def generated(chance: random.Random, parts: list[str], most: int) -> str:
    return "".join(chance.choices(parts, k=chance.randint(1, most)))


def attack(root: Path, store: Any, ids: list[str]) -> Counter[str]:
    """Save, list and load under each id. Returns the outcomes and the number of files outside."""
    outside = root / "outside"
    outside.mkdir(parents=True)
    (outside / "secret.meta.json").write_text('"SECRET"')
    before = files_outside(root)
    done = Counter[str]()
    with asyncio.Runner() as runner:
        for number, one in enumerate(ids):
            query_id = one if number % 2 else "q"
            forged = ContextPointer.model_construct(
                pointer_id=one,
                query_id=query_id,
                tool_name="t",
                created_at="",
                summary="",
                result_path=one,
            )
            actions: list[Callable[[], Any]] = [
                partial(lambda one: runner.run(save(store, one, one, query_id=one)), one),
                partial(store.list, query_id=one),
                partial(store.load_result, pointer=forged),
            ]
            done.update(map(outcome, actions))
    done["written outside"] = len(files_outside(root) - before)
    return +done


def outcome(action: Callable[[], Any]) -> str:
    try:
        return "read outside" if action() == "SECRET" else "accepted"
    except (InvalidIdError, UnsafePathError, PointerNotFoundError):
        return "refused"
    except (OSError, ValueError):
        return "untyped error"


def files_outside(root: Path) -> set[Path]:
    return {
        path for path in root.rglob("*") if root / "deep" / "base" not in (path, *path.parents)
    } - {root / "deep"}


@COUNTS
def test_no_generated_id_reaches_anything_outside_l17_s0_11_f_001_f_023(
    tmp_path: Path, count: int
) -> None:
    chance = random.Random(7)
    ids = [generated(chance, PARTS, 6) for _ in range(count)]
    done = attack(tmp_path, OURS(tmp_path / "deep" / "base"), ids)
    assert done.keys() == {"accepted", "refused"}


@COUNTS
def test_the_harness_catches_a_store_that_joins_ids_to_paths_l17(
    tmp_path: Path, count: int
) -> None:
    chance = random.Random(7)
    ids = [
        f"{'../' * chance.randint(0, 2)}{chance.choice(['a', 'q', 'outside'])}"
        for _ in range(min(count, 50))
    ]
    done = attack(tmp_path, NaiveStore(tmp_path / "deep" / "base"), ids)
    assert done["written outside"]
