"""Test that a misbehaving server causes a clear error and affects no other server."""

import asyncio
import resource
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import mcp_types as types
import pytest
from mcp import Client, MCPError

from llm_common.agents import InMemoryContextPointerStore
from llm_common.apps.gateway import Gateway
from llm_common.apps.gateway.host_session import HostSession
from llm_common.apps.gateway.servers.questions import HostContext
from llm_common.apps.gateway.serving import report_on
from tests.apps.gateway.hosts import config_of, hostile, text_of

pytestmark = pytest.mark.mcp
OWN = {"context"}
MAX_GROWTH_KB = 400_000


@dataclass(frozen=True)
class Case:
    """A hostile server with the expected effects.

    Attributes:
        does: The server's behaviour.
        says: A text in the result of its first tool.
        fails: Whether that result is an error.
        tools: The listed names of its tools.
        problem: The server's problem in the report.
        left_out: The entries left out in the report.
        start_timeout_s: Seconds for this server to start, and not for the other one.
        call_timeout_s: Seconds for a call of this server.
    """

    does: str
    says: str = "ok of"
    fails: bool = False
    tools: tuple[str, ...] = ("ok",)
    problem: str = ""
    left_out: str = ""
    start_timeout_s: float | None = None
    call_timeout_s: float | None = None


CASES = (
    Case("control characters in a name", tools=("a_31m_b_", "ok")),
    Case("an empty name", tools=("_", "ok")),
    Case("a long name", tools=("n" * 55 + "_f9e92b5d", "ok")),
    Case("names of the gateway", tools=("bad_call_tool", "bad_context", "ok")),
    Case(
        "two tools of one name", tools=("ok", "twice"), left_out="twice (another tool has its name)"
    ),
    Case("names that differ by signs", tools=("bad_a_b", "bad_a_b_2", "bad_a_b_3", "ok")),
    Case("a name that is a number", left_out="5 (name)"),
    Case("a name with half a pair", tools=("half_", "ok")),
    Case("a long description"),
    Case("a long title"),
    Case("a description with a fence"),
    Case("no schema", left_out="bad (inputSchema)"),
    Case("a schema that is a text", left_out="bad (inputSchema)"),
    Case("a schema of no object", left_out="bad (inputSchema.type)"),
    Case("properties in a list", left_out="bad (inputSchema.properties)"),
    Case("a schema that refers elsewhere"),
    Case("a schema that refers to itself"),
    Case("an expression without end"),
    Case("a schema of a megabyte", tools=("big", "ok")),
    Case("entries that are no tools", left_out="None"),
    Case("thousands of entries that are no tools", left_out="the rest (the list is too long)"),
    Case("wrong hints", left_out="bad (annotations.readOnlyHint)"),
    Case(
        "pages without end",
        tools=tuple(sorted(f"page_{n}" for n in range(1, 101))),
        left_out="does not end",
    ),
    Case("a page that comes again", left_out="does not end"),
    Case("a list that is none", "no tool", True, (), "not valid MCP: tools"),
    Case("a list that is refused", "no tool", True, (), "no"),
    Case(
        "a list that never comes",
        "no tool",
        True,
        (),
        "did not list its tools within 5 s",
        start_timeout_s=5.0,  # enough to start on a busy machine
    ),
    Case("a deep schema", "no tool", True, (), "not valid JSON-RPC"),
    Case("an end at the start", "no tool", True, (), "it does not start (exit 3)"),
    Case("silence", "no tool", True, (), "did not start within 0.7 s", start_timeout_s=0.7),
    Case(
        "an id of its own at the start",
        "no tool",
        True,
        (),
        "did not start within 0.7 s",
        start_timeout_s=0.7,
    ),
    Case("a version of its own", "no tool", True, (), "it does not start"),
    Case("words before the start"),
    Case("bytes before the start"),
    Case("a result that is none", "an answer that is not valid MCP", True),
    Case("a result that is a number", "an answer that is not valid JSON-RPC", True),
    Case("a block of a new kind", "an answer that is not valid MCP", True),
    Case(
        "an answer with another id",
        "did not answer in time",
        True,
        call_timeout_s=0.5,
    ),
    Case("an answer that is no JSON", "an answer that is not valid JSON-RPC", True),
    Case("an answer that ends early", "an answer that is not valid JSON-RPC", True),
    Case("an answer that is no UTF-8", "caf\ufffd"),
    Case("half a pair of surrogates", "half ? of it"),
    Case("a deep result", "an answer that is not valid JSON-RPC", True),
    Case("a number of 5,000 digits", "an answer that is not valid JSON-RPC", True),
    Case("no numbers", ""),
    Case("a line of 20 MB", "19,999,998"),
    Case("a line without end", "it sent a line of over 64,000,000 bytes", True),
    Case("two answers", "first"),
    Case("a flood of logs", "done"),
    Case("a flood of progress", "done"),
    Case("a flood of changes", "done"),
    Case("a flood of questions", "done"),
    Case("a flood of words", "done"),
    Case("a flood on stderr", "done"),
    Case("a claim of our marks", "stored; read it"),
    Case("an id at the end", "an answer that is not valid JSON-RPC", True),
    Case("items with ids in what is no JSON", "an answer that is not valid JSON-RPC", True),
    Case("a picture that is none", ""),
    Case("a long error", "wrong", True),
    Case("a long refusal", "characters are stored", True),
    Case("an error of its own", "refused", True),  # with the SDK's code for a closed connection
    Case(
        "an end in a call", "it ended during the call (exit 3), which may have taken effect", True
    ),
    Case("a closed stdout", "which may have taken effect", True),
    Case("no reading any more", "reads no more"),
    Case("an end that is refused"),
)


