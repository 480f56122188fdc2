"""The protocol without a lock, in every order in which writers, readers and removals can meet, and be killed."""

import dataclasses
import itertools
import random
from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from llm_common.errors import CorruptPointerError, LockTimeoutError, PointerNotFoundError, StoreError
from llm_common.pointers import clock, object_records
from llm_common.pointers.draft import Draft
from llm_common.pointers.object_records import ConditionalPointerRecords
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.records import meta_key, result_key
from llm_common.pointers.store import ContextPointerStore
from llm_common.redaction.redactor import DEFAULT_REDACTOR
from llm_common.storage import BlobVersion
from llm_common.text.canonical import decode_json, encode_json
from tests.pointers.interleavings import RUNNING, Explorer, ObjectModel, Objects, Program, State

START = datetime(2025, 1, 1, tzinfo=UTC)
SHORT = "a" * 12


class RepeatableChance:
    """Stands for the clock and for random text: what a program gets depends on its number and its past alone."""

    def __init__(self) -> None:
        self.number = 0
        self.count = 0

    def begin(self, number: int) -> None:
        self.number, self.count = number, 0

    def token_hex(self, size: int) -> str:
        self.count += 1
        return f"{self.number:02x}{self.count:0{size * 2 - 2}x}"

    def now(self) -> datetime:
        self.count += 1
        return START + timedelta(seconds=self.number, microseconds=self.count)


@pytest.fixture
def chance(monkeypatch: pytest.MonkeyPatch) -> RepeatableChance:
    chance = RepeatableChance()
    monkeypatch.setattr(object_records, "secrets", SimpleNamespace(token_hex=chance.token_hex))
    monkeypatch.setattr(object_records, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None))
    monkeypatch.setattr(clock, "_system_time", chance.now)
    return chance


def draft_of(result: Any, name: str = "call") -> Draft:
    draft = Draft.of(
        query_id="q",
        task_id=None,
        tool_name="tool",
        args={"name": name},
        result=result,
        source_urls=None,
        max_result_bytes=10**6,
        redactor=DEFAULT_REDACTOR,
        redact_results=False,
    )
    return dataclasses.replace(draft, call_sha256=SHORT + draft.call_sha256[12:])  # every call wants the same id


def save(result: Any, name: str = "call", *, keep_repeats: bool = False) -> Program:
    draft = draft_of(result, name)

    def program(blobs: ObjectModel) -> Hashable:
        store = ContextPointerStore(blobs)
        return store._saver.save(draft, keep_repeats=keep_repeats, retention=store._retention).pointer_id

    return program


def load(blobs: ObjectModel) -> Hashable:
    store = ContextPointerStore(blobs)
    return tuple(store.load_payload(pointer.pointer_id, query_id="q")[1] for pointer in store.list(query_id="q"))


def remove(blobs: ObjectModel) -> Hashable:
    return ConditionalPointerRecords(blobs).write("q", lambda writer: writer.remove("q", SHORT, settle=True))


def stored(chance: RepeatableChance, *programs: Program, objects: Objects = ()) -> Objects:
    """What is stored when the programs have run one after the other; they are none of those that are explored."""
    blobs = ObjectModel(objects)
    for number, program in enumerate(programs, start=100):
        chance.begin(number)
        program(blobs)
    return blobs.objects


class Visible:
    """What a reader sees in one state: result and name of the call by pointer id, each of which has been verified."""

    def __init__(self, objects: Objects) -> None:
        store = ContextPointerStore(ObjectModel(objects))
        self.results: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        for listed in store.list(query_id="q"):
            pointer, payload = store.load_payload(listed.pointer_id, query_id="q")  # raises when it cannot be loaded
            result = decode_json(payload)
            assert pointer.result_bytes == len(payload)
            assert pointer.digest == draft_of(result).digest, "pointer and result of different saves"
            self.results[pointer.pointer_id] = result
            self.names[pointer.pointer_id] = pointer.args["name"]


def verify(
    states: Iterable[State],
    check: Callable[[State, Visible], None],
    *,
    chance: RepeatableChance,
    afterwards: Program | None = None,
) -> int:
    """How many states there are; in each `check` holds, and the program `afterwards`, run on what is there, ends."""
    known: dict[Objects, Visible] = {}
    count = 0
    for state in states:
        count += 1
        if state.objects not in known:
            known[state.objects] = Visible(state.objects)
            if afterwards is not None:
                assert "next" in Visible(stored(chance, afterwards, objects=state.objects)).results.values()
        check(state, known[state.objects])
    return count


