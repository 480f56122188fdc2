"""Every order in which several programs can use one object store, tried out.

A program is a function of a store. It is run from its start again and again, each time with one
more answer, and is stopped at the first request that has none yet; so what it does next is a
function of the answers that it has had. Orders that lead to the same objects and the same answers
are one state and are tried once. A program that is killed is one that takes no further step, so
what holds in every state holds after every kill.

The store is a harsh one: versions are those of bytes, as on S3, so that one can come back; and a
few times in each run the answer of a conditional put may be lost: asked again, the store says no,
though the bytes were put.
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
    """An `ObjectBlobStore` over a dictionary, whose every request is one call of `answer`.

    Args:
        objects: What is stored at the start.
        now_s: The time of every put, in seconds since the epoch.
    """

    def __init__(self, objects: Objects = (), *, now_s: float = 0.0) -> None:
        super().__init__(obstore.store.MemoryStore())
        self._objects = {key: (data, modified_s) for key, data, modified_s in objects}
        self._now_s = now_s

    @property
    def objects(self) -> Objects:
        return tuple((key, *self._objects[key]) for key in sorted(self._objects))

    def answer(self, request: str, *args: Any) -> Any:
        """What the store does, and what it says about it as a hashable value."""
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
    """Gives the answers of the past."""

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self._answers = iter(answers)

    def answer(self, request: str, *args: Any) -> Any:
        for known in self._answers:
            return known
        raise _SuspendedError(request, *args)


@dataclass(frozen=True, slots=True)
class State:
    """What is stored, and what each program has been told so far.

    `outcomes` are of those that have ended.
    """

    objects: Objects
    told: tuple[Answers, ...]
    outcomes: tuple[Hashable, ...]
    losses: int

    def has_begun(self, number: int) -> bool:
        return bool(self.told[number])

    def has_ended(self, number: int) -> bool:
        return self.outcomes[number] != RUNNING


class Explorer:
    """All states that the programs can reach.

    Args:
        programs: What runs at the same time; each asks at least one request.
        objects: What is stored at the start.
        now_s: The time of every put.
        losses: How many answers of conditional puts may be lost in one run.
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
        """What a program asks next, and its outcome when it asks no more."""
        if (number, answers) not in self._next:
            try:
                self._next[number, answers] = None, self._programs[number](_Replay(answers))
            except _SuspendedError as exc:
                self._next[number, answers] = exc.args, RUNNING
        return self._next[number, answers]


def _replaced(values: tuple[Any, ...], number: int, value: Any) -> tuple[Any, ...]:
    return (*values[:number], value, *values[number + 1 :])
