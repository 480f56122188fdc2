"""The reason of a failed or refused call reaches events, results, logs, spans and the model."""

import asyncio
import json
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from llm_common.agents import (
    AgenticExecutor,
    Answering,
    ExecutionPlan,
    FileContextPointerStore,
    LexicalToolSelector,
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
from llm_common.redaction.patterns import REDACTED
from llm_common.testing import ScriptedClient
from tests.loop_cpu import longest_tick_s

KEY = "ghp_" + "a1B2" * 9
WORDS = "what my neighbour earns"
PLAN = ExecutionPlan(tasks=[PlannedTask(id=1, description="Gather")])


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
    folder: Path, *replies: str, manager: ToolContextManager | None = None, **options: Any
) -> AgenticExecutor:
    registry = options.pop("registry", None) or ToolRegistry([filings, refusing, price])
    return AgenticExecutor(
        ScriptedClient(replies, default="An answer"),
        registry,
        manager or ToolContextManager(folder),
        **options,
    )


def calls(*proposed: tuple[str, dict[str, Any]]) -> str:
    return json.dumps({"calls": [{"tool": tool, "args": args} for tool, args in proposed]})


async def run(executor: AgenticExecutor) -> tuple[list[StreamEvent], SubTaskResult]:
    async with aclosing(executor.answer_stream("q", plan=PLAN)) as stream:
        events: list[StreamEvent] = [event async for event in stream]
    [result] = events.pop().data.results
    return events, result


def errors(events: list[StreamEvent]) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == "error"]


async def test_the_reason_of_a_raised_error_reaches_everyone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, exported: InMemorySpanExporter
) -> None:
    reply = calls(("filings", {"ticker": WORDS}), ("price", {"ticker": "AAPL"}))
    events, result = await run(executor_of(tmp_path, reply))
    [error] = errors(events)
    assert result.success
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
    tmp_path: Path, caplog: pytest.LogCaptureFixture, exported: InMemorySpanExporter
) -> None:
    executor = executor_of(tmp_path, calls(("refusing", {"text": WORDS})))
    events, result = await run(executor)
    [error] = errors(events)
    [stored] = await executor.context_manager.load_contexts(
        executor.context_manager.get_all_pointers()
    )
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
    events, _ = await run(
        executor_of(
            tmp_path, calls(("leaking", {})), registry=ToolRegistry([leaking]), manager=manager
        )
    )
    [error] = errors(events)
    assert isinstance(error["output"], ToolResult)
    assert "hunter2" not in repr(events)


async def test_the_stores_redactor_defines_secrets(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path, redactor=Redactor(extra_patterns=("sec\\.example",)))
    executor = executor_of(
        tmp_path,
        calls(("filings", {"ticker": "A"})),
        manager=ToolContextManager(pointer_store=store),
    )
    _, result = await run(executor)
    assert "ConnectionError: [redacted] refused A" in str(result.error)


async def test_every_text_of_the_arguments_is_left_out(tmp_path: Path) -> None:
    def find(place: dict[str, Any], short: str) -> str:
        """Finds a place."""
        raise LookupError(f"{place['parts'][1]} is not in {place['name']}, {short}")

    args = {
        "place": {"name": "the old harbour", "parts": ["the old", "the old harbour, pier 5"]},
        "short": "today",
    }
    executor = executor_of(tmp_path, registry=ToolRegistry([find]))
    [result] = await executor.execute_tool_calls([{"tool": "find", "args": args}], 1, "q1")
    assert result["error"] == "find raised LookupError: [place] is not in [place], today"


@pytest.mark.parametrize(
    ("given", "shown"), [("Jo Smith", "[name]"), ("J. Smith", "[name]"), ("JoSmith", "JoSmith")]
)
async def test_a_text_of_eight_characters_may_be_a_users(
    tmp_path: Path, given: str, shown: str
) -> None:
    def find(name: str) -> str:
        """Finds a person."""
        raise LookupError(f"nobody is called {name}")

    executor = executor_of(tmp_path, registry=ToolRegistry([find]))
    [result] = await executor.execute_tool_calls(
        [{"tool": "find", "args": {"name": given}}], 1, "q1"
    )
    assert result["error"] == f"find raised LookupError: nobody is called {shown}"