def explore(
    chance: RepeatableChance,
    programs: list[Program],
    check: Callable[[State, Visible], None],
    *,
    objects: Objects = (),
    losses: int = 0,
    afterwards: Program | None = None,
) -> int:
    """As `verify`, over all states that the programs can reach."""
    states = Explorer(programs, before=chance.begin, objects=objects, losses=losses).states()
    return verify(states, check, chance=chance, afterwards=afterwards)


OLD = save("old")
NEXT = save("next")


def one_of(results: tuple[str, ...], before: tuple[Program, ...]) -> Callable[[State, Visible], None]:
    """Checks that the old pair or a new one is visible, and a new one when one has ended."""

    def check(state: State, visible: Visible) -> None:
        assert set(visible.results) <= {SHORT}
        now = visible.results.get(SHORT)
        assert now in {*results, *({"old"} if before else {None})}
        for mine, (result, outcome) in enumerate(zip(results, state.outcomes, strict=True)):
            if outcome != RUNNING:
                assert outcome == SHORT
                assert now in results, "saved and lost"
                if not any(state.started(other) for other in range(len(results)) if other != mine):
                    assert now == result

    return check


def check_two_writers(
    chance: RepeatableChance, results: tuple[str, str], before: tuple[Program, ...], *, losses: int
) -> int:
    programs = [save(result) for result in results]
    objects = stored(chance, *before)
    return explore(chance, programs, one_of(results, before), objects=objects, losses=losses, afterwards=NEXT)


def assert_three_writers_leave_one_pair(chance: RepeatableChance, results: tuple[str, str, str], *, runs: int) -> None:
    programs = [save(result) for result in results]
    explorer = Explorer(programs, before=chance.begin, objects=stored(chance, OLD), losses=2)
    dice = random.Random(7)
    states = itertools.chain.from_iterable(explorer.walk(dice) for _ in range(runs))
    verify(states, one_of(results, (OLD,)), chance=chance)


TWO_WRITERS = [
    pytest.param(("one", "two"), (), id="first-saves"),
    pytest.param(("one", "two"), (OLD,), id="later-saves"),
    pytest.param(("same", "same"), (), id="first-saves-of-the-same-result"),
    pytest.param(("old", "two"), (OLD,), id="a-result-that-comes-back"),
]


@pytest.mark.parametrize(("results", "before"), TWO_WRITERS)
def test_two_writers_of_one_call_leave_the_old_pair_or_a_new_one_s0_05_s0_18_f_054_f_066(
    chance: RepeatableChance, results: tuple[str, str], before: tuple[Program, ...]
) -> None:
    assert check_two_writers(chance, results, before, losses=0) > 200


@pytest.mark.torture
@pytest.mark.parametrize(("results", "before"), TWO_WRITERS)
def test_two_writers_whose_answers_were_lost_leave_the_old_pair_or_a_new_one_s0_05_s0_18(
    chance: RepeatableChance, results: tuple[str, str], before: tuple[Program, ...]
) -> None:
    assert check_two_writers(chance, results, before, losses=2) > 10_000


THREE_WRITERS = [("one", "two", "three"), ("same", "same", "old")]


@pytest.mark.parametrize("results", THREE_WRITERS, ids=["other-results", "results-that-come-back"])
def test_three_writers_of_one_call_leave_the_old_pair_or_a_new_one_s0_05_s0_18(
    chance: RepeatableChance, results: tuple[str, str, str]
) -> None:
    assert_three_writers_leave_one_pair(chance, results, runs=40)


@pytest.mark.torture
@pytest.mark.parametrize("results", THREE_WRITERS, ids=["other-results", "results-that-come-back"])
def test_three_writers_in_many_orders_leave_the_old_pair_or_a_new_one_s0_05_s0_18(
    chance: RepeatableChance, results: tuple[str, str, str]
) -> None:
    assert_three_writers_leave_one_pair(chance, results, runs=5_000)


@pytest.mark.parametrize("results", [("one", "two"), ("same", "same")], ids=["other-results", "the-same-result"])
def test_two_calls_that_want_one_id_both_stay_s0_04(chance: RepeatableChance, results: tuple[str, str]) -> None:
    def check(state: State, visible: Visible) -> None:
        for name, result, outcome in zip("ab", results, state.outcomes, strict=True):
            if outcome != RUNNING:
                assert visible.names[str(outcome)] == name
                assert visible.results[str(outcome)] == result
        if RUNNING not in state.outcomes:
            assert sorted(len(str(outcome)) for outcome in state.outcomes) == [12, 16]

    programs = [save(result, name) for name, result in zip("ab", results, strict=True)]
    explore(chance, programs, check, afterwards=save("next", "a"))


