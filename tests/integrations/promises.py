"""What agents of every framework keep, tested with its program in `programs`.

The tests of a framework derive a class from the one of these that its module of hooks or functions
fulfils.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import iscoroutine
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from llm_common.agents import (
    InMemoryContextPointerStore,
    OffloadPolicy,
    Session,
    SessionConfig,
    Sessions,
)
from llm_common.core import DefaultCounter
from llm_common.history import FoldPolicy
from llm_common.integrations.functions import wrap_tool
from tests.integrations.documented import run_page
from tests.integrations.programs.checks import check_program
from tests.integrations.programs.desk import TOOLS, code_of, get_order, list_orders
from tests.integrations.programs.process import CONFIG, Ask, Tools
from tests.integrations.scripted_endpoint import (
    BOB,
    POINTER,
    Calls,
    Endpoint,
    Messages,
    Reply,
    Serve,
    Step,
    declared_by,
    declared_name,
    newest_results,
    pointer_of,
    reading,
    results_in,
    served,
)
from tests.wire_formats import text_of

LIST: Calls = [("list_orders", BOB)]
CODE = code_of("bob", 4_321)


class Reader(Endpoint):
    """A model that lists parts, reads one of them, and answers with what it read."""

    def reply_to(self, body: dict[str, Any]) -> Reply:
        messages = body["messages"]
        if "### list_parts (" not in str(messages):
            declared = declared_by(body)
            [parameter] = declared[declared_name("list_parts", declared)]["properties"]
            return [("list_parts", {parameter: "all"})]
        results = newest_results(messages)
        if "10500" in results:
            return results
        return reading(pointer_of("list_parts", messages), "/1500/stock")


def read_named(messages: Messages) -> Calls:
    """Return the call that reads a part of the result that the newest message names."""
    return reading(POINTER.findall(newest_results(messages))[-1])


class Promises:
    """What hooks and wrapped functions promise alike.

    Attributes:
        module: Has the program of the framework.
        serve: Serves the endpoint that the framework's client speaks to.
    """

    module: ModuleType
    serve: Serve = staticmethod(served)

    @contextmanager
    def asking(
        self,
        folder: Path,
        *steps: Step,
        store: Any = None,
        config: SessionConfig | None = None,
        tools: Tools = (list_orders,),
    ) -> Iterator[tuple[Ask, Endpoint]]:
        """Start the program, and check that the model takes all of the steps."""
        endpoint = Endpoint(*steps)
        sessions = Sessions(store or folder / "context", config)
        with self.serve(endpoint):
            yield self.module.program(endpoint.url, folder, sessions, tools), endpoint
        assert not endpoint.steps

    def test_a_program_of_four_users_goes_on_after_a_restart(self, tmp_path: Path) -> None:
        check_program(self.module.__name__, tmp_path, self.serve)

    async def test_a_result_that_cannot_be_stored_is_cut_and_the_run_goes_on_t_12(
        self, tmp_path: Path
    ) -> None:
        store = InMemoryContextPointerStore(max_result_bytes=10_000)
        with self.asking(tmp_path, LIST, newest_results, store=store) as (ask, _):
            text = await ask("bob", "List the orders.")
        assert "characters were not kept: the store failed" in text
        assert code_of("bob", 0) in text[:1_000]
        assert code_of("bob", 4_999) in text[-1_000:]
        assert 10_000 < len(text) < 110_000


class FailingPromises(Promises):
    """What a framework promises that shows a model the error of a tool."""

    async def test_the_model_reads_why_a_tool_failed(self, tmp_path: Path) -> None:
        def check_audit(customer: str) -> str:
            """Check the audit of a customer.

            Args:
                customer: Whose audit it is.
            """
            raise RuntimeError(f"the audit of {customer} is down")

        calls: Calls = [("check_audit", BOB)]
        with self.asking(tmp_path, calls, newest_results, tools=[check_audit]) as (ask, _):
            assert "the audit of bob is down" in await ask("bob", "Check bob.")


class FunctionPromises(FailingPromises):
    """What wrapped functions promise besides.

    Attributes:
        media: A value of the framework that holds media.
        model_name: How the page names its model.
    """

    media: Any
    model_name: str = "model"

    def schema_of(self, function: Any) -> Any:
        """Return what the framework tells a model about a function."""
        raise NotImplementedError

    def test_a_wrapped_function_has_the_same_schema(self) -> None:
        wrapped = wrap_tool(list_orders, Session(InMemoryContextPointerStore()))
        assert self.schema_of(wrapped) == self.schema_of(list_orders)

    def test_media_reach_the_framework_unchanged(self) -> None:
        def take_photo() -> Any:
            return self.media

        assert wrap_tool(take_photo, Session(InMemoryContextPointerStore()))() is self.media

    async def test_the_documentation_runs_for_two_users(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        name = self.module.__name__.rpartition(".")[2]
        endpoint = Reader()
        with self.serve(endpoint):
            names = {self.model_name: self.module.model_of(endpoint.url)}
            page = run_page(name, names=names)
            assert "10500" in await _answer(page["answer"], "ann", "What is in stock?")
            read = reading(pointer_of("list_parts", endpoint.requests[-1]["messages"]), "/1500")
            for user, expected in (("ann", "10500"), ("bob", "no stored result of this session")):
                other = Endpoint(read, newest_results)
                with self.serve(other):
                    page = run_page(name, names={self.model_name: self.module.model_of(other.url)})
                    assert expected in await _answer(page["answer_any"], user, "And part 1500?")


async def _answer(function: Any, user: str, question: str) -> str:
    """Return the answer of a page's function, as a server asks: in a thread or a task."""
    answer = await asyncio.to_thread(function, user, question)
    return str(await asyncio.create_task(answer) if iscoroutine(answer) else answer)


