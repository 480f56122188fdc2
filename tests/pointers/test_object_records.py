"""Saves without a lock, in every order of writers, readers, removals and kills."""

from collections import Counter
from collections.abc import Callable, Coroutine, Hashable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import obstore.store
import pytest

from llm_common.agents import ContextPointer, ContextPointerStore, compute_pointer_id
from llm_common.errors import CorruptPointerError, LockTimeoutError
from llm_common.pointers.object_records import ObjectContextPointerStore, ObjectRecords
from llm_common.pointers.records import meta_bytes
from llm_common.storage.object_store import BlobVersion, ObjectBlobStore
from llm_common.text.canonical import decode_json
from tests.pointers.interleavings import RUNNING, Explorer, ModelStore, Objects, Program, State
from tests.pointers.names import reason

START = datetime(2025, 1, 1, tzinfo=UTC)
ID = compute_pointer_id(tool_name="tool", args={"n": 0}, query_id="q", task_id=None)
META = f"q/{ID}.meta.json"

COLLIDING = (22_039_972, 33_399_747)
"""Two arguments `n` whose calls have the same 12 digits; found by trying 40 million."""

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _no_waits(no_waits: None) -> None:
    pass


class InlineStore(ContextPointerStore):
    """Works in the thread of its caller: a program can be stopped at any request."""

    async def _in_thread(self, work: Callable[[Callable[[], bool]], T]) -> T:
        return work(lambda: False)


def opened(blobs: ObjectBlobStore, number: int = 0) -> ContextPointerStore:
    """Open a store whose clock always shows `number` seconds after the start."""
    return InlineStore(ObjectRecords(blobs), clock=lambda: START + timedelta(seconds=number))


