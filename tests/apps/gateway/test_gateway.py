"""Test what a host gets through the gateway."""

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import ClientRequestContext

from llm_common.apps.gateway import GatewayConfig, ToolRules, mcp_tools
from llm_common.core import DefaultCounter
from llm_common.errors import ToolFailedError
from tests.apps.gateway.hosts import (
    ERAS,
    Heard,
    config_file,
    config_of,
    full,
    host_of,
    host_of_process,
    hostile,
    id_in,
    odd,
    parent_of,
    runs,
    text_of,
    until,
)

pytestmark = pytest.mark.mcp
COUNTER = DefaultCounter()


@pytest.mark.parametrize("era", ERAS)
async def test_a_large_result_becomes_a_preview_and_is_read_back(era: str) -> None:
    async with host_of(config_of(odd=odd()), mode=era) as host:
        result = await host.call_tool("list_items", {"count": 6_000})
        preview = text_of(result)
        assert COUNTER.count(preview) <= 400
        assert "6,000 records, " in preview
        assert result.structured_content is None
        item = await host.call_tool("context", {"id": id_in(preview), "path": "/4321"})
        assert '{"id":4321,"name":"item 4321"' in text_of(item)
        found = await host.call_tool("context", {"words": "4321"})
        assert "item 4321" in text_of(found)
        assert id_in(preview) in text_of(await host.call_tool("context", {}))


async def test_the_own_tool_is_listed_first_and_none_has_an_output_schema() -> None:
    async with host_of(config_of(odd=odd())) as host:
        own, *tools = (await host.list_tools()).tools
        assert own.name == "context"
        assert own.meta == {"anthropic/alwaysLoad": True}
        assert [tool.name for tool in tools] == sorted(tool.name for tool in tools)
        assert {tool.output_schema is None for tool in tools} == {True}
    async with host_of(config_of(odd=odd(), settings={"max_whole_tokens": None})) as host:
        tools = (await host.list_tools()).tools
        assert "context" not in [tool.name for tool in tools]
        assert any(tool.output_schema for tool in tools)


@pytest.mark.parametrize("era", ERAS)
async def test_small_results_errors_images_and_links_do_not_change(era: str) -> None:
    async with host_of(config_of(odd=odd()), mode=era) as host, Client(_bare(), mode=era) as bare:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("add_one", {"number": 3}),
            ("get_picture", {"words": 3}),
            ("get_links", {"words": 3}),
            ("list_links", {"count": 30}),
            ("fail", {"words": 300}),
            ("get_page", {}),
        ]
        for name, arguments in calls:
            shown, given = (
                await host.call_tool(name, arguments),
                await bare.call_tool(name, arguments),
            )
            assert shown.model_dump(exclude={"meta"}) == given.model_dump(exclude={"meta"}), name


def _bare() -> Any:
    server = odd()
    return StdioServerParameters(command=server.command, args=list(server.args))


async def test_images_and_links_stay_with_a_preview() -> None:
    async with host_of(config_of(odd=odd())) as host:
        picture = await host.call_tool("get_picture", {"words": 9_000})
        assert [block.type for block in picture.content] == ["text", "image"]
        assert COUNTER.count(text_of(picture)) <= 400
        links = await host.call_tool("get_links", {"words": 9_000})
        uris = [block.uri for block in links.content if isinstance(block, types.ResourceLink)]
        assert uris == ["odd://a", "odd://text"]  # the second has a link in place of its text
        assert len(links.content) == 3


async def _read_back(host: Client, **part: Any) -> str:
    """Read a result, or a part of it, by all its cursors."""
    pieces: list[str] = []
    while True:
        answer = text_of(await host.call_tool("context", part))
        pieces.append(answer.partition("\n<<<")[2].partition("\n")[2].rpartition("\n")[0])
        cursor = re.search(r'and cursor "([^"]+)"', answer)
        if cursor is None:
            return "".join(pieces)
        part["cursor"] = cursor[1]


