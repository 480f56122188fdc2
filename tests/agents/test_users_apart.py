"""One executor for many sessions: no run sees, reads or resumes what another one stored."""

import asyncio
import json
import re
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    AgenticExecutor,
    Answering,
    ContextRelevanceSelector,
    FileContextPointerStore,
    InMemoryContextPointerStore,
    OffloadPolicy,
    Session,
    StreamEvent,
    TokenBudget,
    ToolContextManager,
    ToolRegistry,
    ToolSelection,
    ToolSelector,
)
from llm_common.core import LLMMessage
from llm_common.errors import ConfigError
from llm_common.testing import ScriptedClient
from llm_common.trace import Trace
from tests.agents.runs import events_of, proposed, text_of

QUESTION = "What is in the account?"
# in the outputs of a user, and in the line that stands for one among candidates and unread outputs
OWNER = re.compile(r"(?:secret-|account user=)(\d\d)")
UNREAD = re.compile(r"^- ([0-9a-f]{12,16}) account", re.MULTILINE)
PLAN = ["Look it up", "Look it up once more"]
ACCOUNT = {"tool": "account", "args": {"user": "01"}}


def name(user: int) -> str:
    return f"{user:02}"


class Model:
    """A model that chooses `account`, and reads back whatever output its prompt names unread.

    Attributes:
        prompts: Every prompt, as one text.
    """

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, messages: list[LLMMessage]) -> str:
        prompt = text_of(messages)
        self.prompts.append(prompt)
        if "You choose the tool calls" in prompt:
            return self._calls(prompt)
        if "Candidates:" in prompt:
            return json.dumps({"pointer_ids": re.findall(r'"id":"([0-9a-f]+)"', prompt)})
        unread = UNREAD.findall(prompt)
        if unread and '"chars"' not in prompt.partition("Stored outputs")[2]:
            read = {"id": unread[-1], "chars": [0, 40]}
            return json.dumps({"tool": "read_context", "args": read})
        return "That is all."

    @staticmethod
    def _calls(prompt: str) -> str:
        owner = re.search(r"account of (\d\d)", prompt)
        user = owner[1] if owner else "00"
        return proposed(("account", {"user": user}))


def tools() -> ToolRegistry:
    registry = ToolRegistry()

    @registry.tool(read_only=True)
    async def account(user: str) -> dict[str, Any]:
        """Return the account of a user."""
        await asyncio.sleep(0)
        rows = [{"row": row, "note": "x" * 40} for row in range(60)]
        return {"owner": f"secret-{user}", "rows": rows, "last": f"secret-{user}"}

    return registry


def executor_of(folder: Path, model: Model, **options: Any) -> AgenticExecutor:
    client = ScriptedClient([], default=model)
    return AgenticExecutor(client, tools(), ToolContextManager(folder), **options)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def executor(tmp_path: Path, model: Model) -> AgenticExecutor:
    return executor_of(tmp_path, model)


def question_of(user: int) -> str:
    return f"What is in the account of {name(user)}?"


async def ask(executor: AgenticExecutor, user: int) -> list[StreamEvent]:
    # the selector shows its candidates to the model: they are in the prompts too
    assert executor.client is not None
    selector = ContextRelevanceSelector(executor.client) if user % 2 else None
    budget = TokenBudget(max_input_tokens=3_000, max_output_tokens=300)
    answering = Answering(budget=budget, selector=selector, native_tools=False, timeout_s=600)
    return await events_of(
        executor.answer_stream(
            question_of(user), plan=PLAN, answering=answering, session=f"user:{user}"
        )
    )


def owners(text: str) -> set[str]:
    return set(OWNER.findall(text))


@pytest.mark.parametrize("users", [15, pytest.param(50, marks=pytest.mark.torture)])
async def test_sessions_at_once_never_see_each_other(tmp_path: Path, users: int) -> None:
    model, trace = Model(), Trace(tmp_path / "trace", texts=True)
    executor = executor_of(
        tmp_path / "context", model, offload=OffloadPolicy(max_whole_tokens=100), read_back=True
    )

    async def traced(user: int) -> list[StreamEvent]:
        with trace.run(f"user:{user}", query=question_of(user)):
            return await ask(executor, user)

    runs = await asyncio.gather(*map(traced, range(users)))
    by_user: dict[str, set[str]] = {}
    for prompt in model.prompts:
        [user] = set(re.findall(r"account of (\d\d)", prompt))
        by_user.setdefault(user, set()).update(owners(prompt))
    assert by_user == {name(user): {name(user)} for user in range(users)}
    trace.flush()
    for user, events in enumerate(runs):
        assert owners("".join(map(repr, events))) == {name(user)}
        answer = events[-1].data
        assert (answer.status, [read.problem for read in answer.reads]) == ("ok", [""])
        [file] = (tmp_path / "trace" / f"user;{user}").glob("*.jsonl")
        assert owners(file.read_text()) == {name(user)}
    assert executor.context_manager.size == 0