def done(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as exc:
        value: T = exc.value
        return value
    raise AssertionError("the coroutine waits")


def save(result: Any, number: int = 0, /, call: int = 0, *, keep_repeats: bool = False) -> Program:
    """Return a program that saves a result at the second of an index, and returns the id."""

    def program(blobs: ObjectBlobStore) -> Hashable:
        saving = opened(blobs, number).save(
            query_id="q",
            task_id=None,
            tool_name="tool",
            args={"n": call},
            result=result,
            keep_repeats=keep_repeats,
        )
        return done(saving).pointer_id

    return program


def load(blobs: ObjectBlobStore) -> Hashable:
    store = opened(blobs)
    return tuple(store.load_result(pointer=pointer) for pointer in store.list(query_id="q"))


def erase(blobs: ObjectBlobStore) -> Hashable:
    return opened(blobs).delete(query_id="q", pointer_ids=[ID], remember=False)


def pin(blobs: ObjectBlobStore) -> Hashable:
    store = opened(blobs)
    return store.pin(store.list(query_id="q")[0]).pinned


def collect(after: timedelta = timedelta()) -> Program:
    return lambda blobs: repr(done(opened(blobs).gc(now=START + after)))


COLLECT_LATER = collect(timedelta(hours=2))
OLD, NEXT = save("old", 8), save("next", 9)


def stored(*programs: Program, objects: Objects = (), hours_ago: float = 0) -> Objects:
    """Return the objects after the programs have run one after the other, some hours ago."""
    blobs = ModelStore(objects, now_s=(START - timedelta(hours=hours_ago)).timestamp())
    for program in programs:
        program(blobs)
    return blobs.objects


class Visible:
    """What a reader sees in one state: results and calls by pointer id.

    Everything that is listed loads.
    """

    def __init__(self, objects: Objects) -> None:
        store = opened(ModelStore(objects))
        listing = store.list_detailed(query_id="q")
        self.torn = listing.skipped
        self.pointers = {pointer.pointer_id: pointer for pointer in listing.pointers}
        self.calls = {one: pointer.args["n"] for one, pointer in self.pointers.items()}
        self.results: dict[str, Any] = {}
        for one in self.pointers:
            pointer, payload = store.load_payload(one, query_id="q")
            assert pointer == self.pointers[one]
            self.results[one] = decode_json(payload)


def explore(
    programs: list[Program],
    check: Callable[[State, Visible], None],
    *,
    objects: Objects = (),
    losses: int = 0,
    afterwards: Program = NEXT,
    may_tear: Callable[[State], bool] = lambda _: False,
) -> int:
    """Check every state that the programs can reach, and return the number of states.

    In each state `check` holds, every listed pointer loads, and only the states that may tear have
    other objects. An hour later, exactly the remains of dead writers are collected. The program
    `afterwards`, by default a save of "next", works.
    """
    known: dict[Objects, Visible] = {}
    states = 0
    for state in Explorer(
        programs, objects=objects, now_s=START.timestamp(), losses=losses
    ).states():
        states += 1
        if state.objects not in known:
            visible = known[state.objects] = Visible(state.objects)
            collected = stored(COLLECT_LATER, objects=state.objects)
            assert Visible(collected).results == visible.results
            assert len(collected) == 2 * len(visible.results) + visible.torn
            assert "next" in Visible(stored(afterwards, objects=state.objects)).results.values()
        assert not known[state.objects].torn or may_tear(state)
        check(state, known[state.objects])
    return states


def one_of(
    results: tuple[str, ...], before: tuple[Program, ...]
) -> Callable[[State, Visible], None]:
    """Check that the old pair or a new one is visible, a new one after an acknowledged save."""

    def check(state: State, visible: Visible) -> None:
        assert set(visible.results) <= {ID}
        now = visible.results.get(ID)
        assert now in {*results, *({"old"} if before else {None})}
        for mine, result in enumerate(results):
            if state.has_ended(mine):
                assert state.outcomes[mine] == ID
                assert now in results, "saved and lost"
                if not any(
                    state.has_begun(other) for other in range(len(results)) if other != mine
                ):
                    assert now == result

    return check


WRITERS = [
    pytest.param(("one", "two"), (), 2, id="first-saves"),
    pytest.param(("one", "two"), (OLD,), 2, id="later-saves"),
    pytest.param(("same", "same"), (), 2, id="first-saves-of-the-same-result"),
    pytest.param(("old", "two"), (OLD,), 2, id="a-result-that-comes-back"),
    pytest.param(("one", "two", "three"), (OLD,), 0, id="three-writers"),
    pytest.param(("same", "same", "old"), (OLD,), 0, id="three-writers-of-results-that-come-back"),
]


@pytest.mark.parametrize(("results", "before", "losses"), WRITERS)
def test_writers_of_one_call_leave_one_whole_pair_s0_05_s0_18_f_054_f_066(
    results: tuple[str, ...], before: tuple[Program, ...], losses: int
) -> None:
    programs = [save(result, number) for number, result in enumerate(results)]
    assert explore(programs, one_of(results, before), objects=stored(*before), losses=losses) > 20


@pytest.mark.parametrize(
    "results", [("one", "two"), ("same", "same")], ids=["other-results", "the-same-result"]
)
@pytest.mark.parametrize("before", [False, True], ids=["first", "later"])
def test_two_calls_with_one_id_both_stay_s0_04(results: tuple[str, str], before: bool) -> None:
    def check(state: State, visible: Visible) -> None:
        for call, result, outcome in zip(COLLIDING, results, state.outcomes, strict=True):
            if outcome != RUNNING:
                assert visible.calls[str(outcome)] == call
                assert visible.results[str(outcome)] == result
        if RUNNING not in state.outcomes:
            assert sorted(len(str(outcome)) for outcome in state.outcomes) == [12, 16]

    programs = [
        save(result, n, call)
        for n, (call, result) in enumerate(zip(COLLIDING, results, strict=True))
    ]
    objects = stored(save("old", 8, COLLIDING[0])) if before else ()
    explore(programs, check, objects=objects, losses=2, afterwards=save("next", 9, COLLIDING[0]))


@pytest.mark.parametrize("order", [COLLIDING, COLLIDING[::-1]])
def test_a_call_keeps_its_longer_id_s0_04(order: tuple[int, int]) -> None:
    objects = stored(*(save(call, number, call) for number, call in enumerate((*order, *order))))
    visible = Visible(objects)
    assert visible.calls == visible.results
    assert [(len(one), call) for one, call in visible.calls.items()] == [
        (12, order[0]),
        (16, order[1]),
    ]


def test_concurrent_repeats_are_all_kept_s0_05() -> None:
    def check(state: State, visible: Visible) -> None:
        saved = {
            result
            for result, outcome in zip(("one", "two"), state.outcomes, strict=True)
            if outcome != RUNNING
        }
        assert saved <= set(visible.results.values())
        assert visible.results[ID] == "old"

    programs = [
        save(result, number, keep_repeats=True) for number, result in enumerate(("one", "two"))
    ]
    afterwards = save("next", 9, keep_repeats=True)
    explore(programs, check, objects=stored(OLD), losses=1, afterwards=afterwards)


def test_a_reader_beside_garbage_collection_sees_a_whole_pair_s0_05_s0_18() -> None:
    def check(state: State, visible: Visible) -> None:
        assert state.outcomes[1] in (RUNNING, ("old",), ("one",))

    assert explore([save("one"), load, collect()], check, objects=stored(OLD, hours_ago=2)) > 100


@pytest.mark.parametrize("before", [(), (OLD,)], ids=["first", "later"])
@pytest.mark.parametrize("result", ["one", "old"])
def test_deletion_beside_a_writer_leaves_a_whole_pair_or_none_s0_18(
    before: tuple[Program, ...], result: str
) -> None:
    """A deletion can remove the result of a concurrent save.

    Its meta remains, and the next save or deletion removes it.
    """

    def check(state: State, visible: Visible) -> None:
        assert set(visible.results.values()) <= {"old", result}
        if state.has_ended(0) and not state.has_begun(1):
            assert visible.results == {ID: result}
        if state.has_ended(1) and not state.has_begun(0):
            assert visible.results == {}
        assert stored(erase, objects=state.objects) == ()

    explore(
        [save(result), erase],
        check,
        objects=stored(*before),
        losses=1,
        may_tear=lambda state: state.has_begun(0) and state.has_begun(1),
    )


@pytest.mark.parametrize("result", ["one", "abandoned", "old"])
@pytest.mark.parametrize("before", [(), (OLD,)], ids=["first", "later"])
def test_garbage_collection_beside_a_writer_takes_nothing_saved_s0_18(
    before: tuple[Program, ...], result: str
) -> None:
    def check(state: State, visible: Visible) -> None:
        if state.has_ended(0):
            assert visible.results == {ID: result}
        else:
            assert set(visible.results.values()) <= {"old", result}

    def abandoned(blobs: ObjectBlobStore) -> Hashable:
        """Save the same results, killed before the meta."""
        metas = {key: data for key, data, _ in stored(*before) if key == META}
        for number, value in enumerate(("abandoned", "old"), start=-7200):
            save(value, number)(blobs)
        if metas:
            blobs.put(META, metas[META])
        else:
            blobs.delete(META)
        return None

    objects = stored(*before, abandoned, hours_ago=2)
    explore([save(result), collect()], check, objects=objects, losses=1)


def test_pins_beside_a_writer_stay_and_lose_no_result_s0_05_s0_21() -> None:
    def check(state: State, visible: Visible) -> None:
        assert visible.results[ID] in ("old", "one")
        if state.has_ended(0):
            assert visible.results == {ID: "one"}
        if state.has_ended(1):
            assert visible.pointers[ID].pinned

    explore([save("one"), pin], check, objects=stored(OLD), losses=1)


class Counting(obstore.store.MemoryStore):
    """Counts the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[str]()

    def __getattribute__(self, name: str) -> Any:
        if name in ("put", "get", "head", "delete", "list_with_delimiter"):
            self.asked[name] += 1
        return super().__getattribute__(name)


async def test_requests_of_first_saves_later_ones_and_loads() -> None:
    requests = Counting()
    store = ObjectContextPointerStore(requests)

    async def saved(call: int, result: Any) -> ContextPointer:
        return await store.save(
            query_id="q", task_id=None, tool_name="tool", args={"n": call}, result=result
        )

    await saved(1, "first of all, which finds out whether the store keeps conditions")
    requests.asked.clear()
    pointer = await saved(0, "one")
    assert requests.asked == {"put": 2}
    requests.asked.clear()
    store.load_result(pointer=pointer)
    assert requests.asked == {"get": 2}
    requests.asked.clear()
    await saved(0, "two")
    assert requests.asked == {"put": 3, "get": 1}


class Busy(ModelStore):
    """A store in which another writer is always faster."""

    def put_if(self, key: str, data: bytes, *, replaces: BlobVersion | None) -> None:
        return None


@pytest.mark.parametrize("program", [save("one"), pin], ids=["save", "pin"])
def test_a_writer_that_is_always_overtaken_gives_up(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_common.storage.object_store._PATIENCE_S", 0.1)
    blobs = Busy(stored(OLD))
    with pytest.raises(LockTimeoutError, match="Other writers kept changing"):
        program(blobs)
    assert Visible(blobs.objects).results == {ID: "old"}


def pair() -> tuple[ModelStore, ContextPointer, str]:
    """Return a store with one pair, its pointer, and the key of its result."""
    blobs = ModelStore(stored(OLD, hours_ago=2), now_s=START.timestamp())
    [pointer] = opened(blobs).list(query_id="q")
    [result] = [key for key, _, _ in blobs.objects if key != META]
    assert pointer.result_path == blobs.location(result)
    return blobs, pointer, result


def pair_of_1_0_0(*, without_digests: bool = False) -> tuple[ModelStore, ContextPointer]:
    """Return a store with one pair as version 1.0.0 or an older one named it."""
    blobs, pointer, result = pair()
    payload = blobs.get(result)
    blobs.delete(result)
    changes: dict[str, Any] = {"result_path": f"q/{ID}.result.json"}
    if without_digests:
        changes |= {"result_bytes": None, "result_sha256": None, "args_sha256": None}
    pointer = pointer.model_copy(update=changes)
    return ModelStore(
        ((META, meta_bytes(pointer), 0.0), (f"q/{ID}.result.json", payload, 0.0)),
        now_s=START.timestamp(),
    ), pointer


@pytest.mark.parametrize("without_digests", [False, True], ids=["1.0.0", "without-digests"])
def test_an_older_pair_is_used_like_a_new_one_f_049(without_digests: bool) -> None:
    blobs, pointer = pair_of_1_0_0(without_digests=without_digests)
    store, objects = opened(blobs), blobs.objects
    assert store.list(query_id="q") == [pointer]
    assert store.load_result(pointer=pointer) == "old"
    assert done(store.verify()).is_clean
    COLLECT_LATER(blobs)
    assert blobs.objects == objects
    assert stored(erase, objects=objects) == ()
    assert store.pin(pointer).pinned
    assert Visible(blobs.objects).results == {ID: "old"}
    NEXT(blobs)
    assert Visible(blobs.objects).results == {ID: "next"}
    assert opened(blobs).list(query_id="q")[0].pinned
    COLLECT_LATER(blobs)
    assert len(blobs.objects) == 2
    assert Visible(blobs.objects).results == {ID: "next"}


@pytest.mark.parametrize(
    "objects",
    [
        stored(OLD),
        pair_of_1_0_0()[0].objects,
        pair_of_1_0_0(without_digests=True)[0].objects,
    ],
    ids=["new", "1.0.0", "without-digests"],
)
def test_a_reader_beside_writers_sees_whole_pairs_s0_05_s0_18(objects: Objects) -> None:
    def check(state: State, visible: Visible) -> None:
        one_of(("one", "two"), (OLD,))(state, visible)
        assert state.outcomes[2] in (RUNNING, ("old",), ("one",), ("two",))

    explore([save("one", 1), save("two", 2), load], check, objects=objects)


def test_unfinished_saves_of_1_0_0_are_garbage_after_an_hour_f_066() -> None:
    objects = (*pair_of_1_0_0()[0].objects, (f"q/{ID}.{'0' * 16}.next", b"half", START.timestamp()))
    assert Visible(objects).results == {ID: "old"}
    assert stored(collect(), objects=objects) == tuple(sorted(objects))
    later = stored(COLLECT_LATER, objects=objects)
    assert (len(later), Visible(later).results) == (2, {ID: "old"})
    assert stored(erase, objects=objects) == ()


@pytest.mark.parametrize(
    ("half", "data", "why", "listed", "kept"),
    [
        pytest.param("result", b'"olD"', "damaged", (1, 0), 2, id="F-051-other"),
        pytest.param("result", b'"older"', "damaged", (0, 1), 2, id="F-051-longer"),
        pytest.param("result", b"", "damaged", (0, 1), 2, id="F-051-empty"),
        pytest.param("meta", b"", "damaged", (0, 1), 2, id="F-047-empty"),
        pytest.param("meta", b"null", "damaged", (0, 1), 2, id="F-047-null"),
        pytest.param("meta", b"{}", "damaged", (0, 1), 2, id="F-047-fields-missing"),
        pytest.param("result", None, "unknown", (0, 1), 1, id="F-050-result"),
        pytest.param("meta", None, "unknown", (0, 0), 0, id="F-050-meta"),
    ],
)
def test_a_damaged_or_missing_half_is_noticed_and_the_next_save_heals_f_047_f_050_f_051(
    half: str, data: bytes | None, why: str, listed: tuple[int, int], kept: int
) -> None:
    """What a damaged meta may stand for is no garbage."""
    blobs, pointer, result = pair()
    key = META if half == "meta" else result
    if data is None:
        blobs.delete(key)
    else:
        blobs.put(key, data)
    listing = opened(blobs).list_detailed(query_id="q")
    assert (len(listing.pointers), listing.skipped) == listed
    assert reason(opened(blobs), pointer) == why
    COLLECT_LATER(blobs)
    assert len(blobs.objects) == kept
    NEXT(blobs)
    assert Visible(blobs.objects).results == {ID: "next"}


class Careless(ModelStore):
    """A store through which a step of a save is done wrong."""

    def __init__(self, blobs: ObjectBlobStore, mistake: str) -> None:
        super().__init__()
        assert isinstance(blobs, ModelStore)
        self._blobs = blobs
        self._mistake = mistake

    def answer(self, request: str, *args: Any) -> Any:
        if self._mistake == "one-name" and args and args[0].endswith(".result.json"):
            args = (f"q/{ID}.result.json", *args[1:])
        if self._mistake == "no-condition" and request == "put_if":
            return self._blobs.answer("put", *args[:2])
        return self._blobs.answer(request, *args)


@pytest.mark.parametrize(
    ("mistake", "keep_repeats", "found"),
    [("one-name", False, CorruptPointerError), ("no-condition", True, AssertionError)],
    ids=["results-of-one-name", "metas-without-condition"],
)
def test_the_exploration_catches_a_broken_save(
    mistake: str, keep_repeats: bool, found: type[Exception]
) -> None:
    def careless(program: Program) -> Program:
        return lambda blobs: program(Careless(blobs, mistake))

    def check(state: State, visible: Visible) -> None:
        if RUNNING not in state.outcomes:
            assert len(visible.results) == 1 + keep_repeats

    programs = [
        save(result, number, keep_repeats=keep_repeats) for number, result in enumerate("ab")
    ]
    explore(programs, check)
    with pytest.raises(found):
        explore([careless(program) for program in programs], check)
