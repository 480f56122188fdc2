"""What the documented loops of both clients promise, with one driver for each client."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from llm_common.agents import Session, ToolRegistry
from tests.integrations.documented import blocks_of
from tests.integrations.scripted_endpoint import (
    POINTER,
    Calls,
    Endpoint,
    Step,
    list_orders,
    read_log,
)

REPORT: Calls = [("list_orders", {"customer": "bob"}), ("read_log", {"customer": "bob"})]
SECRET = "sk-proj-" + 40 * "a1B2"  # has the form of a key, so the model must not see it

Serve = Callable[..., AbstractContextManager[Endpoint]]
Results = Callable[[list[dict[str, Any]]], str]


def check_audit(customer: str) -> str:
    """Check the audit of a customer."""
    raise RuntimeError(f"the audit of {customer} is down, {SECRET}")


class Loop:
    """The program of a page, with further tools.

    Args:
        page: The page.
        serve: Serves an endpoint with a script.
        connect: Returns the client of an endpoint.
        results: Returns the results of the newest calls in the messages of a request.
    """

    def __init__(
        self, page: str, serve: Serve, connect: Callable[[Endpoint], Any], results: Results
    ) -> None:
        [program] = blocks_of(page)
        functions = program.partition("async def main")[0]
        self.names: dict[str, Any] = {"__name__": page}
        exec(functions, self.names)
        self.program = program
        self.more: list[Callable[..., Any]] = []
        self.serve, self.connect, self.results = serve, connect, results
        of_page: Callable[[Session], ToolRegistry] = self.names["tools_of"]

        def tools_of(session: Session) -> ToolRegistry:
            return ToolRegistry([*of_page(session), list_orders, read_log, check_audit, *self.more])

        self.names["tools_of"] = tools_of

    async def ask(
        self, session: Session, *steps: Step, messages: list[Any] | None = None
    ) -> tuple[str, Endpoint]:
        with self.serve(*steps) as endpoint:
            async with self.connect(endpoint) as client:
                history = [] if messages is None else messages
                answer = await self.names["answer"](client, session, history, "Report on bob.")
        return str(answer), endpoint

    def pointers(self, messages: list[dict[str, Any]]) -> list[str]:
        return POINTER.findall(self.results(messages))


def reading(pointer_id: str) -> Calls:
    return [("read_context", {"id": pointer_id, "path": "/4321/code"})]


async def check_parallel_results(loop: Loop, folder: Path) -> None:
    def read_both(messages: list[dict[str, Any]]) -> Calls:
        orders, log = loop.pointers(messages)
        pattern = {"id": log, "pattern": "ERROR.*"}
        return [*reading(orders), ("read_context", pattern)]

    answer, endpoint = await loop.ask(Session(folder), REPORT, read_both, loop.results)
    assert "S-bob-4321" in answer
    assert "a disk of bob failed" in answer
    assert endpoint.largest < 12_000


async def check_failures(loop: Loop, folder: Path) -> None:
    calls: Calls = [("check_audit", {"customer": "bob"}), ("chek_audit", {"customer": "bob"})]
    answer, endpoint = await loop.ask(Session(folder), calls, loop.results)
    assert "the audit of bob is down" in answer
    assert "no tool of that name" in answer
    assert SECRET not in json.dumps(endpoint.requests)


async def check_calls_run_together(loop: Loop, folder: Path) -> None:
    both = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        """Meet another call."""
        await both.wait()
        return f"{name} came"

    loop.more.append(meet)
    calls: Calls = [("meet", {"name": "Ann"}), ("meet", {"name": "Bob"})]
    asking = loop.ask(Session(folder), calls, loop.results)
    answer, _ = await asyncio.wait_for(asking, timeout=60)
    assert answer == "Ann came\nBob came"


async def check_restart_and_users(loop: Loop, folder: Path) -> None:
    messages: list[Any] = []
    bob = Session(folder, session_id="user:bob")
    await loop.ask(bob, REPORT[:1], "Done.", messages=messages)
    saved = json.dumps(messages)
    assert len(saved) < 8_000
    [pointer_id] = POINTER.findall(saved)
    for user, expected in (("bob", "S-bob-4321"), ("ann", "no stored result of this session")):
        answer, _ = await loop.ask(
            Session(folder, session_id=f"user:{user}"),
            reading(pointer_id),
            loop.results,
            messages=json.loads(saved),
        )
        assert expected in answer