async def test_a_session_sees_its_outputs_of_earlier_runs(model: Model, tmp_path: Path) -> None:
    await executor_of(tmp_path, model).run(QUESTION, session="user:1", plan=["the account of 01"])
    again = Model()
    await executor_of(tmp_path, again).run("And now?", session="user:1", plan=["Go on"])
    assert "secret-01" in again.prompts[0]


async def test_a_run_works_on_the_session_of_a_loop_of_ones_own(
    executor: AgenticExecutor, model: Model, tmp_path: Path
) -> None:
    session = Session(tmp_path, session_id="user:1")
    big = [{"row": row, "owner": "secret-01"} for row in range(3_000)]
    await session.offload(big, tool="ledger", args={"user": "01"})
    await executor.execute_plan(["the account of 01", "Go on"], "q1", session=session)
    assert "ledger user=01" in model.prompts[0]
    stored = await ToolContextManager(tmp_path, session_id="user:1").resume()
    assert [pointer.tool_name for pointer in stored] == ["ledger", "account", "account"]
    assert [*session.results.pointers] == [pointer.pointer_id for pointer in stored]


async def test_a_session_may_be_a_manager_of_its_own_store(
    executor: AgenticExecutor, tmp_path: Path
) -> None:
    session = ToolContextManager(pointer_store=InMemoryContextPointerStore(), session_id="user:1")
    await executor.execute_plan(["the account of 01"], "q1", session=session)
    [pointer] = session.get_all_pointers()
    assert pointer.query_id == session.query_id_of("q1")
    assert FileContextPointerStore(tmp_path).list(query_id="q1") == []


async def test_every_entry_stores_in_the_session_that_it_names(
    executor: AgenticExecutor, tmp_path: Path
) -> None:
    session = ToolContextManager(tmp_path, session_id="user:1")
    await executor.execute_tool_calls([ACCOUNT], 1, "calls", session="user:1")
    await executor.execute_task("the account of 01", "task", session="user:1")
    await executor.execute_plan(["the account of 01"], "plan", session="user:1")
    await events_of(executor.run_stream(["the account of 01"], "stream", session="user:1"))
    await executor.run(QUESTION, plan=["the account of 01"], session="user:1")
    queries = ["calls", "task", "plan", "stream", QUESTION]
    assert [pointer.query_id for pointer in await session.resume()] == [
        session.query_id_of(query) for query in queries
    ]
    assert executor.context_manager.size == 0


async def test_reading_back_is_limited_to_the_session(tmp_path: Path) -> None:
    executor = executor_of(tmp_path, Model(), read_back=True)
    [stored] = await executor.execute_tool_calls([ACCOUNT], 1, "q1", session="user:1")
    read = {"tool": "read_context", "args": {"id": stored["pointer_id"]}}
    [mine] = await executor.execute_tool_calls([read], 1, "q1", session="user:1")
    assert "secret-01" in mine["output"].text
    for session in ("user:2", None):
        [missed] = await executor.execute_tool_calls([read], 1, "q1", session=session)
        assert "no stored result of this session has this id" in missed["error"]


async def test_equal_query_ids_of_two_sessions_never_meet(tmp_path: Path) -> None:
    executor, plan = executor_of(tmp_path, Model()), ["the account of 01"]
    await executor.execute_plan(plan, "q1", session="user:1")
    [other] = await executor.execute_plan(plan, "q1", session="user:2", resume=True)
    assert "resumed" not in other.result[0]
    [own] = await executor.execute_plan(plan, "q1", session="user:1", resume=True)
    assert own.result[0]["resumed"]


async def test_resuming_needs_a_session_with_a_name(
    executor: AgenticExecutor, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="pass session='user:42'") as caught:
        await executor.run(QUESTION, resume=True)
    assert caught.value.variable == "session"
    with pytest.raises(ConfigError):
        await executor.execute_plan(PLAN, "q1", session=ToolContextManager(tmp_path), resume=True)
    async with aclosing(executor.run_stream(PLAN, "q1", resume=True)) as stream:
        with pytest.raises(ConfigError):
            await anext(stream)


async def test_an_executor_over_a_named_session_resumes_it(tmp_path: Path) -> None:
    for _ in range(2):
        session = ToolContextManager(tmp_path, session_id="user:1")
        executor = AgenticExecutor(ScriptedClient([], default=Model()), tools(), session)
        [result] = await executor.execute_plan(["the account of 01"], "q1", resume=True)
    assert result.result[0]["resumed"]


async def test_a_subclass_that_asks_its_base_to_choose_stays_in_its_session(
    model: Model, tmp_path: Path
) -> None:
    class Careful(AgenticExecutor):
        async def _resolve_tools(self, task: Any, *, query: str | None = None) -> ToolSelection:
            selection = await super()._resolve_tools(task, query=query)
            assert isinstance(selection, ToolSelection)
            return selection

    client = ScriptedClient([], default=model)
    executor = Careful(client, tools(), ToolContextManager(tmp_path), selector=ToolSelector(client))
    await executor.execute_plan(["the account of 01", "Go on"], "q1")
    await executor.execute_plan(["the account of 02", "Go on"], "q2", session="user:2")
    assert "secret-01" in model.prompts[1]
    assert [owners(prompt) for prompt in model.prompts[2:]] == [set(), {name(2)}]
