"""Test that what a conversation has shown can be used after its process was killed.

The gateway's own tests are in `tests/apps/gateway`.
"""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from llm_common._threads import in_thread
from llm_common.agents import Session, ToolCall
from llm_common.integrations.functions import tool_functions
from tests.first_process import CONFIG, QUESTION, SESSION_ID, executor_of, office_tools


async def shown_before_restart(door: str, folder: Path) -> tuple[str, str, list[Any]]:
    """Return the id and the table that a killed process showed, and its messages."""
    command = [sys.executable, "-m", "tests.first_process", door, str(folder)]
    killed = await in_thread(subprocess.run, command, stdout=subprocess.PIPE, check=False)
    assert killed.returncode == -signal.SIGKILL
    shown = json.loads(killed.stdout)
    named = re.search(r"the id ([0-9a-f]{12,16})", shown["preview"])
    table = re.search(r"^Table (\w+)", shown["preview"], re.MULTILINE)
    assert named
    assert table
    return named[1], table[1], shown.get("messages", [])


async def test_a_session_goes_on_in_another_process_s4_06(tmp_path: Path) -> None:
    pointer_id, table, messages = await shown_before_restart("session", tmp_path)
    session = Session(tmp_path, session_id=SESSION_ID, config=CONFIG)
    assert (await session.read(pointer_id, path="/1500/stock")).text == "10500"
    assert "13993" in await session.query(f"SELECT max(stock) FROM {table}")
    tools = [*office_tools(), *session.tools()]
    chosen = await session.choose_tools(tools, messages=messages)
    assert "approve_ticket" in [tool.name for tool in chosen]
    unfound = await session.choose_tools(tools, messages=messages[:1])
    assert len(unfound) < len(tools)


async def test_a_run_reads_and_queries_what_a_killed_process_stored_s4_06(tmp_path: Path) -> None:
    pointer_id, table, _ = await shown_before_restart("executor", tmp_path)
    read = ToolCall(tool="read_context", args={"id": pointer_id, "path": "/1500/stock"})
    sql = f"SELECT max(stock) FROM {table}"
    executor = executor_of(tmp_path, read, ToolCall(tool="query_context", args={"sql": sql}))
    [task] = await executor.execute_plan(["Read"], "q2", query=QUESTION, session=SESSION_ID)
    reading, answer = (result["output"] for result in task.result)
    assert reading.text == "10500"
    assert "13993" in answer
    executor = executor_of(tmp_path, read)
    [task] = await executor.execute_plan(["Read"], "q2", query=QUESTION, session="user:43")
    assert "no stored result of this session" in task.result[0]["error"]


async def test_functions_read_and_query_what_a_killed_process_stored_s4_06(tmp_path: Path) -> None:
    pointer_id, table, _ = await shown_before_restart("functions", tmp_path)
    read_context, search_context, query_context = tool_functions(
        Session(tmp_path, session_id=SESSION_ID)
    )
    assert "\n10500\n" in await read_context(id=pointer_id, path="/1500/stock")
    assert pointer_id in await search_context(words="part 1999")
    assert "13993" in await query_context(sql=f"SELECT max(stock) FROM {table}")
