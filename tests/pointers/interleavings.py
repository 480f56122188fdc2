"""Every order in which several programs can use one object store, tried out.

A program is a function of a store. It is run from its start again and again, each time with one more answer, and is
stopped at the first request that has none yet; so what it does next is a function of the answers that it has had.
Orders that lead to the same objects and the same answers are one state and are tried once. A program that is killed
is one that takes no further step, so what holds in every state holds after every kill.

The store is a harsh one: versions are those of bytes, as on S3, so that one can come back; and once in each run the
answer of a conditional put may be lost: asked again, the store says no, though the bytes were put.
"""

import hashlib
import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from llm_common.errors import PointerNotFoundError
from llm_common.storage import BlobVersion, FolderSurvey

Program = Callable[["ObjectModel"], Hashable]
Objects = tuple[tuple[str, bytes], ...]
Answers = tuple[Hashable, ...]

MISSING = "missing"


class ObjectModel:
    """A `ConditionalBlobStore` in a dictionary."""

    def __init__(self, objects: Objects = ()) -> None:
        self._objects = dict(objects)

    @property
    def objects(self) -> Objects:
        return tuple(sorted(self._objects.items()))

    def answer(self, request: str, *args: Any) -> Hashable:
        """What the store does, and what it says about it as a hashable value."""
        key = args[0]
        there = self._objects.get(key)
        version = None if there is None else _version(there)
        match request:
            case "put":
                self._objects[key] = args[1]
            case "put_if":
                if version != args[2]:
                    return None
                self._objects[key] = args[1]
                return _version(args[1])
            case "get":
                return MISSING if there is None else there
            case "version":
                return version
            case "list":
                return tuple((name, len(self._objects[name])) for name in sorted(self._objects))
            case "delete":
                self._objects.pop(key, None)
        return None

    def put(self, key: str, data: bytes) -> None:
        self.answer("put", key, data)

    def put_if(self, key: str, data: bytes, *, replaces: BlobVersion | None) -> BlobVersion | None:
        stored = self.answer("put_if", key, data, replaces)
        assert stored is None or isinstance(stored, BlobVersion)
        return stored

    def get(self, key: str) -> bytes:
        data = self.answer("get", key)
        if data == MISSING:
            raise PointerNotFoundError("Nothing is stored under this key")
        assert isinstance(data, bytes)
        return data

    def get_version(self, key: str) -> tuple[bytes, BlobVersion]:
        data = self.get(key)
        return data, _version(data)

    def get_many(self, keys: Any) -> Iterator[bytes | None]:
        for key in keys:
            data = self.answer("get", key)
            yield data if isinstance(data, bytes) else None

    def version(self, key: str) -> BlobVersion | None:
        found = self.answer("version", key)
        assert found is None or isinstance(found, BlobVersion)
        return found

    def list(self, folder: str) -> dict[str, int]:
        found: Any = self.answer("list", folder)
        return dict(found)

    def folders(self) -> Iterator[str]:
        return iter(sorted({key.partition("/")[0] for key in self._objects}))

    def survey(self, folder: str) -> FolderSurvey:
        return FolderSurvey(self.list(folder))

    def sweep(self, folder: str) -> None:
        pass

    def remove_folder(self, folder: str) -> None:
        pass

    def delete(self, key: str, *, settle: bool = True) -> None:
        self.answer("delete", key)

    def location(self, key: str) -> str:
        return f"model:{key}"


def _version(data: bytes) -> BlobVersion:
    return BlobVersion(hashlib.sha256(data).hexdigest()[:12], None)


class _Suspended(BaseException):
    """The program has come to a request that has no answer yet."""

    def __init__(self, request: tuple[Any, ...]) -> None:
        self.request = request


class _Replay(ObjectModel):
    """Gives the answers of the past."""

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self._answers = iter(answers)

    def answer(self, request: str, *args: Any) -> Hashable:
        for known in self._answers:
            return known
        raise _Suspended((request, *args))


@dataclass(frozen=True, slots=True)
class State:
    """What is stored, and what each program has been told so far; `outcomes` are of those that have ended."""

    objects: Objects
    told: tuple[Answers, ...]
    outcomes: tuple[Hashable, ...]
    lost: int

    def started(self, number: int) -> bool:
        return bool(self.told[number])


RUNNING = "running"


class Explorer:
    """All states that the programs can reach.

    Args:
        programs: What runs at the same time.
        before: Called with the number of a program before it is run from its start: to make chance and time repeat.
        objects: What is stored at the start.
        losses: How many answers of conditional puts may be lost in one run.
    """

    def __init__(
        self,
        programs: list[Program],
        *,
        before: Callable[[int], None],
        objects: Objects = (),
        losses: int = 1,
    ) -> None:
        self._programs = programs
        self._before = before
        self._next: dict[tuple[int, Answers], tuple[tuple[Any, ...] | None, Hashable]] = {}
        count = len(programs)
        self._first = State(objects, ((),) * count, (RUNNING,) * count, losses)

    def states(self) -> Iterator[State]:
        waiting, seen = [self._first], {self._first}
        while waiting:
            state = waiting.pop()
            yield state
            for number in range(len(self._programs)):
                for follower in self._steps(state, number):
                    if follower not in seen:
                        seen.add(follower)
                        waiting.append(follower)

    def walk(self, chance: random.Random) -> Iterator[State]:
        """The states of one run to the end in a random order, for programs that have too many orders to try all."""
        state: State | None = self._first
        while state is not None:
            yield state
            followers = [follower for number in range(len(self._programs)) for follower in self._steps(state, number)]
            state = chance.choice(followers) if followers else None

    def _steps(self, state: State, number: int) -> Iterator[State]:
        request, _ = self._after(number, state.told[number])
        if request is None:
            return
        store = ObjectModel(state.objects)
        answer = store.answer(*request)
        yield self._step(state, number, store.objects, answer, state.lost)
        if request[0] == "put_if" and answer is not None and state.lost:
            yield self._step(state, number, store.objects, None, state.lost - 1)

    def _step(self, state: State, number: int, objects: Objects, answer: Hashable, lost: int) -> State:
        told = _replaced(state.told, number, (*state.told[number], answer))
        _, outcome = self._after(number, told[number])
        return State(objects, told, _replaced(state.outcomes, number, outcome), lost)

    def _after(self, number: int, answers: Answers) -> tuple[tuple[Any, ...] | None, Hashable]:
        """What a program asks next, and its outcome when it asks no more."""
        if (number, answers) not in self._next:
            self._before(number)
            try:
                self._next[number, answers] = (None, self._programs[number](_Replay(answers)))
            except _Suspended as exc:
                self._next[number, answers] = (exc.request, RUNNING)
        return self._next[number, answers]


def _replaced(values: tuple[Any, ...], number: int, value: Any) -> tuple[Any, ...]:
    return (*values[:number], value, *values[number + 1 :])
