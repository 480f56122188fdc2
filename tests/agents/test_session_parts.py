"""The four parts of a session: each is imported alone, and only when it is used."""

import subprocess
import sys

import pytest

PARTS = ["results", "history", "tools", "packing"]
BEGIN = """
import asyncio, sys, tempfile
from llm_common.agents import Session
session = Session(tempfile.mkdtemp(), session_id="s")
"""
END = """
print(*sorted(name.removeprefix("llm_common.") for name in sys.modules if "llm_common." in name))
"""
OFFLOAD = """
async def use():
    shown = await session.offload("word " * 9_000, tool="web", args={})
    await session.read(shown.pointer_id)
asyncio.run(use())
"""
CHOOSE = "asyncio.run(session.choose_tools([], messages=[]))"
FOLD = "asyncio.run(session.fold([{'role': 'user', 'content': 'Hi'}]))"
PACK = "asyncio.run(session.pack('Which?', max_tokens=100))"


def imported_by(program: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", program + END], check=True, capture_output=True, text=True
    )
    return set(ran.stdout.split())


@pytest.mark.parametrize(
    ("use", "used"),
    [
        ("", set()),
        (OFFLOAD, {"results"}),
        (CHOOSE, {"tools"}),
        (FOLD, {"history"}),
        (PACK, {"packing"}),
        ("session.tools()", {"results", "tools"}),
        ("session.overview()", {"results", "history"}),
    ],
    ids=["none", "offload", "choose", "fold", "pack", "tools", "overview"],
)
def test_a_session_imports_a_part_when_it_is_used_t_01(use: str, used: set[str]) -> None:
    modules = imported_by(BEGIN + use)
    assert {part for part in PARTS if f"agents.session.{part}" in modules} == used


def test_offloading_imports_neither_packing_nor_selection() -> None:
    modules = imported_by(BEGIN + OFFLOAD)
    assert not {name for name in modules if name.startswith(("context", "selection", "decisions"))}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_a_session_is_imported_alone(part: str) -> None:
    modules = imported_by(f"import sys, llm_common.agents.session.{part}")
    others = {f"agents.session.{other}" for other in ["session", *PARTS] if other != part}
    assert not others & modules