async def test_a_long_error_becomes_a_preview_and_stays_an_error() -> None:
    async with host_of(config_of(odd=odd(), settings={"max_whole_tokens": 30_000})) as host:
        result = await host.call_tool("fail", {"words": 80_000})
        assert result.is_error
        assert COUNTER.count(text_of(result)) <= 400
        whole = await _read_back(host, id=id_in(text_of(result)))
        assert whole == "word " * 80_000


async def test_a_long_refusal_becomes_a_preview_with_its_code() -> None:
    async with host_of(config_of(bad=hostile("a long refusal"))) as host:
        with pytest.raises(MCPError) as caught:
            await host.call_tool("ok", {})
        assert caught.value.code == types.INTERNAL_ERROR
        assert COUNTER.count(caught.value.message) <= 400
        part = {"id": id_in(caught.value.message), "path": "/structuredContent/line"}
        assert "\n7\n" in text_of(await host.call_tool("context", part))


async def test_long_resources_become_previews_unless_the_host_shows_them() -> None:
    settings = {"max_whole_tokens": 30_000}
    async with host_of(config_of(odd=odd(), settings=settings)) as host, Client(_bare()) as bare:
        for uri in ("odd://book", "odd://rows"):
            content, whole = await _text_at(host, uri), await _text_at(bare, uri)
            assert COUNTER.count(content.text) <= 400
            assert (content.uri, content.mime_type) == (uri, "text/plain")
            assert await _read_back(host, id=id_in(content.text)) == whole.text
        assert "1: # Chapter 0" in (await _text_at(host, "odd://book")).text
        for uri in ("ui://page", "odd://page", "odd://binary", "odd://greeting"):
            assert await host.read_resource(uri) == await bare.read_resource(uri)


