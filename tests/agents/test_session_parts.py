"""The parts of a session: each is imported alone, and only when it is used."""

from tests.loaded_modules import loaded_by

PARTS = ["results", "history", "tools"]
BEGIN = """
import asyncio, tempfile
from llm_common.agents import Session
session = Session(tempfile.mkdtemp(), session_id="s")
"""
OFFLOAD = """
async def use():
    shown = await session.offload("word " * 9_000, tool="web", args={})
    await session.read(shown.pointer_id)
asyncio.run(use())
"""
PACK = "asyncio.run(session.pack('Which?', max_tokens=100))"
USED: dict[str, set[str]] = {
    "": set(),
    OFFLOAD: {"results"},
    "asyncio.run(session.choose_tools([], messages=[]))": {"tools"},
    "asyncio.run(session.fold([{'role': 'user', 'content': 'Hi'}]))": {"history"},
    PACK: set(),
    "session.tools()": {"results", "tools"},
    "session.overview()": {"history"},
}


def test_a_session_imports_a_part_when_it_is_used_t_01() -> None:
    modules_by_use = dict(zip(USED, loaded_by(*USED, begin=BEGIN), strict=True))
    for use, used in USED.items():
        modules = modules_by_use[use]
        assert {part for part in PARTS if f"agents.session.{part}" in modules} == used, use
        assert ("context.selector" in modules) == (use == PACK), use


def test_each_part_of_a_session_is_imported_alone() -> None:
    imports = [f"import llm_common.agents.session.{part}" for part in PARTS]
    for part, modules in zip(PARTS, loaded_by(*imports), strict=True):
        others = {f"agents.session.{other}" for other in ["session", *PARTS] if other != part}
        assert f"agents.session.{part}" in modules
        assert not others & {*modules}, part