class HookPromises(Promises):
    """What hooks promise besides."""

    def delegating(self, url: str, sessions: Sessions, *, is_equipped: bool = True) -> Ask:
        """Return how users ask an agent with `list_orders` and another agent as a tool.

        Args:
            url: The model of both agents.
            sessions: The sessions of all hooks.
            is_equipped: Whether the other agent has a hook.
        """
        raise NotImplementedError

    def delegation(self, question: str) -> tuple[str, dict[str, Any]]:
        """Return a call of the other agent."""
        raise NotImplementedError

    def _delegate(self, messages: Messages) -> Calls:
        return [self.delegation(f"Read the id {pointer_of('list_orders', messages)} now.")]

    async def test_calls_of_one_reply_share_a_budget(self, tmp_path: Path) -> None:
        calls: Calls = [("list_orders", {"customer": name}) for name in ("ann", "bob", "eve")]
        config = SessionConfig(offload=OffloadPolicy(max_turn_tokens=600))
        with self.asking(tmp_path, calls, "Done.", config=config) as (ask, endpoint):
            await ask("bob", "List the orders.")
        previews = results_in(endpoint.requests[-1]["messages"])
        assert [len(POINTER.findall(preview)) for preview in previews] == [1, 1, 1]
        # The id of each result is shown in any case.
        assert sum(map(DefaultCounter().count, previews)) <= 700

    async def test_a_result_stays_whole_only_within_the_budget_of_its_reply(
        self, tmp_path: Path
    ) -> None:
        def get_text(number: int) -> str:
            """Return some words.

            Args:
                number: Which words.
            """
            return f"word {number} " * 300

        calls: Calls = [("get_text", {"number": number}) for number in range(2)]
        config = SessionConfig(offload=OffloadPolicy(max_turn_tokens=1_500))
        with self.asking(tmp_path, calls, "Done.", config=config, tools=[get_text]) as (
            ask,
            endpoint,
        ):
            await ask("bob", "Get the texts.")
        results = results_in(endpoint.requests[-1]["messages"])
        assert [text.startswith("word") for text in results].count(True) == 1

    async def test_a_delegate_reads_the_pointers_that_it_is_given_t_08(self) -> None:
        endpoint = Endpoint(LIST, self._delegate, read_named, newest_results, newest_results)
        with self.serve(endpoint):
            ask = self.delegating(endpoint.url, Sessions())
            assert CODE in await ask("bob", "Ask the other one.")

    async def test_the_documentation_runs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        endpoint = Reader()
        with self.serve(endpoint):
            await asyncio.to_thread(self.run_page, self.module.model_of(endpoint.url))
        assert "10500" in newest_results(endpoint.requests[-1]["messages"])
        assert endpoint.largest < 20_000

    def run_page(self, model: object) -> None:
        """Run the program of the framework's page with a model."""
        run_page(self.module.__name__.rpartition(".")[2], names={"model": model})


