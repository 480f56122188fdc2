"""Selections from a pool to a bundle, with store and listeners."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from blockbuster import BlockBuster

from llm_common.agents.context_pointers import ContextPointer, FileContextPointerStore
from llm_common.context import (
    BudgetAllocation,
    ContextBundle,
    ContextEvent,
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    IntentType,
    MeasuredStrategy,
    Score,
    Scores,
    allocate_budget,
    select_and_pack_context,
)
from llm_common.context.request import Kind
from llm_common.core import UpperBoundCounter
from llm_common.errors import CorruptPointerError, PointerNotFoundError, StoreError, UnsafePathError
from tests.context.samples import (
    NOON,
    PROJECT,
    file,
    intent,
    memory,
    output,
    pool_of,
    request_of,
    turn,
)

POOL = DataPoolSnapshot(
    session_log=tuple(turn(index, f"Turn {index} is about rain and wind.") for index in range(30)),
    context_files=tuple(
        file(f"src/f{index}.py", f"def rain_{index}(): return {index}\n" * 40) for index in range(9)
    ),
    memory_hits=tuple(memory(index, f"Memory {index} of the rain.") for index in range(7)),
    project_state=PROJECT,
)


def request_for(budget: int, text: str = "write a rain gauge in f3.py") -> ContextSelectionRequest:
    return request_of(budget, text, strategy="spec").model_copy(update={"now": NOON})


class Results(dict[str, object]):
    """A store of results by pointer id. An exception is raised instead of a result."""

    def __init__(self, *pairs: tuple[str, object]) -> None:
        super().__init__(pairs)
        self.loaded: list[str] = []

    def load_result(self, *, pointer: ContextPointer) -> object:
        self.loaded.append(pointer.pointer_id)
        result = self[pointer.pointer_id]
        if isinstance(result, Exception):
            raise result
        return result


async def selected_from(
    store: Mapping[str, object],
    budget: int,
    *outputs: ContextPointer,
    exclude: tuple[str, ...] = (),
) -> tuple[ContextBundle, list[str]]:
    """Select among stored outputs for a request about rain, and say which were loaded."""
    results = Results(*store.items())
    request = request_for(budget).model_copy(update={"exclude_patterns": exclude})
    bundle = await ContextSelector(store=results).select(request, pool_of(*outputs))
    return bundle, results.loaded


async def test_the_bundle_fits_and_contains_the_mentioned_file_s1_05_s1_09() -> None:
    bundle = await ContextSelector().select(request_for(1_500), POOL)
    assert UpperBoundCounter().count(bundle.render()) == bundle.metadata.total_tokens <= 1_500
    assert bundle.files[0].path == "src/f3.py"
    assert bundle.turns[-1].id == "t0029"


async def test_a_selection_without_a_store_equals_the_pure_function() -> None:
    request = request_for(1_500)
    bundle = await ContextSelector().select(request, POOL)
    assert (
        select_and_pack_context(POOL, allocate_budget(request), request.intent, request=request)
        == bundle
    )


def test_packing_alone_measures_ages_from_the_newest_item() -> None:
    allocation = BudgetAllocation(200, 300, 300, 100, 100, 1_000)
    request = request_of(1, "not read", strategy="spec")
    first, second = (
        select_and_pack_context(
            POOL, allocation, intent("rain", IntentType.CONVERSATIONAL), request=request
        )
        for _ in range(2)
    )
    assert first == second
    assert first.metadata.budget == 1_000
    assert first.turns


async def test_stored_outputs_are_loaded_and_shown(
    tmp_path: Path, blockbuster: BlockBuster
) -> None:
    store = FileContextPointerStore(tmp_path, durability="rename")
    pointers = [
        await store.save(
            query_id="q",
            task_id=None,
            tool_name="search",
            args={"query": text},
            result={"found": text},
        )
        for text in ("rain in spring", "wind in autumn")
    ]
    pool = DataPoolSnapshot(tool_outputs=tuple(pointers))
    bundle = await ContextSelector(store=store).select(request_for(1_000, "rain in spring"), pool)
    assert {pointer.pointer_id for pointer in bundle.outputs} == {
        pointer.pointer_id for pointer in pointers
    }
    assert '{"found":"rain in spring"}' in bundle.render()


@pytest.mark.parametrize(
    "error",
    [
        PointerNotFoundError("gone"),
        CorruptPointerError("bad"),
        UnsafePathError("link"),
        StoreError("no disk"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize(("damaged", "whole"), [(1, 2), (2, 1)], ids=["first", "named before"])
async def test_an_output_that_cannot_be_loaded_is_dropped(
    error: StoreError, damaged: int, whole: int
) -> None:
    store = {output(damaged).pointer_id: error, output(whole).pointer_id: "It rains. " * 900}
    bundle, _ = await selected_from(store, 1_000, output(1), output(2))
    assert [(account.id, account.reason) for account in bundle.dropped] == [
        (output(damaged).pointer_id, "unavailable")
    ]
    assert "It rains." in bundle.render()


async def test_only_outputs_that_may_fit_are_loaded() -> None:
    outputs = [output(index) for index in range(1, 40)]
    store = {item.pointer_id: f"It rains in {item.pointer_id}. " * 200 for item in outputs}
    bundle, loaded = await selected_from(store, 1_000, *outputs, output(99, result_bytes=10**9))
    assert 1 <= len(loaded) <= 3
    assert len(bundle.kept) + len(bundle.dropped) == 40


def test_a_time_without_a_zone_is_in_utc_on_any_machine_f_138(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        entry = turn(1, "rain").model_dump() | {"timestamp": "2025-06-01T12:00:00"}
        moment = DataPoolSnapshot.model_validate({"session_log": [entry]}).session_log[0].timestamp
    time.tzset()
    assert moment == datetime(2025, 6, 1, 12, tzinfo=UTC)


MANY = [output(number) for number in range(1, 14)]
SIZED = [
    output(number, result_bytes=size)
    for number, size in ((1, 2_000_000), (2, 2_000_001), (3, None))
]


@pytest.mark.parametrize(
    ("outputs", "exclude", "expected"),
    [
        pytest.param(MANY, (), MANY[:12], id="at most the twelve best"),
        pytest.param(
            MANY,
            tuple(item.pointer_id for item in MANY[:12]),
            MANY[12:],
            id="excluded ones take no place",
        ),
        pytest.param(SIZED, (), [SIZED[0], SIZED[2]], id="two megabytes"),
    ],
)
async def test_the_outputs_that_are_loaded_s1_14(
    outputs: list[ContextPointer], exclude: tuple[str, ...], expected: list[ContextPointer]
) -> None:
    store = {item.pointer_id: "It rains." for item in outputs}
    bundle, loaded = await selected_from(store, 100_000, *outputs, exclude=exclude)
    assert sorted(loaded) == sorted(item.pointer_id for item in expected)
    whole = [account.id for account in bundle.kept if account.form == "whole"]
    assert sorted(whole) == sorted(loaded)


async def test_a_wrong_request_type_raises_with_what_to_pass() -> None:
    with pytest.raises(
        TypeError, match=r"request is a str; pass ContextSelectionRequest\(intent=classify_intent"
    ):
        await ContextSelector().select(cast("ContextSelectionRequest", "fix the bug"), POOL)


def test_the_error_for_a_duplicate_id_names_it() -> None:
    with pytest.raises(
        ValueError, match="two items of context_files have the same id 'b'; give each its own"
    ):
        DataPoolSnapshot(
            context_files=tuple(file(name, "x", file_id=name[0]) for name in ("a", "b1", "c", "b2"))
        )


async def test_without_a_store_outputs_are_only_named() -> None:
    bundle = await ContextSelector().select(request_for(600), pool_of(output(1)))
    assert bundle.kept[0].form == "pointer"


class TestEvents:
    async def events(self, budget: int, *extra: object) -> list[ContextEvent]:
        heard: list[ContextEvent] = []
        shuffled = [POOL.context_files[index] for index in (4, 0, 8, 2, 7, 1, 6, 3, 5)]
        pool = POOL.model_copy(update={"context_files": tuple(shuffled)})
        await ContextSelector(listeners=(*extra, heard.append)).select(request_for(budget), pool)  # type: ignore[arg-type]
        return heard

    async def test_events_come_in_one_order_for_any_order_of_the_pool_s1_12(self) -> None:
        events = await self.events(1_500)
        assert [event.name for event in events] == [
            "context.selection.start",
            *["context.file.scored"] * len(POOL.context_files),
            "context.selection.complete",
        ]
        assert [event.data["file"] for event in events[1:-1]] == sorted(
            item.id for item in POOL.context_files
        )
        assert events[0].data == {"intent": "code_writing", "budget": 1_500}
        assert events[1].data.keys() == {"file", "score"}
        assert len({event.data["score"] for event in events[1:-1]}) > 1
        assert events[-1].data.keys() == {
            "duration_ms",
            "files_selected",
            "turns_selected",
            "tokens_used",
            "budget_utilization",
        }
        assert (
            events[-1].data["tokens_used"]
            == (await ContextSelector().select(request_for(1_500), POOL)).metadata.total_tokens
        )
        assert "gauge" not in repr(events)

    @pytest.mark.parametrize(
        ("budget", "exceeded"),
        [
            pytest.param(199, [{"requested": 199, "available": 199}], id="F-135-199"),
            pytest.param(200, [{"requested": 200, "available": 200}], id="F-135-200"),
            pytest.param(201, [], id="F-135-201"),
        ],
    )
    async def test_only_a_budget_within_the_system_part_is_exceeded_s1_04(
        self, budget: int, exceeded: list[dict[str, int]]
    ) -> None:
        events = await self.events(budget)
        assert [
            event.data for event in events if event.name == "context.budget.exceeded"
        ] == exceeded

    async def test_a_raising_or_async_listener_changes_nothing_f_143_s1_12(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def failing(event: ContextEvent) -> None:
            raise RuntimeError(f"a secret of {event.name}")

        async def late(event: ContextEvent) -> None:
            raise AssertionError

        plain, disturbed = await self.events(1_500), await self.events(1_500, failing, late)
        assert [event.name for event in plain] == [event.name for event in disturbed]
        assert "a context listener failed on context.selection.start: RuntimeError" in caplog.text
        assert "async" in caplog.text
        assert "secret" not in caplog.text

    async def test_an_interrupt_within_a_listener_passes_through(self) -> None:
        def interrupted(_: ContextEvent) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await self.events(1_500, interrupted)


async def test_concurrent_selections_equal_serial_ones_s1_15() -> None:
    before = POOL.model_copy(deep=True)
    selector = ContextSelector()
    requests = [
        request_for(budget, text)
        for budget in (700, 1_500, 4_000)
        for text in ("rain", "explain f3.py", "wind")
    ]
    serial = [await ContextSelector().select(request, POOL) for request in requests]
    together = await asyncio.gather(*(selector.select(request, POOL) for request in requests))
    assert [bundle.render() for bundle in together] == [bundle.render() for bundle in serial]
    assert [bundle.explain() for bundle in together] == [bundle.explain() for bundle in serial]
    assert before == POOL


class LastFileFirst:
    """A custom strategy."""

    cut_offs: Mapping[Kind, float] = {}

    def score(
        self, pool: DataPoolSnapshot, request: ContextSelectionRequest, *, now: datetime
    ) -> Scores:
        del request, now
        return {
            ("file", item.id): Score(float(position))
            for position, item in enumerate(pool.context_files)
        }


async def test_a_selector_uses_custom_strategies_s1_16() -> None:
    pool = DataPoolSnapshot(context_files=POOL.context_files)
    request = request_for(900, "rain").model_copy(update={"strategy": "mine"})
    bundle = await ContextSelector(strategies={"mine": LastFileFirst()}).select(request, pool)
    assert bundle.files[0].path == "src/f8.py"
    pure = select_and_pack_context(
        pool,
        allocate_budget(request),
        request.intent,
        request=request,
        strategies={"mine": LastFileFirst()},
    )
    assert pure.render() == bundle.render()
    with pytest.raises(ValueError, match="there is no strategy 'mine'; use one of"):
        await ContextSelector().select(request, pool)


class Synonyms:
    """An embedder for which texts about a cat are similar to any query."""

    def similarities(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        del query
        return [float("cat" in text) for text in texts]


async def test_vectors_reach_the_default_strategy_s1_16() -> None:
    subjects = enumerate(("ant", "dog", "cat"))
    pool = pool_of(*(memory(index, f"All about {name}s.") for index, name in subjects))
    request = request_of(800, "feline", strategy="measured").model_copy(update={"now": NOON})

    async def order(selector: ContextSelector) -> list[str]:
        return [snippet.id for snippet in (await selector.select(request, pool)).memory]

    assert await order(ContextSelector()) == ["m0", "m1", "m2"]
    strategy = MeasuredStrategy(embedder=Synonyms())
    assert await order(ContextSelector(strategies={"measured": strategy})) == ["m2", "m0", "m1"]
