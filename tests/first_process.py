"""The process of a conversation before a restart: it offloads a result, and is killed.

    python -m tests.first_process DOOR FOLDER

prints what the model saw, as JSON.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from llm_common.agents import (
    AgenticExecutor,
    OffloadPolicy,
    Session,
    SessionConfig,
    ToolCall,
    ToolContextManager,
    ToolRegistry,
    ToolSelection,
)
from llm_common.integrations.functions import wrap_tool
from llm_common.tools import Tool

SESSION_ID: Final = "user:42"
CONFIG: Final = SessionConfig(max_tool_tokens=400)
QUESTION: Final = "What is the stock of part 1500?"


def list_parts(kind: str) -> list[dict[str, Any]]:
    """Lists the parts in stock."""
    return [{"id": n, "name": f"part {n}", "kind": kind, "stock": n * 7} for n in range(2_000)]


def office_tools() -> list[Tool]:
    """Return tools that do not all fit into a prompt."""
    tools = []
    for verb in ("approve", "archive", "create", "delete", "send", "translate"):
        for noun in ("contract", "invoice", "report", "ticket"):
            tools.append(Tool(list_parts, name=f"{verb}_{noun}", description=f"{verb} a {noun}"))
    return tools


class Chosen:
    """A selector that chooses the same calls for each task."""

    def __init__(self, *calls: ToolCall) -> None:
        self._calls = calls

    async def select_detailed(self, **_: Any) -> ToolSelection:
        return ToolSelection(calls=self._calls, status="ok", used="lexical")


def executor_of(folder: Path, *calls: ToolCall) -> AgenticExecutor:
    """Return an executor that makes these calls."""
    return AgenticExecutor(
        None,
        ToolRegistry([list_parts]),
        ToolContextManager(folder),
        selector=Chosen(*calls),
        offload=OffloadPolicy(),
        read_back=True,
    )


async def with_a_session(folder: Path) -> dict[str, Any]:
    """Offload a result in a plain loop, and find a tool."""
    session = Session(folder, session_id=SESSION_ID, config=CONFIG)
    shown = await session.offload(list_parts("nut"), tool="list_parts", args={"kind": "nut"})
    finder = session.tools()[3]
    tools = [*office_tools(), *session.tools()]
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    await session.choose_tools(tools, messages=messages)
    function = {"name": finder.name, "arguments": '{"query": "approve a ticket"}'}
    call = {"id": "1", "type": "function", "function": function}
    found = str(await finder.run({"query": "approve a ticket"}))
    messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    messages.append({"role": "tool", "tool_call_id": "1", "content": found})
    return {"preview": str(shown), "messages": messages}


async def with_an_executor(folder: Path) -> dict[str, Any]:
    """Run a task whose output is offloaded."""
    executor = executor_of(folder, ToolCall(tool="list_parts", args={"kind": "nut"}))
    [task] = await executor.execute_plan(["List"], "q1", query=QUESTION, session=SESSION_ID)
    return {"preview": task.result[0]["output"].text}


async def with_functions(folder: Path) -> dict[str, Any]:
    """Call a wrapped function, as a framework without hooks does."""
    wrapped = wrap_tool(list_parts, Session(folder, session_id=SESSION_ID), query=QUESTION)
    return {"preview": await asyncio.to_thread(wrapped, "nut")}


DOORS: Final[Mapping[str, Callable[[Path], Awaitable[dict[str, Any]]]]] = {
    "session": with_a_session,
    "executor": with_an_executor,
    "functions": with_functions,
}


async def _main(door: str, folder: Path) -> None:
    sys.stdout.write(json.dumps(await DOORS[door](folder)))
    sys.stdout.flush()
    # What an exit would still save is not saved.
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2])))
