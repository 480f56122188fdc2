"""Mistakes of users, and the errors that name the problem, its place and the way out.

Each row has a mistake as a user would make it, the class of the error, and its whole text. `{at}`
is the folder of the test. The link that pydantic adds to its texts is left out.
"""

# mypy: disable-error-code="arg-type, call-arg, list-item"

import importlib
import inspect
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from llm_common.agents import (
    AgenticExecutor,
    ContextPointer,
    ContextRelevanceSelector,
    FileContextPointerStore,
    LexicalRelevanceSelector,
    ObjectContextPointerStore,
    Offloaded,
    OffloadPolicy,
    PromptBundle,
    ReadBackTool,
    Session,
    SessionConfig,
    TokenBudget,
    ToolContextManager,
    ToolIndex,
    ToolRegistry,
    ToolSelectionConfig,
    ToolSelector,
    fit,
    format_selected_contexts,
)
from llm_common.context import (
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    classify_intent,
)
from llm_common.core import LLMConfig, LLMMessage, OpenAICompatibleClient
from llm_common.errors import (
    ConfigError,
    CostLimitError,
    InvalidIdError,
    LLMAuthError,
    LLMConnectionError,
    LLMStatusError,
    MalformedReplyError,
    ModelNotFoundError,
    PointerNotFoundError,
    ResultTooLargeError,
    StoreError,
    TokenBudgetError,
    ToolArgumentsError,
    UnknownToolError,
    UnsafePathError,
    UnserialisableError,
)
from llm_common.folders import pack_folder
from llm_common.history import fold, search_history
from llm_common.memory import Event, MemoryFilters, PostgresMemory, SqliteMemory
from llm_common.testing import ScriptedClient
from llm_common.text import stable_json
from llm_common.tools import read_definitions

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POINTER = ContextPointer(
    pointer_id="abcdefabcdef",
    query_id="q",
    tool_name="t",
    created_at="2026-01-01T00:00:00.000000+00:00",
    summary="t",
    result_path="",
)


class AsyncOpenAI:
    """The shape of the client of that name."""

    class _Completions:
        async def create(self) -> None:
            """Return nothing."""

    class _Chat:
        completions: Any

    def __init__(self) -> None:
        self.chat = self._Chat()
        self.chat.completions = self._Completions()


def any_arguments(*args: str) -> str:
    return "".join(args)


async def closed_client() -> Any:
    client = OpenAICompatibleClient(
        LLMConfig(base_url="https://models.example/v1", default_model="small")
    )
    await client.aclose()
    return await client.chat_completion([LLMMessage(role="user", content="Hello")])


async def closed_memory(at: Path) -> Any:
    memory = SqliteMemory(at / "memory.db")
    await memory.aclose()
    return await memory.recent("s")