async def _text_at(host: Client, uri: str) -> types.TextResourceContents:
    [content] = (await host.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    return content


async def test_rules_match_the_names_that_a_host_sees_and_idle_ones_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rules = ToolRules(whole=("odd_get_log",), deny=("odd_pause", "get_lgo"))
    server = odd().model_copy(update={"rules": rules})
    async with host_of(config_of(odd=server, other=odd())) as host:
        names = {tool.name for tool in (await host.list_tools()).tools}
        assert "pause" in names  # of the other server, whose tool is now the only one
        assert "odd_pause" not in names
        assert text_of(await host.call_tool("odd_get_log", {"lines": 2_000})).count("\n") == 1_999
        await host.list_tools()
    assert caplog.text.count("the rule deny get_lgo of odd matches no tool") == 1
    assert caplog.text.count("matches no tool") == 1


async def test_a_result_that_breaks_its_schema_reaches_the_host() -> None:
    async with host_of(config_of(odd=odd())) as host:
        assert text_of(await host.call_tool("wrong_output", {})) == "odd"


async def test_cancellation_reaches_the_server_and_progress_reaches_the_host(
    tmp_path: Path,
) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with host_of(config_of(odd=odd()), mode="legacy") as host:
        with anyio.move_on_after(60) as scope:
            async with anyio.create_task_group() as group:
                arguments = {"folder": str(tmp_path)}
                group.start_soon(
                    lambda: host.call_tool("wait_long", arguments, progress_callback=on_progress)
                )
                await until(lambda: bool(told) and (tmp_path / "began").exists())
                group.cancel_scope.cancel()
            await until((tmp_path / "cancelled").exists)
        assert not scope.cancelled_caught
        assert told == [(1, 2, "half")]


async def test_fifty_concurrent_calls_get_their_own_answers() -> None:
    async with host_of(config_of(odd=odd())) as host:
        results = await asyncio.gather(
            *(
                host.call_tool("pause", {"seconds": (number % 5) / 50, "number": number})
                for number in range(50)
            )
        )
        assert [text_of(result) for result in results] == [str(number) for number in range(50)]


async def say_ada(_: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert params.message.startswith("[full] ")
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def test_a_servers_request_goes_to_the_host_of_its_call() -> None:
    async with host_of(config_of(full=full()), mode="legacy", elicitation_callback=say_ada) as host:
        answer = await host.call_tool("test_elicitation", {"message": "Your name?"})
        assert text_of(answer) == 'User response: action=accept, content={"name": "Ada"}'


async def test_an_input_required_result_passes_with_its_state() -> None:
    name = "test_input_required_result_multi_round"  # without its state it asks again
    async with host_of(
        config_of(full=full()), mode="2026-07-28", elicitation_callback=say_ada
    ) as host:
        for tool, arguments in ((name, {}), ("call_tool", {"name": name})):
            assert text_of(await host.call_tool(tool, arguments)).startswith("state-ok ")


async def test_prompts_keep_apart_whose_prefixed_name_another_prompt_has() -> None:
    config = config_of(
        a=hostile("prompts ask b_ask"), b=hostile("prompts ask"), c=hostile("prompts b_ask_2")
    )
    async with host_of(config) as host:
        names = [prompt.name for prompt in (await host.list_prompts()).prompts]
        assert names == ["a_ask", "b_ask", "b_ask_3", "b_ask_2"]
        origins = [(await host.get_prompt(name)).description for name in names]
    assert origins == [
        "prompts ask b_ask: ask",
        "prompts ask b_ask: b_ask",
        "prompts ask: ask",
        "prompts b_ask_2: b_ask_2",
    ]


async def test_resources_and_prompts_are_passed_on() -> None:
    async with host_of(config_of(one=odd(), two=odd())) as host:
        resources = (await host.list_resources()).resources
        assert {str(resource.uri) for resource in resources} == {
            "odd://greeting",
            "odd://book",
            "odd://rows",
            "odd://binary",
            "odd://page",
            "ui://page",
        }
        assert (await _text_at(host, "odd://greeting")).text == "hello"
        assert [prompt.name for prompt in (await host.list_prompts()).prompts] == [
            "one_summarise",
            "two_summarise",
        ]
        prompt = await host.get_prompt("two_summarise", {"subject": "it"})
        assert isinstance(prompt.messages[0].content, types.TextContent)
        assert prompt.messages[0].content.text == "Summarise it."
        with pytest.raises(MCPError):
            await host.read_resource("odd://nothing")


async def test_search_mode_finds_and_calls_tools() -> None:
    settings = {"tools": "search", "rules": ToolRules(pinned=("add_one",))}
    async with host_of(config_of(odd=odd(), settings=settings)) as host:
        names = [tool.name for tool in (await host.list_tools()).tools]
        own = ["context", "search_tools", "call_read_only_tool", "call_tool"]
        assert names == [*own, "add_one"]
        found = text_of(await host.call_tool("search_tools", {"query": "the lines of the log"}))
        assert "get_log(lines: int)" in found
        called = await host.call_tool("call_tool", {"name": "get_log", "arguments": {"lines": 2}})
        assert text_of(called) == "line 0 of the log\nline 1 of the log"
        wrong = await host.call_tool(
            "call_tool", {"name": "get_log", "arguments": {"lines": "many"}}
        )
        assert wrong.is_error
        assert "lines" in text_of(wrong)
        assert "get_log(lines: int)" in text_of(wrong)
        unknown = await host.call_tool("call_tool", {"name": "get_logs"})
        assert unknown.is_error
        assert "similar ones are get_log" in text_of(unknown)


async def test_only_tools_marked_read_only_are_called_without_approval() -> None:
    async with host_of(config_of(odd=odd(), settings={"tools": "search"})) as host:
        tools = {tool.name: tool.annotations for tool in (await host.list_tools()).tools}
        assert tools["call_read_only_tool"] == types.ToolAnnotations(read_only_hint=True)
        assert tools["call_tool"] is None
        call = {"name": "list_items", "arguments": {"count": 1}}
        for caller in ("call_read_only_tool", "call_tool"):
            assert "item 0" in text_of(await host.call_tool(caller, call))
        call = {"name": "add_one", "arguments": {"number": 1}}
        refused = await host.call_tool("call_read_only_tool", call)
        assert refused.is_error
        assert "Run it with call_tool" in text_of(refused)
        assert text_of(await host.call_tool("call_tool", call)) == "2"


async def test_the_command_writes_only_protocol(tmp_path: Path) -> None:
    heard = Heard()
    options = ["-c", str(config_file(tmp_path, odd=odd(noise=True))), "--memory-only"]
    async with host_of_process(*options, message_handler=heard) as host:
        preview = text_of(await host.call_tool("get_log", {"lines": 20_000}))
        assert "line 0 of the log" in preview
        await host.call_tool("context", {"id": id_in(preview), "lines": [77, 78]})
    assert heard.count(Exception) == 0


LINE = {"lines": [78, 78]}


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The options of a gateway in a process, which keeps its results in a folder."""
    return ["-c", str(config_file(tmp_path, odd=odd())), "--folder", str(tmp_path / "kept")]


async def test_the_next_gateway_reads_the_results_of_the_last_one_t_02(options: list[str]) -> None:
    ids: list[str] = []
    # Two windows of one host at once, then the host restarts.
    async with host_of_process(*options) as one, host_of_process(*options) as two:
        for number, host in enumerate((one, two, one)):
            ids.append(id_in(text_of(await host.call_tool("get_log", {"lines": 9_000 + number}))))
    async with host_of_process(*options, "--forget") as host:
        assert "0 results are stored" in text_of(await host.call_tool("context", {}))
        for pointer_id in ids:
            part = {"id": pointer_id, **LINE}
            assert "line 77 of the log" in text_of(await host.call_tool("context", part))
        assert "3 results are stored" in text_of(await host.call_tool("context", {}))
        forgotten = id_in(text_of(await host.call_tool("get_log", {"lines": 20_000})))
    async with host_of_process(*options) as host:
        missed = await host.call_tool("context", {"id": forgotten})
        assert "it was erased" in text_of(missed)
        read = await host.call_tool("context", {"id": ids[0], **LINE})
        assert "line 77 of the log" in text_of(read)


async def test_a_killed_gateway_leaves_its_results_readable_t_02(options: list[str]) -> None:
    async with host_of_process(*options, mode="legacy") as host:
        pointer_id = id_in(text_of(await host.call_tool("get_log", {"lines": 9_000})))
        server = int(text_of(await host.call_tool("get_pid", {})))
        os.kill(parent_of(server), signal.SIGKILL)
        await until(lambda: not runs(server))
    async with host_of_process(*options) as host:
        read = await host.call_tool("context", {"id": pointer_id, **LINE})
        assert "line 77 of the log" in text_of(read)


async def test_a_python_registry_has_the_same_previews() -> None:
    async with mcp_tools(config_of(odd=odd())) as registry:
        assert registry.get("list_items").read_only is True  # type: ignore[union-attr]
        assert await registry.execute("add_one", number=3) == 4
        preview = await registry.execute("list_items", count=6_000)
        answer = await registry.execute("context", {"id": id_in(preview), "path": "/4321/id"})
        assert "4321" in str(answer)
        with pytest.raises(ToolFailedError) as caught:
            await registry.execute("fail", words=2)
        data, picture, sound = await registry.execute("get_chart")
        assert data == {"points": [1, 2]}
        assert (picture["type"], sound["type"]) == ("image", "audio")
    assert caught.value.reason
    async with mcp_tools(config_of(odd=odd(), settings={"max_whole_tokens": None})) as registry:
        assert len(await registry.execute("list_items", count=6_000)) == 6_000
        assert "context" not in registry


def configured(folder: Path, **settings: object) -> GatewayConfig:
    return config_of(one=full(), settings={"memory_only": False, "folder": folder, **settings})


@pytest.mark.parametrize("era", ERAS)
async def test_instructions_of_a_server_are_below_those_of_the_gateway(
    era: str, tmp_path: Path
) -> None:
    async with host_of(configured(tmp_path), mode=era) as host:
        first = host.instructions or ""
        await host.list_tools()
    async with host_of(configured(tmp_path), mode=era) as host:
        assert host.instructions == f"{first}\n\n[one] Ask this server for everything."


async def test_a_gateway_that_keeps_no_results_passes_on_only_those_of_servers(
    tmp_path: Path,
) -> None:
    config = configured(tmp_path, max_whole_tokens=None)
    async with host_of(config) as host:
        assert host.instructions is None
        await host.list_tools()
    async with host_of(config) as host:
        assert host.instructions == "[one] Ask this server for everything."
