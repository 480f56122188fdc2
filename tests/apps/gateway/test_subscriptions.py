"""Test subscriptions and completions for single resources, prompts and templates."""

import asyncio
import os
import signal

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import ResourceUpdated

from llm_common.apps.gateway import Gateway
from llm_common.apps.gateway.servers.requests import watch
from tests.apps.gateway.hosts import (
    ERAS,
    config_of,
    host_and_changes,
    host_of,
    hostile,
    odd,
    text_of,
    until,
)

pytestmark = pytest.mark.mcp
CHANGING = "resources that change"
EMPTY = types.EmptyResult
UPDATED = types.ResourceUpdatedNotification


def subscribe(uri: str) -> types.SubscribeRequest:
    return types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))


def unsubscribe(uri: str) -> types.UnsubscribeRequest:
    return types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))


async def change(host: Client, uri: str) -> tuple[int, str]:
    """The process of the server, and what it is asked to watch."""
    pid, _, watched = text_of(await host.call_tool("change", {"text": uri})).partition(" ")
    return int(pid), watched


async def test_a_host_is_notified_of_changes_of_subscribed_resources() -> None:
    async with host_and_changes(config_of(one=hostile(CHANGING))) as (host, heard):
        assert host.server_capabilities.resources == types.ResourcesCapability(
            subscribe=True, list_changed=True
        )
        for uri in ("bad://a", "bad://a", "bad://not-listed"):
            await host.session.send_request(subscribe(uri), EMPTY)
        assert (await change(host, "bad://b"))[1] == "['bad://a', 'bad://not-listed']"
        await change(host, "bad://a")
        await until(lambda: bool(heard.count(UPDATED)))
        await host.session.send_request(unsubscribe("bad://a"), EMPTY)
        assert (await change(host, "bad://a"))[1] == "['bad://not-listed']"
        assert [message.params.uri for message in heard.messages] == ["bad://a"]


async def test_subscriptions_survive_a_restart_of_the_server() -> None:
    async with host_and_changes(config_of(one=hostile(CHANGING))) as (host, heard):
        await host.session.send_request(subscribe("bad://a"), EMPTY)
        pid, _ = await change(host, "bad://b")
        os.kill(pid, signal.SIGKILL)
        while not heard.count(UPDATED):
            await host.call_tool("change", {"text": "bad://a"})
        assert (await change(host, "bad://b"))[0] != pid


async def test_a_resource_that_no_server_can_watch_is_refused() -> None:
    async with host_of(config_of(broken=hostile("an end at the start")), mode="legacy") as host:
        with pytest.raises(MCPError, match="no server announces changes of this resource"):
            await host.session.send_request(subscribe("bad://a"), EMPTY)


async def test_every_watcher_learns_that_a_subscription_was_refused() -> None:
    async with (
        Gateway(config_of(one=hostile(CHANGING))) as gateway,
        Client(gateway.server, mode="legacy") as host,
    ):
        await host.list_tools()
        (session,) = gateway.sessions
        watching = [watch(session.catalogue, "bad://refused", object()) for _ in range(3)]
        answers = await asyncio.gather(*watching, return_exceptions=True)
        assert [str(answer) for answer in answers] == ["refused"] * 3


async def test_a_host_of_the_newest_protocol_listens_to_any_server() -> None:
    async with host_of(config_of(old=hostile(CHANGING), new=odd())) as host:
        async with host.listen(resource_subscriptions=["bad://a", "odd://greeting"]) as events:
            await change(host, "bad://a")
            assert await anext(events) == ResourceUpdated("bad://a")
            await host.call_tool("change_resource", {"uri": "odd://greeting"})
            assert await anext(events) == ResourceUpdated("odd://greeting")
        while (await change(host, "bad://a"))[1] != "[]":
            pass


@pytest.mark.parametrize("era", ERAS)
async def test_arguments_of_prompts_and_templates_are_completed(era: str) -> None:
    template = types.ResourceTemplateReference(uri="odd://about/{subject}")
    async with host_of(config_of(one=odd(), two=odd(), bare=hostile()), mode=era) as host:
        assert host.server_capabilities.completions is not None
        argument = {"name": "subject", "value": "a"}
        prompt = types.PromptReference(name="two_summarise")
        found = await host.complete(prompt, argument, {"tone": "dry"})
        assert found.completion.values == ["apples of summarise ['dry']"]
        found = await host.complete(template, argument)
        assert found.completion.values == ["apples of odd://about/{subject} []"]
        found = await host.complete(types.PromptReference(name="ask"), argument)
        assert found.completion.values == []
        for unknown in (
            types.PromptReference(name="nothing"),
            types.ResourceTemplateReference(uri="odd://{x}"),
        ):
            with pytest.raises(MCPError, match="no server has this"):
                await host.complete(unknown, argument)
