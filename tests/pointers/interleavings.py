"""Explore every order in which several programs can use an object store.

A program is a function of a store. It is run from its start for each step, with one more recorded
answer each time, and stopped at its first request without an answer. Its next step is therefore a
function of its past answers. Orders that lead to the same objects and answers are one state, which
is explored once. A killed program makes no further steps, so whatever holds in every state also
holds after every kill.

The store is a hostile one. Versions are hashes of the bytes, as on S3, so an old version can come
back. A few times in each run, the answer of a conditional put is lost. The retry then fails,
although the bytes were put.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import obstore.store

from llm_common.errors import PointerNotFoundError
from llm_common.storage import BlobEntry, FolderScan
from llm_common.storage.object_store import BlobVersion, ObjectBlobStore

Objects = tuple[tuple[str, bytes, float], ...]
"""Key, bytes and time of the last put, in the order of the keys."""
Program = Callable[[ObjectBlobStore], Hashable]
Answers = tuple[Hashable, ...]

RUNNING: Final = "running"


class ModelStore(ObjectBlobStore):
    """An `ObjectBlobStore` over a dictionary, which calls `answer` for each request.

    Args:
        objects: Objects stored at the start.
        now_s: Time of every put, in seconds since the epoch.
    """

    def __init__(self, objects: Objects = (), *, now_s: float = 0.0) -> None:
        super().__init__(obstore.store.MemoryStore())
        self._objects = {key: (data, modified_s) for key, data, modified_s in objects}
        self._now_s = now_s

    @property
    def objects(self) -> Objects:
        return tuple((key, *self._objects[key]) for key in sorted(self._objects))

    def answer(self, request: str, *args: Any) -> Any:
        """Execute a request, and return its answer as a hashable value."""
        key = args[0] if args else ""
        data, _ = self._objects.get(key, (None, 0))
        match request:
            case "get":
                return data
            case "put_if" if _version(data) != args[2]:
                return None
            case "put" | "put_if":
                self._objects[key] = args[1], self._now_s
                return _version(args[1])
            case "delete":
                self._objects.pop(key, None)
            case "scan":
                return tuple(one for one in self.objects if one[0].startswith(f"{key}/"))
            case "folders":
                return tuple(
                    sorted(
                        {one.partition("/")[0] for one in self._objects if not one.startswith(".")}
                    )
                )
        return None

    def check_conditions(self) -> None:
        pass

    def put(self, key: str, data: bytes) -> None:
        self.answer("put", key, data)

    def put_if(self, key: str, data: bytes, *, replaces: BlobVersion | None) -> BlobVersion | None:
        stored: BlobVersion | None = self.answer("put_if", key, data, replaces)
        return stored

    def get_version(self, key: str, *, max_bytes: int | None = None) -> tuple[bytes, BlobVersion]:
        data, version = (found := self.answer("get", key)), _version(found)
        if version is None:
            raise PointerNotFoundError("Nothing is stored under this key")
        return data, version

    def get_many(
        self, folder: str, names: list[str], *, max_bytes: int | None = None
    ) -> Iterator[bytes | None]:
        for name in names:
            found: bytes | None = self.answer("get", f"{folder}/{name}")
            yield found

    def scan(self, folder: str) -> FolderScan:
        found: Objects = self.answer("scan", folder)
        return FolderScan(
            {
                key.partition("/")[2]: BlobEntry(len(data), _version(data), time)
                for key, data, time in found
            }
        )

    def folders(self) -> Iterator[str]:
        return iter(self.answer("folders"))

    def delete(self, key: str) -> None:
        self.answer("delete", key)


def _version(data: bytes | None) -> BlobVersion | None:
    return None if data is None else BlobVersion(hashlib.sha256(data).hexdigest()[:12], None)


class _SuspendedError(BaseException):
    """The program has come to a request that has no answer yet."""


class _Replay(ModelStore):
    """Replays recorded answers."""

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self._answers = iter(answers)

    def answer(self, request: str, *args: Any) -> Any:
        for known in self._answers:
            return known
        raise _SuspendedError(request, *args)


@dataclass(frozen=True, slots=True)
class State:
    """The stored objects, the past answers of each program, and the outcomes of ended ones."""

    objects: Objects
    told: tuple[Answers, ...]
    outcomes: tuple[Hashable, ...]
    losses: int

    def has_begun(self, number: int) -> bool:
        return bool(self.told[number])

    def has_ended(self, number: int) -> bool:
        return self.outcomes[number] != RUNNING


class Explorer:
    """Explores all states that some concurrent programs can reach.

    Args:
        programs: The programs. Each makes at least one request.
        objects: Objects stored at the start.
        now_s: Time of every put.
        losses: Maximum number of lost answers of conditional puts in a run.
    """

    def __init__(
        self, programs: list[Program], *, objects: Objects, now_s: float, losses: int
    ) -> None:
        self._programs = programs
        self._now_s = now_s
        self._next: dict[tuple[int, Answers], tuple[tuple[Any, ...] | None, Hashable]] = {}
        count = len(programs)
        self._first = State(objects, ((),) * count, (RUNNING,) * count, losses)

    def states(self) -> Iterator[State]:
        waiting, seen = [self._first], {self._first}
        while waiting:
            state = waiting.pop()
            yield state
            for number in range(len(self._programs)):
                followers = [
                    follower for follower in self._steps(state, number) if follower not in seen
                ]
                seen.update(followers)
                waiting += followers

    def _steps(self, state: State, number: int) -> Iterator[State]:
        request, _ = self._after(number, state.told[number])
        if request is None:
            return
        store = ModelStore(state.objects, now_s=self._now_s)
        answer = store.answer(*request)
        yield self._step(replace(state, objects=store.objects), number, answer)
        if request[0] == "put_if" and answer is not None and state.losses:
            yield self._step(
                replace(state, objects=store.objects, losses=state.losses - 1), number, None
            )

    def _step(self, state: State, number: int, answer: Hashable) -> State:
        told = _replaced(state.told, number, (*state.told[number], answer))
        _, outcome = self._after(number, told[number])
        return replace(state, told=told, outcomes=_replaced(state.outcomes, number, outcome))

    def _after(self, number: int, answers: Answers) -> tuple[tuple[Any, ...] | None, Hashable]:
        """Return the next request of a program, or its outcome if it has ended."""
        if (number, answers) not in self._next:
            try:
                self._next[number, answers] = None, self._programs[number](_Replay(answers))
            except _SuspendedError as exc:
                self._next[number, answers] = exc.args, RUNNING
        return self._next[number, answers]


def _replaced(values: tuple[Any, ...], number: int, value: Any) -> tuple[Any, ...]:
    return (*values[:number], value, *values[number + 1 :])
