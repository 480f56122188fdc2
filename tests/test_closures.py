"""How much of the package a reader has to trust to use one name: what its import and one use load."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

STORE = """
import asyncio, tempfile
from llm_common.agents import FileContextPointerStore

async def use():
    store = FileContextPointerStore(tempfile.mkdtemp())
    rows = {"rows": [{"a": 1}] * 50}
    pointer = await store.save(query_id="q", task_id=None, tool_name="t", args={}, result=rows)
    assert store.list(query_id="q") == [pointer]
    assert store.load_result(pointer=pointer) == rows
asyncio.run(use())
"""
TOOL_SELECTOR = """
import asyncio
from types import SimpleNamespace
from llm_common.agents import ToolRegistry, ToolSelector
from llm_common.agents.schemas import PlannedTask

registry = ToolRegistry()

@registry.tool
def price(ticker: str) -> str:
    "Return a price."
    return ticker

class Client:
    async def chat_completion(self, **_):
        calls = '{"calls": [{"tool": "price", "args": {"ticker": "A"}}]}'
        return SimpleNamespace(content=calls, finish_reason="stop")

async def use():
    task = PlannedTask(id=1, description="the price of A")
    assert await ToolSelector(Client()).select_tool_calls(task=task, tool_registry=registry)
asyncio.run(use())
"""
FOLD = """
import asyncio
from llm_common.agents import InMemoryContextPointerStore
from llm_common.history import FoldPolicy, fold

messages = []
for number in range(80):
    role = "assistant" if number % 2 else "user"
    messages.append({"role": role, "content": f"word {number} " * 60})

async def use():
    store, policy = InMemoryContextPointerStore(), FoldPolicy(max_tokens=2000)
    assert (await fold(messages, store=store, session_id="s", policy=policy)).parts
asyncio.run(use())
"""
SESSION = """
import asyncio, tempfile
from llm_common.agents import Session

async def use():
    session = Session(tempfile.mkdtemp(), session_id="s")
    rows = [{"a": number, "b": "x" * 40} for number in range(2000)]
    shown = await session.offload(rows, tool="t", args={}, query="a 7")
    await session.read(shown.pointer_id, path="/7")
asyncio.run(use())
"""
LOADED = """
import json, sys
files = []
for name, module in sys.modules.items():
    if name.partition(".")[0] == "llm_common":
        files.append(module.__file__)
print(json.dumps(files))
"""


@pytest.mark.parametrize(
    ("program", "most"),
    [(STORE, 4_000), (TOOL_SELECTOR, 5_000), (FOLD, 7_500), (SESSION, 13_000)],
    ids=["FileContextPointerStore", "ToolSelector", "fold", "Session"],
)
def test_one_use_of_a_name_loads_few_statements(program: str, most: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", program + LOADED], capture_output=True, text=True, check=True
    )
    statements = sum(map(statements_of, json.loads(ran.stdout.splitlines()[-1])))
    assert most / 2 < statements <= most


def statements_of(file: str) -> int:
    """Count the statements of a module without its docstrings."""
    count = 0
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        count += isinstance(node, ast.stmt) and not is_docstring
    return count


def test_the_store_loads_no_tables_and_no_chat_client() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", STORE + LOADED], capture_output=True, text=True, check=True
    )
    rooms = {file.split("/llm_common/")[1].split("/")[0] for file in json.loads(ran.stdout)}
    assert not rooms & {"tables", "core", "selection", "history", "ranking", "tools", "trace"}