async def call_text(host: Client, name: str) -> tuple[str, bool]:
    """Return the text of a call's result, and whether it is an error."""
    try:
        result = await host.call_tool(name, {"text": "a" * 40 + "!"}, progress_callback=_ignore)
    except MCPError as exc:
        return exc.message, True
    assert "llm-common/error" not in (result.meta or {}) or result.is_error
    return "".join(getattr(block, "text", "") for block in result.content), result.is_error


async def _ignore(progress: float, total: float | None, message: str | None) -> None:
    """Ignore progress."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.does)
async def test_a_hostile_server_affects_no_other(case: Case) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limits = {"start_timeout_s": case.start_timeout_s, "call_timeout_s": case.call_timeout_s}
    bad = hostile(case.does).model_copy(update=limits)
    config = config_of(bad=bad, z=hostile(), settings={"tools": "all"})
    async with Gateway(config) as gateway, Client(gateway.server, mode="legacy") as host:
        tools = (await host.list_tools()).tools
        assert all(
            len(tool.description or "") < 2_048 and len(tool.title or "") <= 200 for tool in tools
        )
        good = "z_ok" if "bad_ok" in {tool.name for tool in tools} else "ok"
        pid, _ = await call_text(host, good)
        names = [
            tool.name.replace("bad_ok", "ok") for tool in tools if tool.name not in OWN | {good}
        ]
        assert tuple(sorted(names)) == case.tools
        first = "bad_ok" if "ok" in case.tools else (case.tools or ("none",))[0]
        calling = asyncio.create_task(call_text(host, first))
        assert (await call_text(host, good)) == (pid, False)
        text, failed = await calling
        assert (case.says if case.tools == () or "ok" in case.tools else "") in text
        assert failed is case.fails
        assert (await call_text(host, good)) == (pid, False)
        await _check_report(gateway, case)
        assert len(asyncio.all_tasks()) < 300
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KB


async def _check_report(gateway: Gateway, case: Case) -> None:
    (session,) = gateway.sessions
    report = report_on(session)
    bad, good = report.servers
    assert (good.problem, good.left_out, good.tools) == ("", (), 1)
    assert case.problem in bad.problem
    assert bool(case.problem) == bool(bad.problem)
    assert case.left_out in "; ".join(bad.left_out)
    assert bool(case.left_out) == bool(bad.left_out)


async def test_invalid_resources_and_prompts_are_left_out() -> None:
    async with (
        Gateway(config_of(bad=hostile())) as gateway,
        Client(gateway.server, mode="legacy") as host,
    ):
        await host.list_tools()
        assert [resource.name for resource in (await host.list_resources()).resources] == ["a"]
        assert [prompt.name for prompt in (await host.list_prompts()).prompts] == ["ask"]
        (session,) = gateway.sessions
        assert session.catalogue.servers["bad"].connection.wire.left_out == {
            "no uri": "uri",
            "None": "name",
        }


@pytest.mark.parametrize("flood", ["a flood of logs", "a flood of progress"])
async def test_a_flood_is_dropped_for_a_slow_host(flood: str) -> None:
    waiting, taken = [], asyncio.Event()

    async def notify(*message: object) -> None:
        waiting.append(message)
        await taken.wait()

    config, store = config_of(bad=hostile(flood)), InMemoryContextPointerStore()
    session = HostSession(config, store=store)
    slow = SimpleNamespace(
        protocol_version="2025-11-25",
        request_id=1,
        meta={"progress_token": 1},
        session=SimpleNamespace(
            client_capabilities=None, send_notification=notify, report_progress=notify
        ),
    )
    host = cast("HostContext", slow)
    with session.serving(host):
        answer = await session.call(types.CallToolRequestParams(name="ok"), host)
    assert isinstance(answer, types.CallToolResult)
    assert text_of(answer) == "done"
    assert len(waiting) == 100
    taken.set()
    await session.close()