async def test_a_tools_own_explanation_is_kept(tmp_path: Path) -> None:
    class Opaque:
        async def execute(self, name: str, args: dict[str, Any]) -> str:
            raise ToolFailedError("the index is being rebuilt; ask again in an hour", tool=name)

    [result] = await executor_of(tmp_path, registry=Opaque()).execute_tool_calls(
        [ToolCall(tool="find", args={})], 1, "q"
    )
    assert result["error"] == "find: the index is being rebuilt; ask again in an hour"


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("kind", RAISED)
async def test_any_exception_of_a_tool_fails_only_its_call_f_172(
    tmp_path: Path, kind: str, is_async: bool
) -> None:
    async def slow(ticker: str) -> str:
        """Reads a price slowly."""
        await asyncio.sleep(0.01)
        return f"{ticker} 150"

    async def raising() -> None:
        """Raises."""
        raise RAISED[kind]

    def raising_here() -> None:
        """Raises in a thread."""
        raise RAISED[kind]

    failing = "raising" if is_async else "raising_here"
    registry = ToolRegistry([slow, raising, raising_here])
    executor = executor_of(
        tmp_path, calls((failing, {}), ("slow", {"ticker": "AAPL"})), registry=registry
    )
    events, result = await run(executor)
    [error] = errors(events)
    assert error["error"].startswith(f"{failing} raised ")
    assert result.success
    assert result.result[1]["output"] == "AAPL 150"


async def test_a_result_without_a_class_fails_its_call_alone_f_172(tmp_path: Path) -> None:
    async def odd() -> object:
        """Returns an object that raises when it is asked for its class."""
        return Unidentifiable()

    executor = executor_of(
        tmp_path,
        calls(("odd", {}), ("price", {"ticker": "A"})),
        registry=ToolRegistry([odd, price]),
    )
    events, result = await run(executor)
    [error] = errors(events)
    assert error["error"] == "odd raised LookupError: no class"
    assert result.result[1]["output"] == "A 150"


async def test_a_long_error_is_described_outside_the_event_loop(tmp_path: Path) -> None:
    def failing(texts: list[str]) -> str:
        """Fails."""
        raise ConnectionError("down " * 20_000)

    def returning() -> ToolResult:
        """Returns a failure."""
        return ToolResult(success=False, error="password=" * 120_000)

    texts = [f"argument {number}" for number in range(10_000)]
    reply = calls(("failing", {"texts": texts}), ("returning", {}))
    registry = ToolRegistry([failing, returning])
    busy_s, (_, result) = await longest_tick_s(run(executor_of(tmp_path, reply, registry=registry)))
    assert busy_s < 0.1
    failed, returned = result.result
    assert failed["error"].startswith("failing raised ConnectionError: down down")
    assert returned["output"].error == f"{'password=' * 10}{REDACTED}"


async def test_an_error_gives_its_text_outside_the_event_loop_s0_20(tmp_path: Path) -> None:
    readers: list[threading.Thread] = []

    class RecordingError(BaseException):
        def __str__(self) -> str:
            readers.append(threading.current_thread())
            return "over"

    async def failing() -> str:
        """Fails."""
        raise RecordingError

    registry = ToolRegistry([failing, price])
    reply = calls(("failing", {}), ("price", {"ticker": "A"}))
    _, result = await run(executor_of(tmp_path, reply, registry=registry))
    assert str(result.result[0]["error"]).endswith("RecordingError: over")
    assert readers
    assert threading.current_thread() not in readers


async def test_the_end_of_the_program_still_passes_through_f_172(tmp_path: Path) -> None:
    executor = executor_of(tmp_path)
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
    reply = calls(
        ("pric", {"ticker": "A"}),
        ("price", {"ticker": "A"}),
        ("price", {"tick": KEY}),
        ("price", {"ticker": "A"}),
    )
    events, result = await run(executor_of(tmp_path, reply))
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
    reply = calls((KEY, {}), *((f"absent{number}", {}) for number in range(9)))
    events, result = await run(executor_of(tmp_path, reply))
    assert KEY not in caplog.text + str(result.error) + "".join(
        error["error"] for error in errors(events)
    )
    assert "10 proposed calls" in caplog.text
    assert "absent8" not in caplog.text


async def test_a_task_of_refused_calls_alone_says_which(tmp_path: Path) -> None:
    events, result = await run(executor_of(tmp_path, calls(("absent", {}))))
    assert [error.get("reason") for error in errors(events)] == ["unknown_tool", None]
    assert not result.success


async def test_the_answering_model_sees_the_failures(tmp_path: Path) -> None:
    reply = calls(("filings", {"ticker": WORDS}), ("price", {"ticker": "AAPL"}))
    executor = executor_of(tmp_path, reply, "The filings could not be read.")
    answer = await executor.run("What filings are there?")
    assert answer.status == "ok"
    assert isinstance(executor.client, ScriptedClient)
    prompt = "\n".join(str(message.content) for message in executor.client.calls[1].messages)
    assert "- filings raised ConnectionError: sec.example refused [ticker]: 503" in prompt
    assert "never conclude that there is none" in prompt
    assert KEY not in prompt