class InliningPromises(HookPromises):
    """What hooks promise that see the calls of other agents."""

    async def test_a_delegate_without_a_hook_gets_the_result_t_08(self) -> None:
        endpoint = Endpoint(LIST, self._delegate, "Done.", "Done.")
        with self.serve(endpoint):
            ask = self.delegating(endpoint.url, Sessions(), is_equipped=False)
            await ask("bob", "Ask the other one.")
        question = newest_results(endpoint.requests[2]["messages"])
        assert code_of("bob", 4_999) in question
        assert 4_000 < len(question) < 40_000


class FoldingPromises(HookPromises):
    """What hooks promise that see each request to the model.

    Attributes:
        keeps_history: Whether the framework's own history stays whole.
    """

    keeps_history: bool = True

    async def test_the_same_result_again_refers_to_the_one_above_t_05(self, tmp_path: Path) -> None:
        with self.asking(tmp_path, LIST, LIST, "The same.") as (ask, endpoint):
            await ask("bob", "Which orders are there? Look twice.")
        messages = endpoint.requests[-1]["messages"]
        first, second = results_in(messages)
        assert second.startswith("Identical to the result above: list_orders (")
        assert POINTER.findall(first)[0] in second

    async def test_only_matching_tools_and_those_called_before_are_shown_t_06(
        self, tmp_path: Path
    ) -> None:
        steps: list[Step] = [[("track_parcel", {"parcel": "7"})], "Done.", "Done."]
        with self.asking(tmp_path, *steps, config=CONFIG, tools=TOOLS) as (ask, endpoint):
            await ask("bob", "Which courier has the parcel 7?")
            await ask("bob", "xqzzt")
        for request in endpoint.requests:
            names = {*declared_by(request)}
            assert {"track_parcel", "find_tools", "read_context", "search_context"} <= names
            assert len(names) < len(TOOLS)

    async def test_a_long_history_is_folded_only_for_the_model(self, tmp_path: Path) -> None:
        requests = await self.talk(tmp_path)
        assert "Earlier messages are folded away" in str(requests[-1])
        assert len(requests[-1]) < 25
        for messages in requests:
            calls = sum(len(message.get("tool_calls") or ()) for message in messages)
            assert calls == len(results_in(messages))
        if self.keeps_history:
            with self.asking(tmp_path, "You are welcome.") as (ask, endpoint):
                await ask("bob", "Thank you.")
            [request] = endpoint.requests
            texts = [
                text_of(one.get("content")) for one in request["messages"] if one["role"] == "user"
            ]
            assert sum("The code of door" in text for text in texts) == 8

    async def talk(self, folder: Path) -> list[Messages]:
        """Return the messages of each request of a conversation that is folded."""
        steps: list[Step] = []
        for number in range(8):
            steps += [[("get_order", {"order": number})], "Noted."]
        search: Calls = [("search_context", {"words": "code of door 3"})]
        config = SessionConfig(fold=FoldPolicy(max_tokens=1_200))
        tools = [get_order]
        with self.asking(folder, *steps, search, newest_results, config=config, tools=tools) as (
            ask,
            endpoint,
        ):
            for number in range(8):
                code = f"The code of door {number} is {number * 31}. " + "word " * 200
                await ask("bob", code)
            assert "93" in await ask("bob", "What is the code of door 3?")
        return [request["messages"] for request in endpoint.requests]