def from_environment(name: str, value: str, read: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as environment:
        environment.setitem(os.environ, name, value)
        return read()


async def save(at: Path, **changes: Any) -> Any:
    call: dict[str, Any] = {
        "query_id": "q",
        "task_id": None,
        "tool_name": "t",
        "args": {},
        "result": 1,
    }
    return await FileContextPointerStore(at / "store").save(**call | changes)


async def chosen(at: Path, **changes: Any) -> Any:
    selector = LexicalRelevanceSelector()
    return await selector.select(**{"query": "which?", "pointers": [await save(at)]} | changes)


async def asked(
    at: Path, *messages: Any, status: int = 200, body: str = "{}", **config: Any
) -> Any:
    """Call a client whose endpoint returns this response."""
    transport = httpx.MockTransport(lambda _: httpx.Response(status, text=body))
    settings = LLMConfig(
        **{"base_url": "https://models.example/v1", "api_key": "sk-mine", "default_model": "small"}
        | config
    )
    async with OpenAICompatibleClient(settings, transport=transport) as client:
        return await client.chat_completion(
            [*messages] or [LLMMessage(role="user", content="Hello")]
        )


async def remembered(at: Path, method: str, *args: Any, **named: Any) -> Any:
    async with SqliteMemory(at / "memory.db") as memory:
        return await getattr(memory, method)(*args, **named)


async def stored_and_read(at: Path, **part: Any) -> Any:
    session = Session(at)
    offloaded = await session.offload("line\n" * 9_000, tool="read_log", args={})
    return await session.read(offloaded.pointer_id, **part)


def executor(at: Path, **changes: Any) -> AgenticExecutor:
    manager = ToolContextManager(at / "session")
    return AgenticExecutor(ScriptedClient([]), ToolRegistry(), manager, **changes)


async def run(at: Path, plan: Any) -> Any:
    return await executor(at).run("Is it snowing?", plan=plan)


def without_await() -> str:
    pending = registry().execute("weather", {"city": "Oslo"})
    try:
        return stable_json(pending)
    finally:
        pending.close()


def registry() -> ToolRegistry:
    def weather(city: str) -> str:
        """Report the weather."""
        return city

    return ToolRegistry([weather])


@dataclass(frozen=True)
class Mistake:
    """One mistake, and the error that it leads to."""

    name: str
    make: Callable[[Path], Any]
    error: type[Exception]
    text: str


MISTAKES = [
    Mistake(
        "a query id that leads out of the store",
        lambda at: save(at, query_id="../other"),
        InvalidIdError,
        "The query_id '../other' is not allowed. Use 1 to 200 of A-Z a-z 0-9 _ - . and, except "
        "at its ends, : / @ + = , and single spaces, without segments such as .. or nul. "
        "ToolContextManager.hash_query makes an id from any text",
    ),
    Mistake(
        "an empty query id",
        lambda at: save(at, query_id=""),
        InvalidIdError,
        "The query_id '' is not allowed. Use 1 to 200 of A-Z a-z 0-9 _ - . and, except at its "
        "ends, : / @ + = , and single spaces, without segments such as .. or nul. "
        "ToolContextManager.hash_query makes an id from any text",
    ),
    Mistake(
        "no query id",
        lambda at: save(at, query_id=None),
        InvalidIdError,
        "The query_id of type NoneType is not allowed. Use 1 to 200 of A-Z a-z 0-9 _ - . and, "
        "except at its ends, : / @ + = , and single spaces, without segments such as .. or nul. "
        "ToolContextManager.hash_query makes an id from any text",
    ),
    Mistake(
        "a question as the query id",
        lambda at: save(at, query_id="What is AAPL's revenue?\n"),
        InvalidIdError,
        'The query_id "What is AAPL\'s revenue?\\n" is not allowed. Use 1 to 200 of A-Z a-z 0-9 '
        "_ - . and, except at its ends, : / @ + = , and single spaces, without segments such as "
        ".. or nul. ToolContextManager.hash_query makes an id from any text",
    ),
    Mistake(
        "bytes as the task id",
        lambda at: save(at, task_id=b"x"),
        InvalidIdError,
        "task_id must be a str of at most 100,000 characters, got bytes",
    ),
    Mistake(
        "no tool name",
        lambda at: save(at, tool_name=None),
        InvalidIdError,
        "tool_name must be a str of at most 100,000 characters, got NoneType",
    ),
    Mistake(
        "no arguments",
        lambda at: save(at, args=None),
        UnserialisableError,
        "args must be a mapping, got NoneType. Pass names and values",
    ),
    Mistake(
        "a list of arguments",
        lambda at: save(at, args=["AAPL"]),
        UnserialisableError,
        "args must be a mapping, got list. Pass names and values",
    ),
    Mistake(
        "a number as the source",
        lambda at: save(at, source_urls=5),
        UnserialisableError,
        "source_urls must be a list, got int. Pass web addresses",
    ),
    Mistake(
        "one address as the sources",
        lambda at: save(at, source_urls="https://a.example"),
        UnserialisableError,
        "source_urls must be a list, got str. Pass web addresses",
    ),
    Mistake(
        "a lock as the result",
        lambda at: save(at, result=threading.Lock()),
        UnserialisableError,
        "A value of type lock has no JSON form; pass its data instead of the object",
    ),
    Mistake(
        "a generator as the result",
        lambda at: save(at, result=(each for each in "ab")),
        UnserialisableError,
        "A value of type generator has no JSON form; pass its data instead of the object",
    ),
    Mistake(
        "a negative lifetime",
        lambda at: save(at, ttl_s=-1),
        ValueError,
        "ttl_s must be above 0, got -1. To remove a result immediately, call delete()",
    ),
    Mistake(
        "a lifetime as text",
        lambda at: save(at, ttl_s="1h"),
        TypeError,
        "ttl_s must be a number, got str. Pass None for no limit",
    ),
    Mistake(
        "a result over the limit",
        lambda at: FileContextPointerStore(at, max_result_bytes=10).save(
            query_id="q", task_id=None, tool_name="t", args={}, result="x" * 100
        ),
        ResultTooLargeError,
        "The result exceeds 10 bytes; raise max_result_bytes or store less",
    ),
    Mistake(
        "a file where the store should be",
        lambda at: (at.joinpath("store").write_text(""), save(at))[1],
        StoreError,
        "The base of the store, {at}/store, is not a directory. Choose another base_dir",
    ),
    Mistake(
        "an unknown durability",
        lambda at: FileContextPointerStore(at, durability="none"),
        ValueError,
        'durability must be "full" or "rename", got \'none\'',
    ),
    Mistake(
        "no room for any result",
        lambda at: FileContextPointerStore(at, max_bytes_per_query=0),
        ValueError,
        "max_bytes_per_query must be above 0, got 0. Pass None for no limit",
    ),
    Mistake(
        "a pointer id for a pointer",
        lambda at: FileContextPointerStore(at).load_result(pointer="abcdefabcdef"),
        TypeError,
        "pointer must be a ContextPointer, got str. To load by id, call load_payload",
    ),
    Mistake(
        "a pointer of another store",
        lambda at: FileContextPointerStore(at).load_result(pointer=POINTER),
        PointerNotFoundError,
        "Nothing is stored under the pointer abcdefabcdef of query 'q'. Use a pointer from "
        "the store",
    ),
    Mistake(
        "a pointer whose id is a path",
        lambda at: FileContextPointerStore(at).load_result(
            pointer=POINTER.model_copy(update={"pointer_id": "../x"})
        ),
        UnsafePathError,
        "'../x' is not a pointer id. Use an id from the store: 12 to 16 lower-case hex digits",
    ),
    Mistake(
        "to pin what is not there",
        lambda at: FileContextPointerStore(at).pin(POINTER),
        PointerNotFoundError,
        "Nothing is stored under the pointer abcdefabcdef of query 'q'. Use a pointer from "
        "the store",
    ),
    Mistake(
        "ids where pointers are chosen",
        lambda at: chosen(at, pointers=["abcdefabcdef"]),
        TypeError,
        "pointers contains a str. Pass a list of ContextPointer, as store.list(query_id=...) "
        "returns it. ContextPointer.model_validate(...) turns a dict into a pointer",
    ),
    Mistake(
        "a store where pointers are chosen",
        lambda at: chosen(at, pointers=FileContextPointerStore(at)),
        TypeError,
        "pointers must be a list, got FileContextPointerStore. Pass a list of ContextPointer,"
        " as store.list(query_id=...) returns it. ContextPointer.model_validate(...) turns a "
        "dict into a pointer",
    ),
    Mistake(
        "no question",
        lambda at: chosen(at, query=None),
        TypeError,
        "query must be a str, got NoneType",
    ),
    Mistake(
        "a negative number of outputs",
        lambda at: LexicalRelevanceSelector(max_selected=-1),
        ValueError,
        "max_selected must be 0 or more, got -1",
    ),
    Mistake(
        "no client to choose outputs",
        lambda at: ContextRelevanceSelector(None),
        TypeError,
        "NoneType is not a client: it has no callable chat_completion; pass an LLMClient, "
        "such as llm_common.core.OpenAICompatibleClient.from_env()",
    ),
    Mistake(
        "a client of another dialect",
        lambda at: ToolSelector(AsyncOpenAI()),
        TypeError,
        "AsyncOpenAI is not a client: it has no callable chat_completion; wrap it: "
        'llm_common.clients.OpenAISDKClient(client, model="...")',
    ),
    Mistake(
        "an object that is not a client",
        lambda at: ToolSelector(object()),
        TypeError,
        "object is not a client: it has no callable chat_completion; pass an LLMClient, "
        "such as llm_common.core.OpenAICompatibleClient.from_env()",
    ),
    Mistake(
        "a setting that is misspelt",
        lambda at: ToolSelectionConfig(max_call=3),
        ValidationError,
        "1 validation error for ToolSelectionConfig\nmax_call\n  Extra inputs are not permitted "
        "[type=extra_forbidden, input_value=3, input_type=int]",
    ),
    Mistake(
        "no time at all",
        lambda at: ToolSelectionConfig(timeout_s=0),
        ValidationError,
        "1 validation error for ToolSelectionConfig\ntimeout_s\n  Input should be greater than "
        "or equal to 0.001 [type=greater_than_equal, input_value=0, input_type=int]",
    ),
    Mistake(
        "a text as the task",
        lambda at: ToolSelector(ScriptedClient([])).select_tool_calls(
            task="Find it", tool_registry=registry()
        ),
        TypeError,
        'task must be a PlannedTask, got str; pass PlannedTask(id=1, description="...")',
    ),
    Mistake(
        "functions as the registry of a run",
        lambda at: AgenticExecutor(ScriptedClient([]), [print], ToolContextManager(at)),
        TypeError,
        "tool_registry needs an async execute(), which list lacks; pass a ToolRegistry",
    ),
    Mistake(
        "ids to render",
        lambda at: format_selected_contexts(
            pointers=["abcdefabcdef"], store=FileContextPointerStore(at)
        ),
        TypeError,
        "pointers contains a str. Pass a list of ContextPointer, as store.list(query_id=...) "
        "returns it. ContextPointer.model_validate(...) turns a dict into a pointer",
    ),
    Mistake(
        "a folder to render from",
        lambda at: format_selected_contexts(pointers=[POINTER], store="store"),
        TypeError,
        "store must have a load_result method, which str lacks. Pass the store or the session"
        " of the results",
    ),
    Mistake(
        "negative room",
        lambda at: format_selected_contexts(
            pointers=[POINTER], store=FileContextPointerStore(at), max_chars=-1
        ),
        ValueError,
        "max_chars must be 0 or more, got -1",
    ),
    Mistake(
        "a number as a tool",
        lambda at: ToolRegistry([5]),
        ConfigError,
        "a int is not a tool; pass a function, a Tool, or an object with metadata and execute()",
    ),
    Mistake(
        "two tools of one name",
        lambda at: registry().register(lambda: None, name="weather"),
        ConfigError,
        "a tool called weather is registered already; choose another name, or unregister it first",
    ),
    Mistake(
        "a tool with any arguments",
        lambda at: ToolRegistry().tool(any_arguments),
        ConfigError,
        "any_arguments cannot become a tool: `*args: str` cannot be passed by name; annotate "
        "named parameters, or pass parameters= as a JSON Schema",
    ),
    Mistake(
        "an object that is not a schema",
        lambda at: ToolRegistry().register(print, name="show", parameters={"type": "obj"}),
        ConfigError,
        'the parameters of show are not a JSON Schema of an object; set its type to "object"',
    ),
    Mistake(
        "a tool name with a space",
        lambda at: ToolRegistry().register(registry, name="the weather"),
        ConfigError,
        "'the weather' cannot be the name of a tool, which has 1 to 64 letters, digits and the "
        "characters _ . -; pass Tool(function, name=...)",
    ),
    Mistake(
        "the config of a session as a dict",
        lambda at: Session(at, config={}),
        TypeError,
        "config must be a SessionConfig, got dict; pass SessionConfig(offload=..., fold=...)",
    ),
    Mistake(
        "an empty session id",
        lambda at: Session(at, session_id=""),
        InvalidIdError,
        "The session_id '' is not allowed. Use 1 to 200 of A-Z a-z 0-9 _ - . and, except at its "
        "ends, : / @ + = , and single spaces, without segments such as .. or nul",
    ),
    Mistake(
        "a policy of a session as a dict",
        lambda at: SessionConfig(offload={"max_preview_tokens": 200}),
        TypeError,
        "offload must be an OffloadPolicy, got dict",
    ),
    Mistake(
        "a number as the policy of folding",
        lambda at: SessionConfig(fold=8_000),
        TypeError,
        "fold must be a FoldPolicy or None, got int",
    ),
    Mistake(
        "a text as the messages of a call",
        lambda at: Session(at).offload([1], tool="list_orders", args={}, messages="Which?"),
        TypeError,
        "messages is a str; pass a list of messages, oldest first",
    ),
    Mistake(
        "the name of a tool in place of an id",
        lambda at: Session(at).read("list_orders"),
        PointerNotFoundError,
        "The id of a pointer has 12 to 16 lower-case hex digits; use one from a preview",
    ),
    Mistake(
        "lines that end before they begin",
        lambda at: stored_and_read(at, lines=(9, 3)),
        ToolArgumentsError,
        "the range is empty: its end must not be before its beginning",
    ),
    Mistake(
        "lines that are counted from zero",
        lambda at: stored_and_read(at, lines=(0, 3)),
        ToolArgumentsError,
        "lines must be the first and last line, from 1, such as [1, 20]",
    ),
    Mistake(
        "a session packed into nothing",
        lambda at: Session(at).pack("Which?", max_tokens=0),
        ValueError,
        "max_tokens is 0; pass 1 or more tokens",
    ),
    Mistake(
        "no query for the stored records",
        lambda at: Session(at).query(None),
        TypeError,
        "sql must be a SELECT as a str, got NoneType",
    ),
    Mistake(
        "no words for the search of a session",
        lambda at: Session(at).search(None),
        TypeError,
        "query must be a str, got NoneType; pass the words to find",
    ),
    Mistake(
        "an address where the folder of a store belongs",
        lambda at: Session("s3://bucket/prefix"),
        TypeError,
        "store is an address, and a str is the path of a folder; pass "
        "ObjectContextPointerStore.from_url(address)",
    ),
    Mistake(
        "a function as the counter of a session",
        lambda at: SessionConfig(counter=len),
        TypeError,
        "counter must be a TokenCounter, got builtin_function_or_method",
    ),
    Mistake(
        "one text where several are pinned",
        lambda at: SessionConfig(pinned="Use tabs."),
        TypeError,
        "pinned is a str, of which each letter would be pinned; pass a tuple",
    ),
    Mistake(
        "the arguments of a call as a text",
        lambda at: Session(at).offload([1], tool="list_orders", args="shop=7"),
        TypeError,
        "args must be the arguments of the call as a dict, got str",
    ),
    Mistake(
        "a function where its name belongs",
        lambda at: Session(at).offload([1], tool=print, args={}),
        TypeError,
        "tool must be the tool's name as a str, got builtin_function_or_method",
    ),
    Mistake(
        "an offloaded result in place of its id",
        lambda at: Session(at).read(
            Offloaded(pointer_id="a", tool_name="t", total_chars=1, text="")
        ),
        TypeError,
        "pointer_id must be a str, got Offloaded; pass its pointer_id",
    ),
    Mistake(
        "the coroutine of a forgotten await",
        lambda at: without_await(),
        UnserialisableError,
        "A value of type coroutine has no JSON form; await it",
    ),
    Mistake(
        "a tool that is nearly there",
        lambda at: registry().execute("wether", {"city": "Oslo"}),
        UnknownToolError,
        "no tool of that name; use one of the nearest: weather",
    ),
    Mistake(
        "an argument that is missing",
        lambda at: registry().execute("weather", {}),
        ToolArgumentsError,
        "weather was not run: city: missing. Correct these and call again",
    ),
    Mistake(
        "an argument of another type",
        lambda at: registry().execute("weather", {"city": 5}),
        ToolArgumentsError,
        "weather was not run: city: must be a valid string. Correct these and call again",
    ),
    Mistake(
        "no key",
        lambda at: OpenAICompatibleClient.from_env(),
        ConfigError,
        "no endpoint is configured; set ZAI_API_KEY, OPENROUTER_API_KEY or OPENAI_API_KEY, or "
        "LLM_COMMON_BASE_URL and LLM_COMMON_MODEL for your own server",
    ),
    Mistake(
        "a text that is not an address",
        lambda at: OpenAICompatibleClient(
            LLMConfig(base_url="models.example", default_model="small")
        ),
        ConfigError,
        "base_url must be an address such as https://host/v1; use https:// or http://, without "
        "user, query, fragment and `/chat/completions`",
    ),
    Mistake(
        "a setting of the client that is misspelt",
        lambda at: LLMConfig(
            base_url="https://models.example/v1", default_model="small", modle="small"
        ),
        ValidationError,
        "1 validation error for LLMConfig\nmodle\n  Extra inputs are not permitted "
        "[type=extra_forbidden]",
    ),
    Mistake(
        "a message as a text",
        lambda at: asked(at, "Hello"),
        TypeError,
        "messages[0] is a str; pass an LLMMessage, or a dict with `content` and a `role` of "
        "system, user, assistant, function, tool",
    ),
    Mistake(
        "a message without a role",
        lambda at: asked(at, {"content": "Hello"}),
        TypeError,
        "messages[0] has no usable role; pass an LLMMessage, or a dict with `content` and a "
        "`role` of system, user, assistant, function, tool",
    ),
    Mistake(
        "a model that the endpoint lacks",
        lambda at: asked(
            at, status=404, body='{"error": {"code": "model_not_found", "message": "no"}}'
        ),
        ModelNotFoundError,
        "model small at models.example: the endpoint has no such model or path (404); check "
        "model and base_url. The model was named by LLM_COMMON_MODEL or default_model. The endpoint wrote: "
        "no",
    ),
    Mistake(
        "a key that is refused",
        lambda at: asked(at, status=401),
        LLMAuthError,
        "model small at models.example: the endpoint refused the key (401); check the key "
        "and its permissions",
    ),
    Mistake(
        "an answer that is not JSON",
        lambda at: asked(at, body="<html>"),
        MalformedReplyError,
        "model small at models.example: the reply is not declared as JSON; check base_url, or "
        "use another model",
    ),
    Mistake(
        "a server that fails",
        lambda at: asked(at, status=400, body="bad"),
        LLMStatusError,
        "model small at models.example: the endpoint answered with an error (status 400); see "
        "`.body` for its text",
    ),
    Mistake(
        "a limit on dollars without a price",
        lambda at: asked(at, cost_limit_usd=0.01),
        CostLimitError,
        "model small at models.example: nothing was sent: cost_limit_usd is $0.01, and the price "
        "of this model is unknown; add it to LLMConfig.prices, or count the highest known "
        'price with unknown_price="dearest" or LLM_COMMON_UNKNOWN_PRICE=dearest',
    ),
    Mistake(
        "a closed client",
        lambda at: closed_client(),
        LLMConnectionError,
        "model small at models.example: this client is closed; make a new one",
    ),
    Mistake(
        "a request with a misspelt name",
        lambda at: ContextSelectionRequest(bugdet=1, intent=classify_intent("x"), token_budget=100),
        ValidationError,
        "1 validation error for ContextSelectionRequest\nbugdet\n  Extra inputs are not "
        "permitted [type=extra_forbidden, input_value=1, input_type=int]",
    ),
    Mistake(
        "a negative budget",
        lambda at: ContextSelectionRequest(intent=classify_intent("x"), token_budget=-5),
        ValidationError,
        "1 validation error for ContextSelectionRequest\ntoken_budget\n  Value error, "
        "token_budget is -5; give a whole number above 0 [type=value_error, input_value=-5, "
        "input_type=int]",
    ),
    Mistake(
        "a number as the intent",
        lambda at: ContextSelectionRequest(intent=5, token_budget=100),
        ValidationError,
        "1 validation error for ContextSelectionRequest\nintent\n  Input should be a valid "
        "dictionary or instance of UserIntent [type=model_type, input_value=5, input_type=int]",
    ),
    Mistake(
        "a blank session",
        lambda at: remembered(
            at, "append_event", " ", Event(role="user", text="Hello", timestamp=NOW)
        ),
        InvalidIdError,
        "the session id ' ' is not allowed; use 1 to 200 printable characters, not all blank",
    ),
    Mistake(
        "a number as an event",
        lambda at: remembered(at, "append_event", "s", 5),
        TypeError,
        "event must be an Event, got int; pass Event(role='user', text='…')",
    ),
    Mistake(
        "to remember without filters",
        lambda at: remembered(at, "retrieve", "Hello", 3),
        TypeError,
        "SqliteMemory.retrieve() missing 1 required positional argument: 'filters'",
    ),
    Mistake(
        "a text as the number of memories",
        lambda at: remembered(at, "retrieve", "Hello", "3", MemoryFilters(session_id="s")),
        TypeError,
        "k must be an int, got str",
    ),
    Mistake(
        "a closed memory", closed_memory, StoreError, "this memory is closed; make another one"
    ),
    Mistake(
        "a prompt larger than its budget",
        lambda at: fit(
            PromptBundle(
                system="Be kind. " * 300,
                instructions="Why?",
                budget=TokenBudget(max_input_tokens=50),
            )
        ),
        TokenBudgetError,
        "system text, question and tool schemas, which are never cut, take 914 tokens of 50; "
        "shorten them, or raise max_input_tokens to 914",
    ),
    Mistake(
        "a number as the plan",
        lambda at: run(at, 5),
        TypeError,
        "plan is of type int. Pass an ExecutionPlan, or a list of PlannedTask(id=..., "
        "description=...) or of descriptions",
    ),
    Mistake(
        "numbers as tasks",
        lambda at: run(at, [1, 2]),
        TypeError,
        "Task 1 is of type int. Pass an ExecutionPlan, or a list of PlannedTask(id=..., "
        "description=...) or of descriptions",
    ),
    Mistake(
        "no room for a preview",
        lambda at: OffloadPolicy(max_preview_tokens=-5),
        ValueError,
        "max_preview_tokens is -5; pass 0 or more tokens",
    ),
    Mistake(
        "neither client nor selector",
        lambda at: AgenticExecutor(None, registry(), ToolContextManager(at)),
        ValueError,
        "client and selector are both None; pass one of them",
    ),
    Mistake(
        "a folder as the store of a session",
        lambda at: ToolContextManager(at, pointer_store="store"),
        TypeError,
        "pointer_store must be a ContextPointerStore, got str; pass a folder as base_dir=, or a "
        "store from llm_common.agents, such as FileContextPointerStore(folder)",
    ),
    Mistake(
        "a number as the question of a folder",
        lambda at: pack_folder(None, [at]),
        ConfigError,
        "the question must be a str, got NoneType; pass the question that the text is for",
    ),
    Mistake(
        "a number as the intent",
        lambda at: classify_intent(None),
        TypeError,
        "text must be a str, got NoneType; pass the user's request",
    ),
    Mistake(
        "a number as the search of a history",
        lambda at: search_history(None, store=FileContextPointerStore(at), session_id="s"),
        TypeError,
        "query must be a str, got NoneType; pass the words to find",
    ),
    Mistake(
        "a number as a request",
        lambda at: ToolIndex(registry()).rank(None),
        TypeError,
        "a request must be a str, got NoneType",
    ),
    Mistake(
        "one text as steps of a plan",
        lambda at: ToolIndex(registry()).rank("x", sub_queries="first this"),
        TypeError,
        "sub_queries is a str; pass a list of texts",
    ),
    Mistake(
        "the text of a file as its tools",
        lambda at: read_definitions("[]"),
        ConfigError,
        "the document has no list of tools; pass a list of definitions, or an object with one "
        'under "tools", as json.loads makes it of a text',
    ),
    Mistake(
        "a folder and a store of a session",
        lambda at: ToolContextManager(at, pointer_store=FileContextPointerStore(at)),
        ValueError,
        "base_dir and pointer_store are both set, and only one can keep the results; pass one of them",
    ),
    Mistake(
        "numbers as contexts",
        lambda at: ToolContextManager(at).load_contexts([5]),
        TypeError,
        "pass a ContextPointer, as save_context returns it, its id or its result_path, not a int",
    ),
    Mistake(
        "a word for a number in the environment",
        lambda at: from_environment(
            "LLM_COMMON_TOOL_SELECTION_MAX_CALLS", "many", ToolSelectionConfig.from_env
        ),
        ConfigError,
        "LLM_COMMON_TOOL_SELECTION_MAX_CALLS is 'many'. Set it to a whole number from 1 to "
        "100, or unset it",
    ),
    Mistake(
        "an unknown provider",
        lambda at: from_environment("LLM_COMMON_PROVIDER", "acme", OpenAICompatibleClient.from_env),
        ConfigError,
        "LLM_COMMON_PROVIDER is not a known provider; use one of zai, openrouter, openai, local",
    ),
    Mistake(
        "a memory from the wrong module",
        lambda at: importlib.import_module("llm_common.agents").SqliteMemory,
        ImportError,
        "cannot import name 'SqliteMemory' from 'llm_common.agents'. Write: from "
        "llm_common.memory import SqliteMemory",
    ),
    Mistake(
        "an error from the wrong module",
        lambda at: importlib.import_module("llm_common.core").LLMError,
        ImportError,
        "cannot import name 'LLMError' from 'llm_common.core'. Write: from llm_common.errors "
        "import LLMError",
    ),
    Mistake(
        "a registry from the root",
        lambda at: importlib.import_module("llm_common").ToolRegistry,
        ImportError,
        "cannot import name 'ToolRegistry' from 'llm_common'. Write: from llm_common.agents "
        "import ToolRegistry",
    ),
    Mistake(
        "a definition as JSON in an index of tools",
        lambda at: ToolIndex(
            [{"name": "weather", "description": "The weather.", "parameters": {}}]
        ),
        TypeError,
        "a dict is not a tool; pass a Tool or a ToolDefinition; read_definitions of "
        "llm_common.tools makes these of JSON",
    ),
    Mistake(
        "a folder where the store of a fold belongs",
        lambda at: fold([], store="context", session_id="chat"),
        TypeError,
        "store is a str; pass a store, such as FileContextPointerStore(folder)",
    ),
    Mistake(
        "a folder where the store of a packing belongs",
        lambda at: ContextSelector(store="context"),
        TypeError,
        "store is a str; pass the store or the session that holds the outputs",
    ),
    Mistake(
        "a store where a reader loads",
        lambda at: ReadBackTool(FileContextPointerStore(at)),
        TypeError,
        "load is a FileContextPointerStore; pass the load_payload of a session or a store",
    ),
    Mistake(
        "a list where a pool belongs",
        lambda at: ContextSelector().select(
            ContextSelectionRequest(intent=classify_intent("Why?"), token_budget=4_000), []
        ),
        TypeError,
        "pool is a list; pass DataPoolSnapshot(session_log=…, context_files=…)",
    ),
    Mistake(
        "a name that a pool does not know",
        lambda at: DataPoolSnapshot(files=[]),
        ValidationError,
        "1 validation error for DataPoolSnapshot\nfiles\n  Extra inputs are not permitted "
        "[type=extra_forbidden, input_value=[], input_type=list]",
    ),
    Mistake(
        "a bucket without a scheme",
        lambda at: ObjectContextPointerStore.from_url("bucket/prefix"),
        StoreError,
        'The address "bucket/prefix" names no kind of store. Use an address that begins with '
        "s3://, gs:// or az://",
    ),
    Mistake(
        "a missing folder",
        lambda at: pack_folder("where?", at / "nowhere"),
        ConfigError,
        "{at}/nowhere does not exist or cannot be read; check the path",
    ),
    Mistake(
        "no budget to pack into",
        lambda at: pack_folder("where?", at, budget_tokens=0),
        ConfigError,
        "0 is not a valid budget; pass a whole number of tokens, at least 256",
    ),
    Mistake(
        "a text that is not a database address",
        lambda at: PostgresMemory("not a conninfo"),
        ConfigError,
        "conninfo is not a connection string; pass 'postgresql://user@host/name' or 'host=… "
        "dbname=… user=…' with libpq's parameter names",
    ),
]


async def result_of(mistake: Mistake, at: Path) -> Any:
    made = mistake.make(at)
    return await made if inspect.isawaitable(made) else made


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name.replace(" ", "-"))
async def test_an_error_names_the_mistake_and_the_way_out(mistake: Mistake, tmp_path: Path) -> None:
    with pytest.raises(mistake.error) as caught:
        await result_of(mistake, tmp_path)
    assert type(caught.value) is mistake.error
    text = re.sub(r"\n    For further information visit \S+", "", str(caught.value))
    assert text.replace(str(tmp_path), "{at}") == mistake.text
