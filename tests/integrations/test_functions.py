"""Test `wrap_tool` and `tool_functions`, which need no framework."""

import asyncio
import functools
import inspect
import json
import logging
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel

from llm_common.agents import (
    InMemoryContextPointerStore,
    OffloadPolicy,
    Session,
    SessionConfig,
    Sessions,
)
from llm_common.errors import ConfigError
from llm_common.integrations.functions import tool_functions, wrap_tool

POINTER = re.compile(r"the id ([0-9a-f]{12,16})")


def list_parts(owner: str, count: int = 4_000) -> list[dict[str, Any]]:
    """List the parts of an owner.

    Args:
        owner: Who owns the parts.
        count: How many there are.
    """
    return [{"id": number, "name": f"part {number} of {owner}"} for number in range(count)]


async def list_parts_later(owner: str, count: int = 4_000) -> list[dict[str, Any]]:
    """List the parts of an owner."""
    await asyncio.sleep(0)
    return list_parts(owner, count)


class Warehouse:
    def __init__(self, city: str) -> None:
        self.city = city

    def list_parts(self, count: int) -> list[dict[str, Any]]:
        """List the parts of the warehouse."""
        return list_parts(self.city, count)

    async def list_parts_later(self, count: int) -> list[dict[str, Any]]:
        """List the parts of the warehouse."""
        return list_parts(self.city, count)


@dataclass
class Part:
    name: str


@dataclass(slots=True)
class Picture:
    data: bytes = b"x" * 90_000


class PictureModel(BaseModel):
    data: bytes


class FrameworkContext:
    """What a framework passes to a tool beside the model's arguments."""

    def __init__(self) -> None:
        self.api_key = "sk-canary"


def same(value: object) -> object:
    return value


def session_of(**config: Any) -> Session:
    return Session(InMemoryContextPointerStore(), config=SessionConfig(**config))


def pointer_in(shown: object) -> str:
    assert isinstance(shown, str), type(shown)
    assert len(shown) < 3_000
    [pointer_id] = POINTER.findall(shown)
    return str(pointer_id)


