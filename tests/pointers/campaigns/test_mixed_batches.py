"""Concurrent saves of a query, of which only the invalid ones fail, with typed errors."""

import asyncio
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import ContextPointer, FileContextPointerStore
from llm_common.errors import StoreError
from tests.pointers.campaigns.naive_store import NaiveStore

AT_ONCE = 12
LARGE = 200_000


class Opaque:
    """An object that JSON cannot represent."""

    __slots__ = ()


CYCLE: dict[str, Any] = {}
CYCLE["itself"] = CYCLE

INVALID: dict[str, dict[str, Any]] = {
    "task-id-of-a-list": {"task_id": ["a"]},
    "task-id-of-an-object": {"task_id": Opaque()},
    "no-tool-name": {"tool_name": None},
    "tool-name-of-10-mb": {"tool_name": "t" * 10_000_000},
    "surrogate-in-query-id": {"query_id": "q\ud800"},
    "unserialisable-result": {"result": Opaque()},
    "too-large-result": {"result": "x" * 2_000_000},
    "cyclic-args": {"args": CYCLE},
    "args-of-a-text": {"args": "number"},
    "source-urls-of-a-number": {"source_urls": 5},
    "ttl-below-zero": {"ttl_s": -1},
}


def call(number: int, *, large: bool = False) -> dict[str, Any]:
    result = {"number": number, "body": "x" * LARGE if large else ""}
    return {
        "query_id": "q",
        "task_id": "task",
        "tool_name": "t",
        "args": {"number": number},
        "result": result,
    }


def open_store(base: Path) -> FileContextPointerStore:
    return FileContextPointerStore(base, durability="rename", max_result_bytes=1_000_000)


def is_typed(error: BaseException) -> bool:
    """Return whether callers can catch the error by its type.

    It is an error of the store, or a `ValueError` of no other library.
    """
    return isinstance(error, StoreError) or type(error) is ValueError


async def save_all(store: Any, calls: list[dict[str, Any]]) -> list[ContextPointer | BaseException]:
    saves: list[Coroutine[Any, Any, ContextPointer]] = [store.save(**one) for one in calls]
    return await asyncio.gather(*saves, return_exceptions=True)


def loaded(store: Any) -> dict[int, Any]:
    return {
        pointer.args["number"]: store.load_result(pointer=pointer)
        for pointer in store.list(query_id="q")
    }


async def wrong_with_batch(
    store: Any, invalid: dict[int, dict[str, Any]], *, large: bool = False
) -> list[str]:
    """Save twelve results concurrently, some of them invalid, and return the problems."""
    calls = {number: call(number, large=large and number % 4 == 0) for number in range(AT_ONCE)}
    outcomes = await save_all(
        store, [one | invalid.get(number, {}) for number, one in calls.items()]
    )
    wrong = []
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, ContextPointer) == (number in invalid):
            wrong.append(f"{number}: {outcome!r:.200}")
        elif isinstance(outcome, BaseException) and not is_typed(outcome):
            wrong.append(f"{number}: untyped {outcome!r:.200}")
    if loaded(store) != {
        number: calls[number]["result"] for number in calls if number not in invalid
    }:
        wrong.append("another result is stored")
    return wrong


@pytest.mark.parametrize("kind", INVALID)
async def test_one_invalid_save_of_twelve_fails_alone_f_159_s0_20(
    tmp_path: Path, kind: str
) -> None:
    assert not await wrong_with_batch(open_store(tmp_path), {5: INVALID[kind]})


@pytest.mark.torture
async def test_invalid_saves_anywhere_among_others_fail_alone_f_159_s0_20(tmp_path: Path) -> None:
    chance, wrong = random.Random(7), []
    for number in range(300):
        chosen = chance.sample(range(AT_ONCE), chance.choice((1, 1, 2, 3)))
        invalid = {position: INVALID[chance.choice([*INVALID])] for position in chosen}
        store = open_store(tmp_path / str(number))
        wrong += await wrong_with_batch(store, invalid, large=chance.random() < 0.3)
    assert not wrong


@pytest.mark.parametrize("task_id", [5, 0, -1], ids=str)
async def test_a_task_id_may_be_a_whole_number_f_159(tmp_path: Path, task_id: int) -> None:
    store = open_store(tmp_path)
    number: Any = task_id
    outcomes = await save_all(store, [call(0) | {"task_id": number}, call(1)])
    assert [isinstance(outcome, ContextPointer) for outcome in outcomes] == [True, True]
    pointer = next(one for one in store.list(query_id="q") if one.args == {"number": 0})
    assert pointer.task_id == str(task_id)
    assert store.load_result(pointer=pointer) == call(0)["result"]


class NaiveBatches(NaiveStore):
    """A store that commits concurrent saves together, and raises the error of one for all."""

    def __init__(self, base_dir: Path) -> None:
        super().__init__(base_dir)
        self._waiting: list[tuple[dict[str, Any], asyncio.Future[ContextPointer]]] = []

    async def save(self, **call: Any) -> ContextPointer:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(loop.create_task, self._commit())
        self._waiting.append((call, loop.create_future()))
        return await self._waiting[-1][1]

    async def _commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            for one, future in waiting:
                future.set_result(await super().save(**one))
        except Exception as exc:  # noqa: BLE001 - what a tool passes may raise anything
            for _, future in waiting:
                if not future.done():
                    future.set_exception(exc)


async def test_the_harness_catches_a_store_whose_saves_fail_together_f_159(tmp_path: Path) -> None:
    wrong = await wrong_with_batch(NaiveBatches(tmp_path), {5: INVALID["task-id-of-a-list"]})
    assert len(wrong) > 6