@pytest.mark.parametrize("before", [(), (OLD,)], ids=["first", "later"])
def test_repeats_saved_at_the_same_time_are_all_kept_s0_05(
    chance: RepeatableChance, before: tuple[Program, ...]
) -> None:
    def check(state: State, visible: Visible) -> None:
        saved = [result for result, outcome in zip(("one", "two"), state.outcomes, strict=True) if outcome != RUNNING]
        assert set(saved) <= set(visible.results.values())
        if before:
            assert visible.results[SHORT] == "old"

    programs = [save(result, keep_repeats=True) for result in ("one", "two")]
    explore(
        chance,
        programs,
        check,
        objects=stored(chance, *before),
        afterwards=save("next", keep_repeats=True),
    )


def test_a_reader_beside_a_writer_sees_the_old_pair_or_the_new_one_s0_05_s0_18(chance: RepeatableChance) -> None:
    def check(state: State, visible: Visible) -> None:
        assert state.outcomes[1] in (RUNNING, (b'"old"',), (b'"one"',), (b'"two"',))

    def twice(blobs: ObjectModel) -> Hashable:
        return save("one")(blobs), save("two")(blobs)

    explore(chance, [twice, load], check, objects=stored(chance, OLD))


@pytest.mark.torture
def test_a_reader_beside_two_writers_sees_a_whole_pair_s0_05_s0_18(chance: RepeatableChance) -> None:
    def check(state: State, visible: Visible) -> None:
        assert state.outcomes[2] in (RUNNING, (b'"old"',), (b'"one"',), (b'"two"',))

    programs = [save("one"), save("two"), load]
    assert explore(chance, programs, check, objects=stored(chance, OLD)) > 100_000


@pytest.mark.parametrize("before", [(), (OLD,)], ids=["first", "later"])
def test_a_removal_beside_a_writer_leaves_nothing_torn_s0_18(
    chance: RepeatableChance, before: tuple[Program, ...]
) -> None:
    def check(state: State, visible: Visible) -> None:
        assert set(visible.results.values()) <= {"old", "one"}
        if state.outcomes[0] != RUNNING and not state.started(1):
            assert visible.results == {SHORT: "one"}

    explore(chance, [save("one"), remove], check, objects=stored(chance, *before), afterwards=NEXT)


def pin(blobs: ObjectModel) -> Hashable:
    (known,) = ContextPointerStore(blobs).list(query_id="q")
    return ContextPointerStore(blobs).pin(known).pinned


def test_a_pin_beside_a_writer_is_kept_and_loses_no_result_s0_05_s0_21(chance: RepeatableChance) -> None:
    """Whichever of the two puts its record first, and wherever either is killed."""

    def check(state: State, visible: Visible) -> None:
        assert set(visible.results.values()) <= {"old", "one"}
        (pointer,) = ContextPointerStore(ObjectModel(state.objects)).list(query_id="q")
        if state.outcomes[0] != RUNNING:
            assert visible.results == {SHORT: "one"}
        if state.outcomes[1] != RUNNING:
            assert pointer.pinned
        assert state.outcomes[1] in (RUNNING, True)

    explore(chance, [save("one"), pin], check, objects=stored(chance, OLD))


class Careless(ObjectModel):
    """A store through which a step of the protocol is done wrong."""

    def __init__(self, blobs: ObjectModel, mistake: str) -> None:
        super().__init__()
        self._blobs = blobs
        self._mistake = mistake

    def answer(self, request: str, *args: Any) -> Hashable:
        put_anyway = {"put-result": ".result.json", "put-meta": ".meta.json"}.get(self._mistake, "none")
        if request == "put_if" and args[0].endswith(put_anyway):
            self._blobs.answer("put", *args[:2])
            return BlobVersion("any", None)
        if request == "put_if" and args[0].endswith(".next") and self._mistake == "no-intent":
            return None
        return self._blobs.answer(request, *args)


