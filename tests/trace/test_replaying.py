"""Choices made again from their trace."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from llm_common.agents import FileContextPointerStore, LexicalRelevanceSelector
from llm_common.core.structured import answer_text
from llm_common.testing import ScriptedClient
from llm_common.trace import diff, replay
from llm_common.trace.lines import ModelCallLine, PackingLine, SelectionLine
from tests.trace.runs import (
    QUERY,
    Story,
    improbable,
    long_story,
    memory,
    not_chosen,
    outputs,
    over_the_cap,
    pack,
    recorded,
    turn,
)


async def pack_outputs(store: FileContextPointerStore) -> None:
    found = await outputs(store, "parcel Oslo arrive", "parcel", "weather")
    turns = tuple(turn(f"t{number}", f"Does parcel {number} arrive? " * 40) for number in range(9))
    await pack(
        store, 900, tool_outputs=tuple(found), session_log=turns, memory_hits=(memory(1), memory(2))
    )


def store_of(folder: Path) -> FileContextPointerStore:
    return FileContextPointerStore(folder / "store")


@pytest.mark.parametrize("story", [over_the_cap, not_chosen, improbable, pack_outputs])
async def test_a_choice_made_again_gives_the_same(story: Story, tmp_path: Path) -> None:
    run = await recorded(story, tmp_path, texts=True)
    done = await replay(run, store_of(tmp_path))
    assert [(one.status, one.changes) for one in done] == [("same", ())]


async def test_a_trace_without_texts_takes_the_question_from_the_caller(tmp_path: Path) -> None:
    run = await recorded(not_chosen, tmp_path)
    statuses = [
        (await replay(run, store_of(tmp_path), query=query))[0].status
        for query in (None, "Other?", QUERY)
    ]
    assert statuses == ["not_replayed", "not_replayed", "same"]


async def test_an_output_that_is_gone_or_changed_is_named(tmp_path: Path) -> None:
    async def story(store: FileContextPointerStore) -> None:
        await LexicalRelevanceSelector(2).select(
            query=QUERY, pointers=await outputs(store, "parcel", "Oslo", "sun")
        )

    run = await recorded(story, tmp_path, texts=True)
    [line] = run.of(SelectionLine)
    store = store_of(tmp_path)
    first, second = (
        next(p for p in store.list(query_id="parcel") if p.pointer_id == one) for one in line.chosen
    )
    store.delete(query_id="parcel", pointer_ids=[first.pointer_id])
    await store.save(
        query_id="parcel", task_id="1", tool_name="lookup", args=second.args, result="other"
    )
    [done] = await replay(run, store)
    assert done.status == "changed"
    assert f"output {first.pointer_id} is not in the store any more" in done.changes
    assert f"output {second.pointer_id} has other bytes now" in done.changes
    assert done.changes[-1].startswith("chosen were")


async def test_what_a_replay_lacks_is_said(tmp_path: Path) -> None:
    run = await recorded(long_story, tmp_path)
    done = await replay(run, store_of(tmp_path), query=QUERY)
    problems = [one.changes[0] for one in done if one.status == "not_replayed"]
    assert problems[0] == "choosing tools needs their registry, which is not in the store"
    assert problems[-1] == "the trace does not hold the text of turn t1; use texts=True"


@pytest.mark.parametrize(
    "other",
    [
        {"settings": {"a knob of a later version": 1}},
        {"settings": {}},
        {"intent": "unknown"},
        {"now": ""},
    ],
)
async def test_a_packing_of_another_version_is_not_replayed(
    other: dict[str, object], tmp_path: Path
) -> None:
    run = await recorded(pack_outputs, tmp_path, texts=True)
    lines = [
        line.model_copy(update=other) if isinstance(line, PackingLine) else line
        for line in run.lines
    ]
    [done] = await replay(replace(run, lines=tuple(lines)), store_of(tmp_path))
    assert done.status == "not_replayed"
    assert done.changes == ("its settings are of another version of the library",)


@pytest.mark.parametrize("texts", [False, True])
async def test_two_runs_differ_in_their_packing_and_from_a_byte_of_their_prompts(
    texts: bool, tmp_path: Path
) -> None:
    async def story(store: FileContextPointerStore, number: int) -> None:
        text = f"Parcel {number} of many. " * 30
        await pack(
            None, 2_000, session_log=(turn("t1", text),), memory_hits=(memory(number), memory(5))
        )
        await not_chosen(store)

    runs = [
        await recorded(partial(story, number=number), tmp_path / str(number), texts=texts)
        for number in (1, 2)
    ]
    steps = {step.name: step.changes for step in diff(*runs)}
    assert "memory m1: whole (16 tokens) → not a candidate" in steps["packing 1"]
    assert [one.startswith("memory m2: new, whole") for one in steps["packing 1"]].count(True) == 1
    assert steps["selection of outputs 1"] == ()
    assert [step.changes for step in diff(runs[0], runs[0]) if step.changes] == []


@pytest.mark.parametrize(
    ("texts", "place"), [(True, "byte {0:,}"), (False, "a byte from {1:,} to {2:,}")]
)
async def test_the_first_changed_byte_is_found(texts: bool, place: str, tmp_path: Path) -> None:
    async def story(_: FileContextPointerStore, end: str) -> None:
        messages = [{"role": "system", "content": "word " * 200}, {"role": "user", "content": end}]
        await answer_text(ScriptedClient("Yes."), messages, model="m", timeout_s=5)

    runs = [
        await recorded(partial(story, end=end), tmp_path / end, texts=texts)
        for end in ("one", "two")
    ]
    [step] = [step for step in diff(*runs) if step.changes]
    before, after = (run.of(ModelCallLine)[0].prompt for run in runs)
    exact = after.bytes - len('two"}')
    assert step.changes[-1].startswith(
        f"the prompts differ from {place.format(exact, 1_024, before.bytes)}"
    )


async def test_a_prompt_names_the_one_whose_beginning_it_shares(tmp_path: Path) -> None:
    async def story(store: FileContextPointerStore) -> None:
        await not_chosen(store)
        await not_chosen(store)

    first, second = (line.prompt for line in (await recorded(story, tmp_path)).of(ModelCallLine))
    assert first.same_bytes is None
    assert second.same_bytes == second.bytes
    assert (second.same_as or "").endswith("#2")


async def test_packing_lines_hold_what_a_replay_needs(tmp_path: Path) -> None:
    [line] = (await recorded(pack_outputs, tmp_path, texts=True)).of(PackingLine)
    assert {item.form for item in line.items} > {"whole"}
    assert sum(item.tokens for item in line.items) <= line.tokens
