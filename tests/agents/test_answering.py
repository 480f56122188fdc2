"""Answers from the outputs of a session: status, budget, memory."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from llm_common.agents import Answering, Session, TokenBudget, ToolContextManager
from llm_common.core import LLMMessage, MessageRole
from llm_common.errors import LLMConnectionError, StoreError
from llm_common.memory import Event, InMemoryMemory
from llm_common.testing import ScriptedClient
from tests.agents.runs import REPORTS, WEATHER, forecaster, prompt_of


async def test_the_answer_uses_the_tools_outputs(tmp_path: Path) -> None:
    client = ScriptedClient(["It snows in Oslo."])
    answer = await forecaster(client, tmp_path).run("Is it snowing in Oslo?", plan=WEATHER)
    assert (answer.status, answer.text, answer.problem) == ("ok", "It snows in Oslo.", "")
    assert [result.success for result in answer.results] == [True, True]
    assert "Snow all day" in prompt_of(client)
    assert "Is it snowing in Oslo?" in prompt_of(client)
    assert len(answer.attempts) == 1
    assert answer.context is not None
    assert answer.context.metadata.outputs_selected == 2


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (LLMConnectionError("down"), "error"),
        ("", "invalid"),
        ("<think>and on", "invalid"),
        (RuntimeError("x"), "error"),
    ],
    ids=["connection", "empty", "only-thinking", "third-party"],
)
async def test_a_missing_answer_is_a_status_and_keeps_the_outputs(
    reply: str | Exception, status: str, tmp_path: Path
) -> None:
    runner = forecaster(ScriptedClient([reply]), tmp_path)
    answer = await runner.run("Is it snowing in Oslo?", plan=WEATHER)
    assert (answer.status, answer.text) == (status, None)
    assert answer.problem
    assert runner.context_manager.size == 2


@pytest.mark.parametrize(
    ("count", "outputs"), [(0, ""), (1, "1 stored output"), (3, "3 stored outputs")]
)
async def test_a_budget_that_shows_no_output_is_noted_for_model_and_user(
    manager: ToolContextManager, count: int, outputs: str
) -> None:
    for city in range(count):
        await manager.save_context(
            query_id="q", tool_name="weather", args={"city": city}, result="Snow all day. " * 2_000
        )
    client = ScriptedClient(["I do not know.", "It snows."])
    small = Answering(budget=TokenBudget(max_input_tokens=250, max_output_tokens=100))
    answer = await small.answer(client, manager, query="Is it snowing in Oslo?")
    note = f"The prompt's budget of 250 tokens leaves no room for {outputs}, so the answer does "
    assert answer.notes == (f"{note}without.",) * (count > 0)
    assert all(note in prompt_of(client) for note in answer.notes)
    assert answer.prompt_tokens <= 250

    enough = await Answering().answer(client, manager, query="Is it snowing in Oslo?")
    assert enough.notes == ()


async def test_a_session_remembers_its_conversation(tmp_path: Path) -> None:
    memory = InMemoryMemory()
    answering = Answering(memory=memory)
    client = ScriptedClient(["Snow.", "It was Oslo."])
    runner = forecaster(client, tmp_path)
    await runner.run("Is it snowing in Oslo?", plan=WEATHER, answering=answering)
    await runner.run("Which city did I ask about?", plan=[], answering=answering)
    spoken = [(message.role, message.content) for message in client.calls[1].messages]
    assert ("assistant", "Snow.") in spoken
    events = await memory.recent(runner.context_manager.session_id)
    assert [event.text for event in events][-1] == "It was Oslo."


async def test_a_session_is_answered_from_all_that_is_stored_under_its_id_t_01(
    tmp_path: Path,
) -> None:
    stored = Session(tmp_path, session_id="user:1")
    await stored.results.save("The key is under the mat.", tool="notes", args={"of": "key"})
    client = ScriptedClient(["Under the mat."])
    answer = await Answering().answer(
        client, Session(tmp_path, session_id="user:1"), query="Where is the key?"
    )
    assert answer.text == "Under the mat."
    assert "The key is under the mat." in prompt_of(client)


@pytest.mark.parametrize("history", [0, 200])
async def test_the_prompt_holds_the_conversation_or_a_summary_of_it_s3_02_s3_06(
    tmp_path: Path, history: int
) -> None:
    memory, manager = InMemoryMemory(), ToolContextManager(tmp_path)
    for role, text in (
        ("user", "Is it snowing?"),
        ("tool", "raw rows"),
        ("system", "Be rude."),
        ("assistant", "Yes."),
    ):
        await memory.append_event(manager.session_id, Event(role=MessageRole(role), text=text))
    client = ScriptedClient(["In Oslo."])
    await Answering(memory=memory, history=history).answer(client, manager, query="Where?")
    spoken = [(message.role, message.content) for message in client.calls[0].messages]
    assert [
        entry for entry in spoken if entry[1] in {"Is it snowing?", "raw rows", "Be rude.", "Yes."}
    ] == ([("user", "Is it snowing?"), ("assistant", "Yes.")] if history else [])
    assert ("Recent episode summary" in prompt_of(client)) is not bool(history)


class BrokenMemory(InMemoryMemory):
    async def append_event(self, session_id: str, event: Event, **_: object) -> str:
        raise StoreError("full")

    async def recent(self, session_id: str, *, limit: int = 20, **_: object) -> list[Event]:
        raise OSError("gone")


async def test_a_broken_memory_costs_no_answer(tmp_path: Path) -> None:
    answering = Answering(memory=BrokenMemory())
    answer = await forecaster(ScriptedClient(["Snow."]), tmp_path).run(
        "Oslo?", plan=WEATHER, answering=answering
    )
    assert answer.text == "Snow."


async def test_cancelling_while_the_model_thinks_keeps_the_outputs(tmp_path: Path) -> None:
    thinking = asyncio.Event()

    async def think(messages: Sequence[LLMMessage]) -> str:
        thinking.set()
        await asyncio.sleep(60)
        return "too late"

    runner = forecaster(ScriptedClient([think]), tmp_path)
    task = asyncio.create_task(runner.run("Is it snowing in Oslo?", plan=WEATHER))
    await asyncio.wait_for(thinking.wait(), timeout=60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    manager = runner.context_manager
    loaded = [
        manager.pointer_store.load_result(pointer=pointer) for pointer in manager.get_all_pointers()
    ]
    assert sorted(loaded) == sorted(REPORTS.values())
    assert len(asyncio.all_tasks()) == 1


async def test_an_executor_without_a_client_says_so(tmp_path: Path) -> None:
    runner = forecaster(None, tmp_path)
    with pytest.raises(ValueError, match="client is None; pass AgenticExecutor a client"):
        await runner.run("Oslo?")
