"""What the documented loops of the clients promise, tested with the programs of their pages."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import Session, ToolRegistry
from tests.integrations.documented import program_of
from tests.integrations.programs.desk import list_orders, read_log
from tests.integrations.promises import CODE, Reader
from tests.integrations.scripted_endpoint import (
    POINTER,
    REPORT,
    Calls,
    Endpoint,
    Serve,
    Step,
    newest_results,
    read_both,
    reading,
    served,
)

SECRET = "sk-proj-" + 40 * "a1B2"  # has the form of a key, so the model must not see it


def check_audit(customer: str) -> str:
    """Check the audit of a customer."""
    raise RuntimeError(f"the audit of {customer} is down, {SECRET}")


class LoopPromises:
    """What each loop promises.

    Attributes:
        page: The page of the loop.
        client: The client's class.
        variables: The environment variables of the client, for its URL and key.
        serve: Serves the endpoint that the client speaks to.
    """

    page: str
    client: Callable[..., Any]
    variables: tuple[str, str]
    serve: Serve = staticmethod(served)

    async def ask(
        self,
        session: Session,
        *steps: Step,
        messages: list[Any] | None = None,
        tools: tuple[Callable[..., Any], ...] = (list_orders, read_log, check_audit),
    ) -> tuple[str, Endpoint]:
        """Return the answer of the page's loop with other tools, and the requests."""
        program = program_of(self.page)
        names: dict[str, Any] = {"__name__": self.page}
        exec(program.partition("async def main")[0], names)
        names["tools_of"] = lambda session: ToolRegistry([*session.tools(), *tools])
        endpoint = Endpoint(*steps)
        with self.serve(endpoint):
            async with self.client(base_url=endpoint.url, api_key="none", max_retries=0) as client:
                history = [] if messages is None else messages
                answer = await names["answer"](client, session, history, "Report on bob.")
        return str(answer), endpoint

    async def test_two_parallel_results_are_offloaded_and_read_back(self, tmp_path: Path) -> None:
        session = Session(tmp_path)
        answer, endpoint = await self.ask(session, REPORT, read_both, newest_results)
        assert CODE in answer
        assert "a disk of bob failed" in answer
        assert endpoint.largest < 12_000

    async def test_the_model_reads_why_a_tool_failed_without_secrets(self, tmp_path: Path) -> None:
        calls: Calls = [("check_audit", {"customer": "bob"}), ("chek_audit", {"customer": "bob"})]
        answer, endpoint = await self.ask(Session(tmp_path), calls, newest_results)
        assert "the audit of bob is down" in answer
        assert "no tool of that name" in answer
        assert SECRET not in json.dumps(endpoint.requests)

    async def test_the_calls_of_a_reply_run_at_the_same_time(self, tmp_path: Path) -> None:
        both = asyncio.Barrier(2)

        async def meet(name: str) -> str:
            """Meet another call."""
            await both.wait()
            return f"{name} came"

        calls: Calls = [("meet", {"name": "Ann"}), ("meet", {"name": "Bob"})]
        asking = self.ask(Session(tmp_path), calls, newest_results, tools=(meet,))
        answer, _ = await asyncio.wait_for(asking, timeout=60)
        assert answer == "Ann came\nBob came"

    async def test_a_restarted_process_reads_an_old_pointer_and_another_user_does_not(
        self, tmp_path: Path
    ) -> None:
        messages: list[Any] = []
        bob = Session(tmp_path, session_id="user:bob")
        await self.ask(bob, REPORT[:1], "Done.", messages=messages)
        saved = json.dumps(messages)
        assert len(saved) < 8_000
        [pointer_id] = POINTER.findall(saved)
        for user, expected in (("bob", CODE), ("ann", "no stored result of this session")):
            session = Session(tmp_path, session_id=f"user:{user}")
            answer, _ = await self.ask(
                session, reading(pointer_id), newest_results, messages=json.loads(saved)
            )
            assert expected in answer

    def test_the_page_runs_as_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        program = program_of(self.page)
        endpoint = Reader()
        with self.serve(endpoint):
            for variable, value in zip(self.variables, (endpoint.url, "none"), strict=True):
                monkeypatch.setenv(variable, value)
            exec(program, {"__name__": self.page})
        assert "10500" in capsys.readouterr().out
        assert endpoint.largest < 8_000
