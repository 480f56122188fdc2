"""Events keep whole values in the process, and are small and safe for a browser."""

import datetime as dt
import decimal
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from llm_common.agents import (
    AgenticExecutor,
    Answer,
    OffloadPolicy,
    RunEvent,
    StreamEvent,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.testing import ScriptedClient

KEY = "ghp_" + "a1B2" * 9
CALL = '{"calls": [{"tool": "report", "args": {"token": "' + KEY + '", "day": "Mon\\nday"}}]}'
LARGE = {
    "when": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "amount": decimal.Decimal("1.1"),
    "access": KEY,
    "text": "ä" * 300_000,
}


async def run(
    folder: Path, output: object, *, text: str = "Done.", **options: Any
) -> list[RunEvent]:
    tools = ToolRegistry()

    @tools.tool
    def report(token: str, day: str) -> object:
        """Report a day."""
        return output

    executor = AgenticExecutor(
        ScriptedClient([CALL, text]), tools, ToolContextManager(folder), **options
    )
    async with aclosing(executor.answer_stream("What happened?", plan=["report"])) as stream:
        return [event async for event in stream]


def described(event: RunEvent) -> str:
    """Return a line for an event. mypy checks that each type narrows `data`."""
    if event.type == "tool_call":
        return f"{event.data['tool']} {sorted(event.data['args'])}"
    if event.type == "tool_result":
        return event.data.get("pointer_id", "")
    if event.type == "error":
        return event.data["error"]
    if event.type == "sources":
        return " ".join(source["url"] for source in event.data)
    if event.type == "answer":
        return event.data.text or event.data.problem
    return event.data


def sent(event: StreamEvent) -> Any:
    """Return the data of a server-sent event, as a browser parses it."""
    name, line, *rest = event.to_sse().split("\n")
    assert name == f"event: {event.type}"
    assert rest == ["", ""]
    assert line.startswith("data: ")
    return json.loads(line.removeprefix("data: "))


async def test_data_in_the_process_is_the_tools_own_object(tmp_path: Path) -> None:
    events = await run(tmp_path, LARGE)
    [result] = [event for event in events if event.type == "tool_result"]
    assert result.data["output"] is LARGE
    assert [event.type for event in events] == ["thinking", "tool_call", "tool_result", "answer"]
    assert described(events[1]) == "report ['day', 'token']"
    assert described(events[2]) == result.data["pointer_id"]
    assert described(events[3]) == "Done."
    assert all(isinstance(event, StreamEvent) for event in events)


@pytest.mark.parametrize("offload", [None, OffloadPolicy()], ids=["whole", "offloaded"])
async def test_a_browser_gets_a_pointer_and_a_short_preview(
    tmp_path: Path, offload: OffloadPolicy | None
) -> None:
    events = await run(tmp_path, LARGE, offload=offload)
    [result] = [event for event in events if event.type == "tool_result"]
    data = sent(result)
    assert data["pointer_id"] == result.data["pointer_id"]
    assert 0 < len(data["preview"].encode()) <= 4_096
    assert data["total_chars"] > 300_000
    assert "output" not in data
    for event in events:
        assert len(event.to_sse()) < 6_000
        assert KEY not in event.to_sse()


async def test_the_text_of_an_answer_is_sent_whole(tmp_path: Path) -> None:
    text = "Straße\n\n" + "x" * 50_000
    events = await run(tmp_path, LARGE, text=text)
    data = sent(events[-1])
    assert (data["text"], data["status"]) == (text, "ok")
    assert sent(StreamEvent(type="answer_delta", data=text)) == text


@pytest.mark.parametrize(
    "output",
    [object(), {1, 2}, float("nan"), "\ud800", b"\xff", {"a": [None] * 3}, "", ToolContextManager],
    ids=lambda output: type(output).__name__,
)
async def test_any_output_can_be_sent(tmp_path: Path, output: object) -> None:
    for event in await run(tmp_path, output):
        assert sent(event) is not None


def test_an_event_of_ones_own_can_be_sent() -> None:
    assert sent(StreamEvent(type="thinking", data="plan: one")) == "plan: one"
    assert sent(StreamEvent(type="error", data={"error": "x", "at": Path("/x")}))["at"] == "/x"
    assert sent(StreamEvent(type="answer", data=Answer(status="error")))["status"] == "error"


def test_an_event_is_discriminated_by_its_type() -> None:
    events: TypeAdapter[RunEvent] = TypeAdapter(RunEvent)
    event = events.validate_python({"type": "error", "data": {"error": "x", "task": 1}})
    assert (type(event).__name__, described(event)) == ("ErrorEvent", "x")
