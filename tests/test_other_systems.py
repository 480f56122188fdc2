"""Systems without POSIX modules: what can be imported there, and what says why it cannot be used."""

from tests.programs import printed

PROGRAM = """
import os, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "syslog"):
    sys.modules[name] = None  # an import of it raises ImportError
for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "geteuid", "getuid", "pread"):
    delattr(os, name)
import asyncio
import llm_common.agents as agents
for name in agents.__all__:
    getattr(agents, name)
import llm_common.apps.cli.app, llm_common.clients, llm_common.context, llm_common.core
import llm_common.folders, llm_common.history, llm_common.integrations.functions
import llm_common.memory, llm_common.testing, llm_common.tools, llm_common.trace
from llm_common.errors import StoreError

try:
    agents.FileContextPointerStore("store")
except StoreError as exc:
    print(exc)

async def use():
    session = agents.Session(agents.InMemoryContextPointerStore(), session_id="s")
    rows = [{"n": n, "text": "a word " * 9} for n in range(900)]
    shown = await session.offload(rows, tool="rows", args={}, query="n 7")
    print(await session.read(shown.pointer_id, path="/7/n"))
    table = (await session.tables())[0].name
    print(await session.query(f"SELECT max(n) FROM {table}"))
asyncio.run(use())
"""


def test_without_posix_modules_all_but_the_file_store_works() -> None:
    hint, *answers = printed(PROGRAM).splitlines()
    assert "needs a POSIX system" in hint
    assert "Use InMemoryContextPointerStore or ObjectContextPointerStore" in hint
    assert "7" in answers
    assert "899" in answers
