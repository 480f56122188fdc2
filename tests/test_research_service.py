"""The example of a service: events over HTTP, users apart, a restart, erasing."""

import asyncio
import json
import runpy
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from llm_common.agents import (
    AgenticExecutor,
    FileContextPointerStore,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.core import LLMMessage
from llm_common.testing import ScriptedClient

EXAMPLE = Path(__file__).parent.parent.joinpath("examples", "research_service.py")
QUESTION = "How did ACME close on day 4000?"
PLAN = '{"tasks": ["Get the daily prices of ACME"]}'
CALL = '{"calls": [{"tool": "daily_prices", "args": {"ticker": "ACME"}}]}'


def model(messages: list[LLMMessage]) -> str:
    """Reply as a model that plans, chooses a call, and answers from its prompt."""
    system = str(messages[0].content)
    if system.startswith("You plan"):
        return PLAN
    if system.startswith("Answer the user's question"):
        prompt = "".join(str(message.content) for message in messages)
        return "It closed at 104." if "4000 | ACME | 104" in prompt else "I do not know."
    return CALL


@asynccontextmanager
async def serving(folder: Path, user: str = "ann") -> AsyncIterator[httpx.AsyncClient]:
    """Serve the example on a free port of loopback, and yield a client of one user."""
    service = runpy.run_path(str(EXAMPLE))["create_app"](ScriptedClient([], default=model), folder)
    server = uvicorn.Server(uvicorn.Config(service, port=0, log_level="error", lifespan="on"))
    serve = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
        assert not serve.done()
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers={"X-User": user}, timeout=60
        ) as http:
            yield http
    finally:
        server.should_exit = True
        await serve


async def ask(http: httpx.AsyncClient, user: str = "ann") -> list[tuple[str, Any]]:
    """Return the events of a question, as a browser reads them."""
    reply = await http.get("/ask", params={"question": QUESTION}, headers={"X-User": user})
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in reply.text.strip().split("\n\n"):
        name, line = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(line.removeprefix("data: "))))
    return events


async def test_the_service_streams_keeps_users_apart_and_survives_a_restart(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as http:
        events, others = await asyncio.gather(ask(http), ask(http, "bob"))
        assert [name for name, _ in events] == [
            "thinking", "thinking", "tool_call", "tool_result", "answer",
        ]  # fmt: skip
        assert events[-1][1]["text"] == "It closed at 104."
        result = dict(events)["tool_result"]
        assert len(json.dumps(result)) < 6_000
        foreign = dict(others)["tool_result"]["pointer_id"]
        assert (await http.get(f"/outputs/{foreign}")).status_code == 404
        assert (await http.get("/outputs/x", headers={"X-User": "../bob"})).status_code == 422

    async with serving(tmp_path) as http:
        address = f"/outputs/{result['pointer_id']}"
        piece = (await http.get(address)).json()
        assert piece["text"].startswith('[{"day":0,"ticker":"ACME","close":100}')
        assert piece["cursor"]
        rest = (await http.get(address, params={"cursor": piece["cursor"]})).json()
        assert rest["start"] == len(piece["text"])

        erased = (await http.delete("/me")).json()
        assert erased == {"memories": 2}
        assert (await http.get(address)).status_code == 404
        assert (await http.get(f"/outputs/{foreign}", headers={"X-User": "bob"})).status_code == 200


async def test_a_question_that_is_still_running_is_an_error_event(tmp_path: Path) -> None:
    manager = ToolContextManager(pointer_store=FileContextPointerStore(tmp_path / "outputs"))
    executor = AgenticExecutor(ScriptedClient([], default=model), ToolRegistry(), manager)
    async with (
        serving(tmp_path) as http,
        aclosing(executor.answer_stream(QUESTION, session="user:ann")) as running,
    ):
        await anext(running)
        [(name, data)] = await ask(http)
    assert name == "error"
    assert "user:ann" in data["error"]