async def test_failures_are_the_last_document_to_be_dropped(tmp_path: Path) -> None:
    client, memory = ScriptedClient(["It could not be read."]), InMemoryMemory()
    manager = ToolContextManager(tmp_path)
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
    prompt = "\n".join(str(message.content) for message in client.calls[0].messages)
    assert "- filings0 raised" in prompt
    assert "- filings9 raised" in prompt
    assert "filings10" not in prompt
    assert "characters left out" in prompt


async def test_nothing_failed_adds_nothing_to_the_prompt(tmp_path: Path) -> None:
    client = ScriptedClient(["Yes."])
    results = [SubTaskResult(task_id=1, sub_task_id=0, success=True)]
    await Answering().answer(client, ToolContextManager(tmp_path), query="Is it?", results=results)
    assert "Failed while" not in "\n".join(
        str(message.content) for message in client.calls[0].messages
    )


async def test_a_model_that_may_read_back_sees_the_ids(tmp_path: Path) -> None:
    executor = executor_of(
        tmp_path,
        calls(("price", {"ticker": "AAPL"})),
        '{"calls": []}',
        "AAPL is at 150.",
        read_back=True,
    )
    await executor.run("What is the price?", plan=["Read the price", "Compare it"])
    client = executor.client
    assert isinstance(client, ScriptedClient)
    first, second, answering = (
        "\n".join(str(message.content) for message in call.messages) for call in client.calls
    )
    [pointer] = executor.context_manager.get_all_pointers()
    assert "read_context" not in first
    assert "query_context" not in first
    assert "read_context" in second
    assert "query_context" in second
    assert f'"pointer_id":"{pointer.pointer_id}"' in second
    assert "price ticker=AAPL" in second
    assert pointer.pointer_id in answering


async def test_an_executor_without_read_back_names_no_reader(tmp_path: Path) -> None:
    executor = executor_of(tmp_path, calls(("price", {"ticker": "AAPL"})), '{"calls": []}')
    await executor.execute_plan(["Read the price", "Compare it"], "q1")
    assert isinstance(executor.client, ScriptedClient)
    assert "read_context" not in str(executor.client.calls[1].messages)


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
    executor = executor_of(tmp_path, *['{"calls": []}'] * len(ids), "Done.")
    answer = await executor.run("q", plan=plan)
    assert [result.task_id for result in answer.results] == ids


@pytest.mark.parametrize(
    "plan", [5, [5], [None], {"goal": "x"}, [{"id": "seven", "description": "x"}], b"Gather"]
)
async def test_a_wrong_plan_is_refused_with_a_hint(tmp_path: Path, plan: Any) -> None:
    executor = executor_of(tmp_path)
    with pytest.raises(TypeError, match="Pass an ExecutionPlan, or a list of PlannedTask"):
        await executor.run("q", plan=plan)
    with pytest.raises(TypeError, match="Pass an ExecutionPlan, or a list of PlannedTask"):
        await executor.execute_plan(plan, "q1")


async def test_calls_may_be_mappings(tmp_path: Path) -> None:
    executor = executor_of(tmp_path)
    [result] = await executor.execute_tool_calls(
        [{"tool": "price", "args": {"ticker": "A"}}], 1, "q1"
    )
    assert result["output"] == "A 150"
    wrong: Any = "price"
    with pytest.raises(TypeError, match="pass ToolCall"):
        await executor.execute_tool_calls([wrong], 1, "q1")


def test_a_registry_or_manager_of_another_kind_is_refused(tmp_path: Path) -> None:
    wrong: Any = [price]
    with pytest.raises(TypeError, match="which list lacks; pass a ToolRegistry"):
        AgenticExecutor(ScriptedClient([]), wrong, ToolContextManager(tmp_path))
    managers: list[Any] = [FileContextPointerStore(tmp_path), str(tmp_path)]
    for manager in managers:
        with pytest.raises(
            TypeError, match=r"pass ToolContextManager\(folder\) or \(pointer_store=...\)"
        ):
            AgenticExecutor(ScriptedClient([]), ToolRegistry([price]), manager)


@pytest.mark.parametrize("as_mapping", [True, False], ids=["mappings", "calls"])
async def test_a_subclass_may_resolve_tools_to_a_list(tmp_path: Path, as_mapping: bool) -> None:
    facts = {"tool": "price", "args": {"ticker": "A"}}
    chosen: list[Any] = [facts if as_mapping else ToolCall(**facts)]  # type: ignore[arg-type]

    class Listing(AgenticExecutor):
        async def _resolve_tools(self, task: PlannedTask, *, query: str | None = None) -> list[Any]:
            return chosen if task.id == 1 else []

    executor = Listing(
        None, ToolRegistry([price]), ToolContextManager(tmp_path), selector=LexicalToolSelector()
    )
    first, second = await executor.execute_plan(["Gather", "More"], "q1", query="q")
    assert first.result[0]["output"] == "A 150"
    assert second.result == "No tools called"
