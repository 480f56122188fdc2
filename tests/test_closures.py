"""How much of the package a reader has to trust to use one name: what its import and one use load."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.loaded_modules import loaded_by

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
MOST_STATEMENTS = {
    "FileContextPointerStore": (STORE, 4_000),
    "ToolSelector": (TOOL_SELECTOR, 5_000),
    "fold": (FOLD, 7_500),
    "Session": (SESSION, 13_000),
}


@pytest.fixture(scope="module")
def loaded() -> dict[str, dict[str, str]]:
    programs = [program for program, _ in MOST_STATEMENTS.values()]
    return dict(zip(MOST_STATEMENTS, loaded_by(*programs), strict=True))


@pytest.mark.parametrize("name", MOST_STATEMENTS)
def test_one_use_of_a_name_loads_few_statements(
    name: str, loaded: dict[str, dict[str, str]]
) -> None:
    _, most = MOST_STATEMENTS[name]
    assert most / 2 < sum(map(statements_of, loaded[name].values())) <= most


@cache
def statements_of(file: str) -> int:
    """Count the statements of a module without its docstrings."""
    count = 0
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        count += isinstance(node, ast.stmt) and not is_docstring
    return count


def test_the_store_loads_no_tables_and_no_chat_client(loaded: dict[str, dict[str, str]]) -> None:
    rooms = {module.partition(".")[0] for module in loaded["FileContextPointerStore"]}
    assert not rooms & {"tables", "core", "selection", "history", "ranking", "tools", "trace"}
