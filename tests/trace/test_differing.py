"""Differences of two runs: choices, and the first byte of their prompts."""

from functools import partial
from pathlib import Path

import pytest

from llm_common.agents import FileContextPointerStore
from llm_common.core import answer_text
from llm_common.testing import ScriptedClient
from llm_common.trace import diff, read_trace
from llm_common.trace.lines import ModelCallLine
from tests.trace.runs import memory, not_chosen, pack, recorded, turn


@pytest.mark.parametrize("texts", [False, True])
async def test_diff_lists_changed_items_and_the_first_changed_byte(
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
    assert [change.startswith("memory m2: new, whole") for change in steps["packing 1"]].count(
        True
    ) == 1
    assert steps["selection of outputs 1"] == ()
    assert [step.changes for step in diff(runs[0], runs[0]) if step.changes] == []


@pytest.mark.parametrize(
    ("texts", "position"), [(True, "byte {0:,}"), (False, "a byte from {1:,} to {2:,}")]
)
async def test_the_first_changed_byte_is_found(texts: bool, position: str, tmp_path: Path) -> None:
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
        f"the prompts differ from {position.format(exact, 1_024, before.bytes)}"
    )


async def test_a_line_with_chunks_of_zero_bytes_is_skipped(tmp_path: Path) -> None:
    async def story(_: FileContextPointerStore) -> None:
        messages = [{"role": "user", "content": "word " * 200}]
        await answer_text(ScriptedClient("Yes."), messages, model="m", timeout_s=5)

    run = await recorded(story, tmp_path)
    text = run.path.read_text(encoding="utf-8")
    assert '"chunk_bytes":256,' in text
    run.path.write_text(text.replace('"chunk_bytes":256,', '"chunk_bytes":0,'), encoding="utf-8")
    [note] = read_trace(run.path).notes
    assert "is of an unknown kind or form" in note
    assert all(step.changes == () for step in diff(read_trace(run.path), read_trace(run.path)))


async def test_a_prompt_refers_to_the_prompt_with_the_same_beginning(tmp_path: Path) -> None:
    async def story(store: FileContextPointerStore) -> None:
        await not_chosen(store)
        await not_chosen(store)

    first, second = (line.prompt for line in (await recorded(story, tmp_path)).of(ModelCallLine))
    assert first.same_bytes is None
    assert second.same_bytes == second.bytes
    assert (second.same_as or "").endswith("#2")
