"""The reason of a failed or refused call reaches events, results, logs, spans and the model."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from llm_common.agents import (
    AgenticExecutor,
    Answering,
    FileContextPointerStore,
    PlannedTask,
    Redactor,
    RunLimits,
    StreamEvent,
    SubTaskResult,
    TokenBudget,
    ToolCall,
    ToolContextManager,
    ToolRegistry,
    ToolResult,
)
from llm_common.agents.runs import RunState, ToolRunner
from llm_common.core import MessageRole
from llm_common.errors import ToolFailedError
from llm_common.memory import Event, InMemoryMemory
from llm_common.testing import ScriptedClient
from tests.agents.runs import asking, call, events_of, prompt_of, proposed

KEY = "ghp_" + "a1B2" * 9
WORDS = "what my neighbour earns"


class WordlessError(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


class Unidentifiable:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise LookupError("no class")


class OutOfTheTree(BaseException):
    pass


RAISED = {
    "generator-exit": GeneratorExit("over"),
    "base": OutOfTheTree("over"),
    "group": BaseExceptionGroup("several", [OutOfTheTree("over")]),
    "wordless": WordlessError(),
}


def filings(ticker: str) -> str:
    """Reads the filings of a company."""
    raise ConnectionError(f"sec.example refused {ticker}: 503, api_key={KEY}")


def refusing(text: str) -> ToolResult:
    """Returns a failure."""
    return ToolResult(success=False, data=[1], error=f"no access with token={KEY} for {text}")


async def price(ticker: str) -> str:
    """Reads a price."""
    return f"{ticker} 150"


def executor_of(
    folder: Path, *replies: str, tools: Sequence[Any] = (filings, refusing, price), **options: Any
) -> tuple[AgenticExecutor, ScriptedClient]:
    return asking(folder, *replies, registry=ToolRegistry(tools), **options)


async def run(
    folder: Path, *replies: str, **options: Any
) -> tuple[list[StreamEvent], SubTaskResult]:
    executor, _ = executor_of(folder, *replies, **options)
    *events, answer = await events_of(executor.answer_stream("q", plan="Gather"))
    [result] = answer.data.results
    return events, result


def errors(events: list[StreamEvent]) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == "error"]


async def test_the_reason_of_a_raised_error_reaches_everyone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, exported: InMemorySpanExporter
) -> None:
    reply = proposed(("filings", {"ticker": WORDS}), ("price", {"ticker": "AAPL"}))
    events, result = await run(tmp_path, reply)
    [error] = errors(events)
    assert result.success
    assert (error["tool"], error["args"], error["task"]) == ("filings", {"ticker": WORDS}, 1)
    for text in (error["error"], str(result.error), caplog.text):
        assert "filings raised ConnectionError: sec.example refused [ticker]: 503" in text
        assert KEY not in text
        assert WORDS not in text
    [span] = [one for one in exported.get_finished_spans() if one.name == "execute_tool filings"]
    assert span.status.status_code is StatusCode.ERROR
    assert [dict(event.attributes or {}) for event in span.events] == [
        {"exception.type": "ConnectionError"}
    ]
    assert "sec.example" not in span.to_json()


async def test_the_error_of_a_result_is_shown_as_it_is_stored(
    manager: ToolContextManager,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    exported: InMemorySpanExporter,
) -> None:
    reply = proposed(("refusing", {"text": WORDS}))
    events, result = await run(tmp_path, reply, manager=manager)
    [error] = errors(events)
    [stored] = await manager.load_contexts(manager.get_all_pointers())
    assert error["output"].error == stored.result["error"]
    assert error["output"].data == [1]
    assert KEY not in repr(events) + repr(result) + caplog.text
    assert "'refusing' returned a failure: no access with token=" in str(result.error)
    [span] = [one for one in exported.get_finished_spans() if one.name == "execute_tool refusing"]
    assert span.status.status_code is StatusCode.ERROR


async def test_a_redacting_store_redacts_failed_results_too(tmp_path: Path) -> None:
    def leaking() -> ToolResult:
        """Returns a failure with data."""
        return ToolResult(success=False, data={"password": "hunter2hunter2"}, error="no")

    manager = ToolContextManager(
        pointer_store=FileContextPointerStore(tmp_path, redact_results=True)
    )
    events, _ = await run(tmp_path, proposed(("leaking", {})), tools=[leaking], manager=manager)
    [error] = errors(events)
    assert isinstance(error["output"], ToolResult)
    assert "hunter2" not in repr(events)


async def test_the_stores_redactor_defines_secrets(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path, redactor=Redactor(extra_patterns=("sec\\.example",)))
    manager = ToolContextManager(pointer_store=store)
    _, result = await run(tmp_path, proposed(("filings", {"ticker": "A"})), manager=manager)
    assert "ConnectionError: [redacted] refused A" in str(result.error)


@pytest.mark.parametrize(
    ("place", "words", "shown"),
    [
        (
            {
                "name": "the old harbour",
                "parts": ["the old", "the old harbour, pier 5"],
                "at": "now",
            },
            "the old harbour, pier 5 is not in the old harbour now",
            "[place] is not in [place] now",
        ),
        ({"name": "Jo Smith"}, "nobody is called Jo Smith", "nobody is called [place]"),
        ({"name": "J. Smith"}, "nobody is called J. Smith", "nobody is called [place]"),
        ({"name": "JoSmith"}, "nobody is called JoSmith", "nobody is called JoSmith"),
    ],
)
async def test_texts_of_the_arguments_from_eight_characters_are_left_out(
    tmp_path: Path, place: dict[str, Any], words: str, shown: str
) -> None:
    def find(place: dict[str, Any]) -> str:
        """Finds a place."""
        raise LookupError(words)

    _, result = await run(tmp_path, proposed(("find", {"place": place})), tools=[find])
    assert result.result[0]["error"] == f"find raised LookupError: {shown}"


async def test_a_tools_own_explanation_is_kept(tmp_path: Path) -> None:
    class Opaque:
        async def execute(self, name: str, args: dict[str, Any]) -> str:
            raise ToolFailedError("the index is being rebuilt; ask again in an hour", tool=name)

    executor, _ = asking(tmp_path, registry=Opaque())
    [result] = await executor.execute_tool_calls([call("find")], 1, "q")
    assert result["error"] == "find: the index is being rebuilt; ask again in an hour"


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("kind", RAISED)
async def test_any_exception_of_a_tool_fails_only_its_call_f_172(
    tmp_path: Path, kind: str, is_async: bool
) -> None:
    async def raising() -> None:
        """Raises."""
        raise RAISED[kind]

    def raising_here() -> None:
        """Raises in a thread."""
        raise RAISED[kind]

    failing = "raising" if is_async else "raising_here"
    reply = proposed((failing, {}), ("price", {"ticker": "AAPL"}))
    events, result = await run(tmp_path, reply, tools=[price, raising, raising_here])
    [error] = errors(events)
    assert error["error"].startswith(f"{failing} raised ")
    assert result.success
    assert result.result[1]["output"] == "AAPL 150"


async def test_a_result_without_a_class_fails_its_call_alone_f_172(tmp_path: Path) -> None:
    async def odd() -> object:
        """Returns an object that raises when it is asked for its class."""
        return Unidentifiable()

    reply = proposed(("odd", {}), ("price", {"ticker": "A"}))
    events, result = await run(tmp_path, reply, tools=[odd, price])
    [error] = errors(events)
    assert error["error"] == "odd raised LookupError: no class"
    assert result.result[1]["output"] == "A 150"


class WatchedRedactor(Redactor):
    """A redactor that keeps the threads in which it reads about a fault."""

    threads: ClassVar[list[threading.Thread]] = []

    def text(self, text: str) -> str:
        if "fault" in text:
            self.threads.append(threading.current_thread())
        return super().text(text)


async def test_failures_are_described_outside_the_event_loop_s0_20(tmp_path: Path) -> None:
    class RecordingError(BaseException):
        def __str__(self) -> str:
            WatchedRedactor.threads.append(threading.current_thread())
            return "over"

    async def failing() -> str:
        """Fails."""
        raise RecordingError

    async def returning() -> ToolResult:
        """Returns a failure."""
        return ToolResult(success=False, error="a fault")

    store = FileContextPointerStore(tmp_path, redactor=WatchedRedactor())
    manager = ToolContextManager(pointer_store=store)
    reply = proposed(("failing", {}), ("returning", {}))
    _, result = await run(tmp_path, reply, tools=[failing, returning], manager=manager)
    assert str(result.result[0]["error"]).endswith("RecordingError: over")
    assert len(WatchedRedactor.threads) > 1
    assert threading.current_thread() not in WatchedRedactor.threads


async def test_the_end_of_the_program_still_passes_through_f_172(tmp_path: Path) -> None:
    executor, _ = executor_of(tmp_path)
    ended = asyncio.get_running_loop().create_future()
    ended.set_exception(SystemExit(3))
    manager = executor.context_manager
    run = RunState(
        RunLimits(), manager.session, manager.save_context, executor.registry, query_id="q1"
    )
    runner = ToolRunner(run, offload=None, takes_mapping=True)
    with pytest.raises(SystemExit):
        await runner.outcome(ToolCall(tool="x", args={}), ended)


async def test_a_refused_call_is_an_event_and_one_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reply = proposed(
        ("pric", {"ticker": "A"}),
        ("price", {"ticker": "A"}),
        ("price", {"tick": KEY}),
        ("price", {"ticker": "A"}),
    )
    events, result = await run(tmp_path, reply)
    refused = errors(events)
    assert [(error["tool"], error["reason"]) for error in refused] == [
        ("pric", "unknown_tool"),
        ("price", "invalid_args"),
        ("price", "repeat"),
    ]
    assert all("was refused" in error["error"] for error in refused)
    assert [record.message.count("refused") for record in caplog.records] == [4]
    assert "3 proposed calls were refused" in caplog.text
    assert KEY not in repr(events) + caplog.text
    assert result.success
    assert "pric: unknown tool" in str(result.error)
    assert "repeat" not in str(result.error)


async def test_a_secret_in_a_proposed_name_is_redacted_and_the_log_is_short(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reply = proposed((KEY, {}), *((f"absent{number}", {}) for number in range(9)))
    events, result = await run(tmp_path, reply)
    assert KEY not in caplog.text + str(result.error) + "".join(
        error["error"] for error in errors(events)
    )
    assert "10 proposed calls" in caplog.text
    assert "absent8" not in caplog.text


async def test_a_task_of_refused_calls_alone_says_which(tmp_path: Path) -> None:
    events, result = await run(tmp_path, proposed(("absent", {})))
    assert [error.get("reason") for error in errors(events)] == ["unknown_tool", None]
    assert not result.success


async def test_the_answering_model_sees_the_failures(tmp_path: Path) -> None:
    reply = proposed(("filings", {"ticker": WORDS}), ("price", {"ticker": "AAPL"}))
    executor, client = executor_of(tmp_path, reply, "The filings could not be read.")
    answer = await executor.run("What filings are there?")
    assert answer.status == "ok"
    prompt = prompt_of(client, 1)
    assert "- filings raised ConnectionError: sec.example refused [ticker]: 503" in prompt
    assert "never conclude that there is none" in prompt
    assert KEY not in prompt


async def test_failures_are_the_last_document_to_be_dropped(manager: ToolContextManager) -> None:
    client, memory = ScriptedClient(["It could not be read."]), InMemoryMemory()
    for number in range(4):
        text = f"filings {number} " + "of last year " * 40
        await memory.append_event(manager.session_id, Event(role=MessageRole.TOOL, text=text))
    results = [
        SubTaskResult(task_id=number, sub_task_id=0, success=True, error=f"filings{number} raised")
        for number in range(12)
    ]
    budget = TokenBudget(max_input_tokens=400, max_output_tokens=50)
    await Answering(memory=memory, budget=budget).answer(
        client, manager, query="Which filings?", results=results
    )
    prompt = prompt_of(client)
    assert "- filings0 raised" in prompt
    assert "- filings9 raised" in prompt
    assert "filings10" not in prompt
    assert "characters left out" in prompt


async def test_nothing_failed_adds_nothing_to_the_prompt(tmp_path: Path) -> None:
    client = ScriptedClient(["Yes."])
    results = [SubTaskResult(task_id=1, sub_task_id=0, success=True)]
    await Answering().answer(client, ToolContextManager(tmp_path), query="Is it?", results=results)
    assert "Failed while" not in prompt_of(client)


@pytest.mark.parametrize("read_back", [True, False])
async def test_a_model_sees_the_reader_and_the_ids_if_it_may_read_back(
    tmp_path: Path, read_back: bool
) -> None:
    reply = proposed(("price", {"ticker": "AAPL"}))
    executor, client = executor_of(tmp_path, reply, proposed(), read_back=read_back)
    await executor.run("What is the price?", plan=["Read the price", "Compare it"])
    first, second, answering = (prompt_of(client, number) for number in range(3))
    [pointer] = executor.context_manager.get_all_pointers()
    for reader in ("read_context", "query_context"):
        assert reader not in first
        assert (reader in second) is read_back
    assert f'"pointer_id":"{pointer.pointer_id}"' in second
    assert pointer.pointer_id in answering


TASK = PlannedTask(id=7, description="Gather")


@pytest.mark.parametrize(
    ("plan", "ids"),
    [
        ([TASK], [7]),
        ((TASK, "More"), [7, 2]),
        (TASK, [7]),
        ("Gather", [1]),
        ([{"description": "Gather"}, {"id": 9, "description": "More"}], [1, 9]),
        ({"tasks": [{"id": 3, "description": "Gather"}]}, [3]),
        ({"description": "Gather"}, [1]),
        ([], []),
    ],
)
async def test_a_list_of_tasks_is_a_plan(tmp_path: Path, plan: Any, ids: list[int]) -> None:
    executor, _ = executor_of(tmp_path, *[proposed()] * len(ids), "Done.")
    answer = await executor.run("q", plan=plan)
    assert [result.task_id for result in answer.results] == ids


@pytest.mark.parametrize(
    "plan", [5, [5], [None], {"goal": "x"}, [{"id": "seven", "description": "x"}], b"Gather"]
)
async def test_a_wrong_plan_is_refused_with_a_hint(tmp_path: Path, plan: Any) -> None:
    executor, _ = executor_of(tmp_path)
    with pytest.raises(TypeError, match="Pass an ExecutionPlan, or a list of PlannedTask"):
        await executor.run("q", plan=plan)
    with pytest.raises(TypeError, match="Pass an ExecutionPlan, or a list of PlannedTask"):
        await executor.execute_plan(plan, "q1")


async def test_calls_may_be_mappings(tmp_path: Path) -> None:
    executor, _ = executor_of(tmp_path)
    [result] = await executor.execute_tool_calls(
        [{"tool": "price", "args": {"ticker": "A"}}], 1, "q1"
    )
    assert result["output"] == "A 150"
    wrong: Any = "price"
    with pytest.raises(TypeError, match="pass ToolCall"):
        await executor.execute_tool_calls([wrong], 1, "q1")


def test_a_manager_of_another_kind_is_refused(tmp_path: Path) -> None:
    managers: list[Any] = [FileContextPointerStore(tmp_path), str(tmp_path)]
    for manager in managers:
        with pytest.raises(
            TypeError, match=r"pass ToolContextManager\(folder\) or \(pointer_store=...\)"
        ):
            AgenticExecutor(ScriptedClient([]), ToolRegistry([price]), manager)


@pytest.mark.parametrize("as_mapping", [True, False], ids=["mappings", "calls"])
async def test_a_subclass_may_resolve_tools_to_a_list_once_a_task(
    tmp_path: Path, as_mapping: bool
) -> None:
    chosen: Any = {"tool": "price", "args": {"ticker": "A"}}
    asked: list[int] = []

    class Listing(AgenticExecutor):
        async def _resolve_tools(self, task: PlannedTask, *, query: str | None = None) -> list[Any]:
            asked.append(task.id)
            return [chosen if as_mapping else ToolCall(**chosen)] if task.id == 1 else []

    executor = Listing(ScriptedClient([]), ToolRegistry([price]), ToolContextManager(tmp_path))
    first, second = await executor.execute_plan(["Gather", "More"], "q1", query="q")
    assert first.result[0]["output"] == "A 150"
    assert second.result == "No tools called"
    assert asked == [1, 2]