@pytest.mark.parametrize(
    ("mistake", "names", "before"),
    [("put-result", "ab", ()), ("put-meta", "aa", (save("old", "a"),)), ("no-intent", "aa", (save("old", "a"),))],
    ids=["result-put-without-condition", "meta-put-without-condition", "no-intent"],
)
def test_the_search_finds_a_protocol_with_a_step_done_wrong(
    chance: RepeatableChance, mistake: str, names: str, before: tuple[Program, ...]
) -> None:
    def careless(program: Program) -> Program:
        return lambda blobs: program(Careless(blobs, mistake))

    programs = [careless(save(result, name)) for result, name in zip(("one", "two"), names, strict=True)]
    torn = 0
    for state in Explorer(programs, before=chance.begin, objects=stored(chance, *before), losses=0).states():
        try:
            visible = Visible(state.objects)
        except StoreError:
            torn += 1
        else:
            torn += RUNNING not in state.outcomes and len(visible.results) < len(set(names))
    assert torn


def pair(chance: RepeatableChance) -> tuple[ObjectModel, ContextPointer]:
    blobs = ObjectModel(stored(chance, OLD))
    (pointer,) = ContextPointerStore(blobs).list(query_id="q")
    return blobs, pointer


def test_a_save_leaves_the_two_objects_of_the_file_store_s0_10(chance: RepeatableChance) -> None:
    blobs, pointer = pair(chance)
    assert [key for key, _ in blobs.objects] == [meta_key("q", SHORT), result_key("q", SHORT)]
    assert blobs.get(result_key("q", SHORT)) == b'"old"'
    assert pointer.result_path == f"model:{result_key('q', SHORT)}"


@pytest.mark.parametrize("damage", [b'"olD"', b'"older"', b""], ids=["other", "longer", "empty"])
def test_a_damaged_result_is_noticed_and_healed_by_the_next_save_f_051(chance: RepeatableChance, damage: bytes) -> None:
    blobs, pointer = pair(chance)
    blobs.put(result_key("q", SHORT), damage)
    with pytest.raises(CorruptPointerError):
        ContextPointerStore(blobs).load_result(pointer=pointer)
    NEXT(blobs)
    assert Visible(blobs.objects).results == {SHORT: "next"}


@pytest.mark.parametrize("damage", [b"", b"null", b"{}"], ids=["empty", "null", "fields-missing"])
def test_a_damaged_meta_is_passed_over_and_healed_by_the_next_save_f_047(
    chance: RepeatableChance, damage: bytes
) -> None:
    blobs, _ = pair(chance)
    blobs.put(meta_key("q", SHORT), damage)
    listing = ContextPointerStore(blobs).list_detailed(query_id="q")
    assert (listing.pointers, listing.skipped) == ((), 1)
    NEXT(blobs)
    assert Visible(blobs.objects).results == {SHORT: "next"}


def test_a_missing_half_is_not_found_and_not_listed_f_050(chance: RepeatableChance) -> None:
    for key in (meta_key("q", SHORT), result_key("q", SHORT)):
        blobs, pointer = pair(chance)
        blobs.delete(key)
        store = ContextPointerStore(blobs)
        assert store.list(query_id="q") == []
        with pytest.raises(PointerNotFoundError):
            store.load_result(pointer=pointer)
        NEXT(blobs)
        assert Visible(blobs.objects).results == {SHORT: "next"}


def test_a_pair_of_an_older_version_loads_and_is_replaced_f_049(chance: RepeatableChance) -> None:
    blobs, pointer = pair(chance)
    old = {"result_bytes": None, "result_sha256": None, "args_sha256": None}
    blobs.put(meta_key("q", SHORT), encode_json(pointer.model_dump() | old).data)
    assert ContextPointerStore(blobs).load_result(pointer=pointer) == "old"
    NEXT(blobs)
    assert Visible(blobs.objects).results == {SHORT: "next"}


def test_a_removal_takes_what_killed_writers_left(chance: RepeatableChance) -> None:
    blobs, _ = pair(chance)
    blobs.put(f"q/{SHORT}.{'0' * 16}.next", b"half")
    assert Visible(blobs.objects).results == {SHORT: "old"}
    remove(blobs)
    assert blobs.objects == ()


def test_writers_that_are_always_overtaken_give_up_with_an_error(
    chance: RepeatableChance, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Busy(ObjectModel):
        def put_if(self, key: str, data: bytes, *, replaces: object) -> None:
            return None

    clock = iter(range(10_000))
    monkeypatch.setattr(
        object_records, "time", SimpleNamespace(monotonic=lambda: float(next(clock)), sleep=lambda _: None)
    )
    with pytest.raises(LockTimeoutError, match="Other writers changed"):
        save("one")(Busy())
