"""Test that thousands of tools of one server do not delay the requests of others."""

import gc
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import mcp_types as types
import pytest
from mcp_types.methods import serialize_server_result
from pydantic import BaseModel

from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig, ToolRules
from llm_common.apps.gateway.gateway import store_of, validated_tools
from llm_common.apps.gateway.host_session import HostSession
from llm_common.apps.gateway.serving import report_on
from llm_common.core import DefaultCounter, TokenCounter
from tests.apps.gateway.hosts import config_of, host_of, hostile
from tests.loop_cpu import longest_tick_s

pytestmark = pytest.mark.mcp
MAX_TICK_S = 0.1
MANY = 3_000


@pytest.fixture
def frozen() -> Iterator[None]:
    """Keep what the tests have imported out of garbage collections."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class ThreadCounter:
    """Counts tokens, and remembers in which thread it counted a server's definition."""

    def __init__(self) -> None:
        self._counter = DefaultCounter()
        self.threads: list[threading.Thread] = []

    def count(self, text: str) -> int:
        if '"Does a thing."' in text:
            self.threads.append(threading.current_thread())
        return self._counter.count(text)


@asynccontextmanager
async def session_of(
    config: GatewayConfig, counter: TokenCounter | None = None
) -> AsyncIterator[HostSession]:
    session = HostSession(config, store=store_of(config), counter=counter)
    try:
        yield session
    finally:
        await session.close()


@pytest.mark.parametrize("tools", ["all", "search"])
async def test_definitions_are_counted_in_a_thread_only_when_they_changed(tools: str) -> None:
    counter = ThreadCounter()
    config = config_of(one=hostile(), two=hostile(), settings={"tools": tools})
    async with session_of(config, counter) as session:
        await session.catalogue.listing()
        counted = len(counter.threads)
        assert counted
        for _ in range(3):
            await session.list_tools()
            await session.catalogue.find("one_ok")
            assert report_on(session).tokens_of_all
            await session.reload(config.model_copy())
        assert len(counter.threads) == counted
        rules = ToolRules(pinned=("ok",))
        await session.reload(config.model_copy(update={"rules": rules}))
        await session.catalogue.latest()
        assert len(counter.threads) > counted
        assert threading.main_thread() not in counter.threads


async def test_a_call_during_a_reload_waits_for_the_new_rules() -> None:
    config = config_of(one=hostile(), settings={"tools": "all"})
    async with session_of(config) as session:
        assert await session.catalogue.find("ok")
        rules = ToolRules(deny=("*",))
        session.catalogue.reload(config.model_copy(update={"rules": rules}))
        assert await session.catalogue.find("ok") is None


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("tools", ["all", "search"])
async def test_thousands_of_tools_do_not_block_the_event_loop(tools: str) -> None:
    config = config_of(one=hostile("thousands of tools"), settings={"tools": tools})

    async def list_and_call() -> None:
        await session.list_tools()
        await session.catalogue.search("does a thing")
        report_on(session)
        await session.reload(config.model_copy(update={"rules": ToolRules(deny=("x",))}))

    async with session_of(config) as session:
        longest_s, _ = await longest_tick_s(list_and_call())
        assert len(session.catalogue.current.tools) == MANY
        assert longest_s < MAX_TICK_S


async def test_a_host_lists_thousands_of_tools_in_order() -> None:
    config = config_of(one=hostile("thousands of tools"), settings={"tools": "all"})
    async with host_of(config) as host:
        _, *tools = (await host.list_tools()).tools
    assert [tool.name for tool in tools] == sorted(f"tool_{index}" for index in range(MANY))
    assert {str(tool.input_schema) for tool in tools} == {str(tools[0].input_schema)}
    assert set(tools[0].input_schema["properties"]) == {"p0", "p1", "p2", "p3"}


NAMES = [f"tool_{index}" for index in range(600)]
LONG_LIST = types.ListToolsResult(
    tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in NAMES]
)


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
def test_a_long_list_reaches_the_host_without_another_validation(version: str) -> None:
    form = validated_tools(LONG_LIST, version)
    assert isinstance(form, dict)
    assert all(isinstance(tool, BaseModel) for tool in form["tools"])
    plain = LONG_LIST.model_dump(by_alias=True, mode="json", exclude_none=True)
    sent = serialize_server_result("tools/list", version, form)
    assert sent == serialize_server_result("tools/list", version, plain)


def test_the_list_of_an_unknown_version_is_left_to_the_sdk() -> None:
    assert validated_tools(LONG_LIST, "2001-01-01") is LONG_LIST
