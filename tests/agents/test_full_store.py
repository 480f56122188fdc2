"""Test that a store that cannot save costs a run nothing but the pointer."""

import logging
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    FileContextPointerStore,
    InMemoryContextPointerStore,
    Session,
    SessionConfig,
)
from llm_common.errors import PointerNotFoundError, ResultTooLargeError
from llm_common.history import FoldPolicy

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"


def full_session(**config: Any) -> Session:
    return Session(
        InMemoryContextPointerStore(max_result_bytes=100), config=SessionConfig(**config)
    )


async def test_a_result_that_is_not_stored_stays_whole_t_12() -> None:
    rows = [{"id": number, "name": f"part {number}"} for number in range(1_000)]
    offloaded = await full_session().offload(rows, tool="list_parts", args={})
    assert offloaded.is_whole
    assert offloaded.pointer_id is None
    assert "part 999" in str(offloaded)


async def test_a_longer_one_is_cut_and_says_so_t_12() -> None:
    text = "begin " + "word " * 60_000 + "end"
    offloaded = await full_session(fold=None).offload(text, tool="read", args={})
    assert not offloaded.is_whole
    assert str(offloaded).startswith("begin word")
    assert str(offloaded).endswith("word end")
    assert "[200,009 characters were not kept: the store failed." in str(offloaded)
    assert offloaded.total_chars == 300_009


@pytest.mark.parametrize("calls", [1, 4])
async def test_results_that_are_not_stored_fit_the_prompt_t_12(calls: int) -> None:
    session = full_session(fold=FoldPolicy(max_tokens=8_000))
    call = {"function": {"name": "read", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read all"}]
    entries = [{**call, "id": str(number)} for number in range(calls)]
    messages.append({"role": "assistant", "content": None, "tool_calls": entries})
    for number in range(calls):
        offloaded = await session.offload(
            "one two three " * 20_000, tool="read", args={}, turn="1", messages=messages[:2]
        )
        output = {"role": "tool", "tool_call_id": str(number), "content": str(offloaded)}
        messages.append(output)
    assert await session.fold(messages) == messages


async def test_a_history_that_is_not_stored_is_not_sent_t_12() -> None:
    session = full_session(fold=FoldPolicy(max_tokens=500))
    messages = [{"role": "user", "content": f"{number} " + "word " * 50} for number in range(40)]
    with pytest.raises(ResultTooLargeError):
        await session.fold(messages)


async def test_a_failed_save_is_one_warning_without_texts_t_12(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("in the way")
    session = Session(FileContextPointerStore(tmp_path / "taken" / "store"))
    with caplog.at_level(logging.DEBUG, logger="llm_common"):
        await session.offload("Ann lives in Oslo. " * 2_000, tool="read", args={"of": "Ann"})
    warnings = [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert [entry.getMessage() for entry in warnings] == [
        "a result was not stored, and the run goes on: UnsafePathError, ENOTDIR"
    ]
    assert "Ann" not in caplog.text
    assert str(tmp_path) not in caplog.text


async def test_a_result_without_a_pointer_is_missed_by_name_t_12(tmp_path: Path) -> None:
    short = await Session(tmp_path).offload([1, 2, 3], tool="read", args={})
    lost = await full_session().offload("one two three " * 20_000, tool="read", args={})
    for shown in (short, lost):
        assert shown.pointer_id is None
        with pytest.raises(PointerNotFoundError, match="this result has no pointer"):
            await Session(tmp_path).read(shown.pointer_id)


async def test_secrets_are_removed_also_from_what_is_not_stored_t_12() -> None:
    store = InMemoryContextPointerStore(max_result_bytes=100, redact_results=True)
    offloaded = await Session(store).offload(f"{SECRET} " * 400, tool="read", args={})
    assert not offloaded.is_whole
    assert SECRET not in str(offloaded)
