"""The documented loops, with the real clients of OpenAI and Anthropic against an endpoint on loopback."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.core.loopback import Wire, loopback, response
from tests.integrations.documented import run_page

pytestmark = pytest.mark.integrations

Call = tuple[str, dict[str, Any]]
Step = Call | str


def openai_reply(step: Step) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step}
    if not isinstance(step, str):
        function = {"name": step[0], "arguments": json.dumps(step[1])}
        call = {"id": f"call {step[0]}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def openai_replies(*calls: Call) -> dict[str, Any]:
    """Return one reply with several calls."""
    replies = [openai_reply(call) for call in calls]
    for other in replies[1:]:
        message = replies[0]["choices"][0]["message"]
        message["tool_calls"] += other["choices"][0]["message"]["tool_calls"]
    return replies[0]


def anthropic_reply(step: Step) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": step}
    if not isinstance(step, str):
        block = {"type": "tool_use", "id": f"call_{step[0]}", "name": step[0], "input": step[1]}
    usage = {"input_tokens": 1, "output_tokens": 1}
    facts = {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": "end_turn",
    }
    return {**facts, "content": [block], "usage": usage}


def newest(sent: dict[str, Any]) -> str:
    """The output of the newest call, in either shape."""
    content = sent["messages"][-1]["content"]
    return content if isinstance(content, str) else str(content[0]["content"])


def stored_id(sent: dict[str, Any]) -> str:
    found = next(one for one in map(json.dumps, sent["messages"]) if "the id " in one)
    return found.partition("the id ")[2].partition(" ")[0]


def next_step(sent: dict[str, Any], number: int) -> Step:
    """Return the model's replies: list, make a mistake, read, and answer from what was read."""
    steps: list[Callable[[], Step]] = [
        lambda: ("list_parts", {"kind": "all"}),
        lambda: "ask on",
        lambda: ("list_part", {"kind": "all"}),
        lambda: (
            "read_context",
            {"pointer_id": stored_id(sent), "select": {"path": "/1500/stock"}, "cursor": None},
        ),
        lambda: newest(sent).splitlines()[-2],
    ]
    return steps[number]()


@pytest.mark.parametrize("which", ["openai", "anthropic"])
async def test_the_loop_offloads_reports_errors_and_reads_back(which: str, tmp_path: Path) -> None:
    page = run_page("plain_loops", model='"gpt-5"', names={"model": "gpt-5"})
    reply = openai_reply if which == "openai" else anthropic_reply
    sent: list[dict[str, Any]] = []

    async def serve(wire: Wire) -> None:
        while request := await wire.request():
            sent.append(request.body)
            body = json.dumps(reply(next_step(request.body, len(sent) - 1))).encode()
            await wire.send(response(200, body))

    messages: list[Any] = []
    async with loopback(serve) as server:
        address = f"http://127.0.0.1:{server.port}"
        if which == "openai":
            async with AsyncOpenAI(
                base_url=f"{address}/v1", api_key="none", max_retries=0
            ) as client:
                answers = [
                    await page["answer"](client, messages, text)
                    for text in ("Which parts?", "Stock of 1500?")
                ]
        else:
            async with AsyncAnthropic(base_url=address, api_key="none", max_retries=0) as other:
                answers = [
                    await page["ask"](other, messages, text)
                    for text in ("Which parts?", "Stock of 1500?")
                ]
    assert answers == ["ask on", "10500"]
    assert all(len(json.dumps(body["messages"])) < 8_000 for body in sent)
    assert "no tool of that name" in newest(sent[3])


async def test_calls_run_at_the_same_time_and_a_failure_gives_its_reason(tmp_path: Path) -> None:
    page = run_page("plain_loops", model='"gpt-5"', names={"model": "gpt-5"})
    both = asyncio.Barrier(2)

    @page["tools"].tool
    async def audit(customer: str) -> None:
        """Audits a customer."""
        await both.wait()
        raise ConnectionError(f"no audit of {customer}: the ledger is locked")

    @page["tools"].tool
    async def count(kind: str) -> int:
        """Counts parts."""
        await both.wait()
        return 7

    calls = [("audit", {"customer": "Ann Nowak"}), ("count", {"kind": "all"})]
    sent: list[dict[str, Any]] = []

    async def serve(wire: Wire) -> None:
        while request := await wire.request():
            sent.append(request.body)
            reply = openai_replies(*calls) if len(sent) == 1 else openai_reply("done")
            await wire.send(response(200, json.dumps(reply).encode()))

    async with loopback(serve) as server:
        address = f"http://127.0.0.1:{server.port}/v1"
        async with AsyncOpenAI(base_url=address, api_key="none", max_retries=0) as client:
            answer = page["answer"](client, [], "Audit and count")
            assert await asyncio.wait_for(answer, timeout=60) == "done"
    failed, counted = sent[1]["messages"][-2:]
    assert failed["content"] == (
        "audit failed: audit raised ConnectionError: no audit of [customer]: the ledger is locked; "
        "correct the call, or go on without it"
    )
    assert counted["content"] == "7"