async def value_of(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


@pytest.mark.parametrize("function", [list_parts, list_parts_later])
async def test_a_long_result_is_read_back(function: Callable[..., Any]) -> None:
    session, is_sync = session_of(), function is list_parts
    shown = await value_of(wrap_tool(function, session)("Ann"))
    functions: Any = tool_functions(session, sync=True) if is_sync else tool_functions(session)
    read_context, search_context, query_context = functions
    [table] = re.findall(r"^Table (\w+)", str(shown), re.MULTILINE)
    assert "\n4000\n" in await value_of(query_context(f"SELECT count(*) FROM {table}"))
    pointer_id = pointer_in(shown)
    assert "part 3456 of Ann" in await value_of(read_context(pointer_id, path="/3456/name"))
    pattern = "part 3456 of \\w+"
    assert "part 3456 of Ann" in await value_of(read_context(id=pointer_id, pattern=pattern))
    assert pointer_id in await value_of(search_context("part 3999"))


async def test_methods_and_partial_functions_are_offloaded() -> None:
    session, warehouse = session_of(), Warehouse("Oslo")
    assert "part 0 of Oslo" in str(wrap_tool(warehouse.list_parts, session)(4_000))
    pointer_in(await wrap_tool(warehouse.list_parts_later, session)(4_000))
    partly: Callable[..., Any] = functools.partial(list_parts, "Rome")
    pointer_in(wrap_tool(partly, session)(count=4_000))
    names = {pointer.tool_name for pointer in session.results.list_all()}
    assert names == {"list_parts", "list_parts_later"}


async def test_a_function_that_returns_an_awaitable_is_awaited() -> None:
    def start(owner: str) -> Awaitable[list[dict[str, Any]]]:
        return list_parts_later(owner)

    pointer_in(await wrap_tool(start, session_of())("Ann"))


@pytest.mark.parametrize("function", [list_parts, list_parts_later, Warehouse("Oslo").list_parts])
def test_a_framework_derives_the_same_schema(function: Callable[..., Any]) -> None:
    wrapped = wrap_tool(function, session_of())
    assert inspect.signature(wrapped) == inspect.signature(function)
    assert get_type_hints(wrapped) == get_type_hints(function)
    assert wrapped.__name__ == function.__name__
    assert inspect.getdoc(wrapped) == inspect.getdoc(function)
    assert inspect.iscoroutinefunction(wrapped) is inspect.iscoroutinefunction(function)


@pytest.mark.parametrize("sync", [True, False])
def test_the_functions_have_names_hints_and_descriptions(sync: bool) -> None:
    config = {"offload": OffloadPolicy(reader_name="read_result"), "search_name": "find_words"}
    functions: list[Callable[..., Any]] = [*tool_functions(session_of(**config))]
    if sync:
        functions = [*tool_functions(session_of(**config), sync=True)]
    assert [function.__name__ for function in functions] == [
        *("read_result", "find_words", "query_context")
    ]
    for function in functions:
        signature = inspect.signature(function)
        assert signature.return_annotation is str
        assert get_type_hints(function)["return"] is str
        assert inspect.iscoroutinefunction(inspect.unwrap(function)) is not sync
        for name in signature.parameters:
            assert re.search(rf"^ +{name}: ", function.__doc__ or "", re.MULTILINE)


@pytest.mark.parametrize(
    "value",
    [
        *(None, 7, "short", list_parts("Ann", 3), (row for row in "ab")),
        *(b"\x89PNG" * 9_000, Part("nut"), Part, threading.Lock()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_long_plain_data_passes_unchanged(value: object) -> None:
    assert wrap_tool(same, session_of())(value) is value


def test_a_long_value_without_a_json_form_passes_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    value = {"lock": threading.Lock(), "text": "secret words " * 2_000}
    assert wrap_tool(same, session_of())(value) is value
    [message] = caplog.messages
    assert "is not offloaded" in message
    assert "secret" not in message


@pytest.mark.parametrize(
    "item",
    [Picture(), PictureModel(data=b"x" * 90_000), FrameworkContext()],
    ids=lambda item: type(item).__name__,
)
def test_a_list_with_media_passes_unchanged(item: object, caplog: pytest.LogCaptureFixture) -> None:
    value = ["words " * 9_000, item]
    with caplog.at_level(logging.INFO):
        assert wrap_tool(same, session_of())(value) is value
    assert caplog.messages == ["a result of same passes as it is: not plain data (list)"]


def test_dataclasses_are_offloaded_as_data() -> None:
    session = session_of()
    parts = [Part(f"part {number}") for number in range(4_000)]
    pointer_id = pointer_in(wrap_tool(lambda: parts, session)())
    read_context = tool_functions(session, sync=True)[0]
    assert "part 3456" in read_context(pointer_id, path="/3456/name")


async def test_functions_that_yield_are_returned_themselves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def count_up(length: int) -> Iterator[int]:
        yield from range(length)

    async def count_up_later(length: int) -> AsyncIterator[int]:
        for number in range(length):
            yield number

    with caplog.at_level(logging.INFO):
        wrapped: object = wrap_tool(count_up, session_of())
        wrapped_later: object = wrap_tool(count_up_later, session_of())
    assert wrapped is count_up
    assert wrapped_later is count_up_later
    assert [message.partition(" ")[0] for message in caplog.messages] == [
        "count_up",
        "count_up_later",
    ]


async def test_errors_of_a_function_pass_unchanged() -> None:
    error = RuntimeError("the audit is down")

    def fail() -> str:
        raise error

    async def fail_later() -> str:
        raise error

    with pytest.raises(RuntimeError) as caught:
        wrap_tool(fail, session_of())()
    assert caught.value is error
    with pytest.raises(RuntimeError) as caught:
        await wrap_tool(fail_later, session_of())()
    assert caught.value is error


def test_the_question_decides_which_passages_are_shown() -> None:
    question = ContextVar("question", default="What is the name of part 3456?")
    for query in (question.get(), question.get):
        shown = wrap_tool(list_parts, session_of(), query=query)("Ann")
        assert "part 3456 of Ann" in str(shown)


def test_a_callable_finds_the_session_of_each_user(tmp_path: Path) -> None:
    current: ContextVar[Session] = ContextVar("current")
    sessions = Sessions(tmp_path)
    wrapped = wrap_tool(list_parts, current.get)
    read_context = tool_functions(current.get, sync=True)[0]

    def run_for(user: str, work: Callable[..., Any], *args: Any) -> Any:
        def run() -> Any:
            current.set(sessions.get(user))
            return work(*args)

        return copy_context().run(run)

    with ThreadPoolExecutor(2) as threads:
        running = {user: threads.submit(run_for, user, wrapped, user) for user in ("ann", "bob")}
        pointers = {user: pointer_in(call.result()) for user, call in running.items()}
    for user, other in (("ann", "bob"), ("bob", "ann")):
        answer = run_for(user, read_context, pointers[user], "/3456/name")
        assert f"part 3456 of {user}" in answer
        assert "no stored result of this session" in run_for(user, read_context, pointers[other])


def test_a_tool_without_a_session_does_not_run() -> None:
    ran = []
    source: Any = functools.partial(same, None)
    with pytest.raises(TypeError, match=r"session\(\) returned a NoneType"):
        wrap_tool(lambda: ran.append(1), source)()
    assert ran == []


def test_a_result_that_cannot_be_stored_is_cut_t_12() -> None:
    session = Session(InMemoryContextPointerStore(max_result_bytes=10_000))
    text = str(wrap_tool(list_parts, session)("Ann"))
    assert "characters were not kept: the store failed" in text
    assert "part 0" in text[:200]


def test_the_pointer_has_the_arguments_without_the_frameworks_objects() -> None:
    def search(context: FrameworkContext, owner: str, /, count: int = 1, **more: Any) -> Any:
        return list_parts(owner, count)

    session = session_of()
    wrap_tool(search, session)(FrameworkContext(), "Ann", count=4_000, unit="kg", at=None)
    [pointer] = session.results.list_all()
    assert pointer.args == {"owner": "Ann", "count": 4_000, "unit": "kg", "at": None}


def test_wrong_arguments_of_the_reader_become_a_text_for_the_model() -> None:
    session = session_of()
    pointer_id = pointer_in(wrap_tool(list_parts, session)("Ann"))
    read_context = tool_functions(session, sync=True)[0]
    assert "not run" in read_context(pointer_id, lines=["first"])
    assert "no stored result" in read_context("0" * 12)


def test_a_session_with_other_tool_names_is_refused() -> None:
    session = session_of(search_name="find_words")
    with pytest.raises(ConfigError, match="find_words"):
        tool_functions(lambda: session, sync=True)[1]("part")


def test_what_is_no_function_or_no_session_is_refused(tmp_path: Path) -> None:
    unknown: Any = Warehouse("Oslo")
    with pytest.raises(TypeError, match="Warehouse; wrap the function before the framework"):
        wrap_tool(unknown, session_of())
    wrong: Any = Sessions(tmp_path)
    with pytest.raises(TypeError, match="session is a Sessions"):
        wrap_tool(list_parts, wrong)
    with pytest.raises(TypeError, match="session is a Sessions"):
        tool_functions(wrong)


def test_wrapping_twice_changes_nothing() -> None:
    session = session_of()
    shown = wrap_tool(wrap_tool(list_parts, session), session)("Ann")
    pointer_id = pointer_in(shown)
    payload = session.results.load_payload(pointer_id)[1]
    assert json.loads(payload) == list_parts("Ann")
    assert len(session.results.list_all()) == 1
