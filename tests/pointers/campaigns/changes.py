"""The changes of a store that the campaigns interrupt, and what may be seen after each."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from llm_common.agents import FileContextPointerStore
from tests.pointers.campaigns.traffic import save

LIFE_S = 3_600
# a prefix is another number, not broken JSON
OLD, NEW, OTHER, LATER = 1_111_111, 2_222_222, 3_333_333, 4_444_444


@dataclass(frozen=True, slots=True)
class Change:
    """A change from one set of stored values to another.

    Attributes:
        before: Values by the name of their call.
        make: Makes the change.
        after: Values after the change.
        later: Names of values that go with the change, or with the next one if they cannot be
            removed.
    """

    before: dict[str, int]
    make: Callable[[Any], Any]
    after: dict[str, int]
    later: frozenset[str] = frozenset()

    def prepare(self, base: Path) -> None:
        store = open_store(base)
        for name, value in self.before.items():
            asyncio.run(
                store.save(
                    query_id="q",
                    task_id=None,
                    tool_name="t",
                    args={"name": name},
                    result=value,
                    ttl_s=LIFE_S if name == "short-lived" else None,
                )
            )

    def run(self, store: Any) -> None:
        done = self.make(store)
        if asyncio.iscoroutine(done):
            asyncio.run(done)

    def allows(self, values: dict[str, int]) -> bool:
        """Return whether each value is the one before or the one after the change."""
        return all(
            values.get(name) in (self.before.get(name), self.after.get(name))
            for name in self.before | self.after | values
        )


def open_store(
    base: Path, durability: Literal["full", "rename"] = "rename"
) -> FileContextPointerStore:
    return FileContextPointerStore(base, durability=durability, lock_timeout_s=2)


def open_flushing_store(base: Path) -> FileContextPointerStore:
    return open_store(base, "full")


def stored_values(store: Any) -> dict[str, int]:
    """Return the value of every listed call. Raises if one cannot be loaded."""
    return {
        pointer.args["name"]: store.load_result(pointer=pointer)
        for pointer in store.list(query_id="q")
    }


def pin_all(store: FileContextPointerStore) -> None:
    for pointer in store.list(query_id="q"):
        store.pin(pointer)


def save_with_quota(store: FileContextPointerStore) -> Any:
    narrow = FileContextPointerStore(store.base_dir, max_bytes_per_query=16, lock_timeout_s=2)
    return save(narrow, "a", NEW)


async def save_at_once(store: Any, values: dict[str, int]) -> None:
    """Save a result of each call, the first one alone and the others concurrently."""
    outcomes = await asyncio.gather(
        *(save(store, *item) for item in values.items()), return_exceptions=True
    )
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


CHANGES: Final = {
    "first-save-ever": Change({}, lambda store: save(store, "a", NEW), {"a": NEW}),
    "first-save": Change({"b": OTHER}, lambda store: save(store, "a", NEW), {"a": NEW, "b": OTHER}),
    "first-save-over-quota": Change(
        {"b": OTHER, "c": OLD}, save_with_quota, {"a": NEW, "c": OLD}, frozenset("b")
    ),
    "saves-at-once": Change(
        {"b": OTHER, "d": OLD},
        lambda store: save_at_once(store, {"a": NEW, "c": NEW, "d": NEW, "e": NEW}),
        {"a": NEW, "b": OTHER, "c": NEW, "d": NEW, "e": NEW},
    ),
    "re-save": Change(
        {"a": OLD, "b": OTHER}, lambda store: save(store, "a", NEW), {"a": NEW, "b": OTHER}
    ),
    "delete": Change({"a": OLD, "b": OTHER}, lambda store: store.delete(query_id="q"), {}),
    "pin": Change({"a": OLD, "b": OTHER}, pin_all, {"a": OLD, "b": OTHER}),
    "gc": Change(
        {"short-lived": OLD, "b": OTHER},
        lambda store: store.gc(now=datetime.now(UTC) + timedelta(seconds=LIFE_S)),
        {"b": OTHER},
        frozenset({"short-lived"}),
    ),
}
