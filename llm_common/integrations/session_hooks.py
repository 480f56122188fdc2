"""`SessionHooks`: the three pieces that every framework's hooks are made of: offload, choose, read back."""

import asyncio
import hashlib
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from cachetools import LRUCache

from llm_common._threads import in_thread
from llm_common.agents.offloading import Offloaded, OffloadPolicy, OffloadTurn
from llm_common.agents.tool_context import ToolContextManager
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.errors import InvalidIdError
from llm_common.history import FoldPolicy, fold, history_tools
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.save import checked_query_id
from llm_common.pointers.store import (
    ContextPointerStore,
    FileContextPointerStore,
    InMemoryContextPointerStore,
)
from llm_common.ranking.embeddings import Embedder
from llm_common.text.canonical import stable_json
from llm_common.tools.definitions import ToolDefinition
from llm_common.tools.tool import Tool
from llm_common.tools.tool_index import ToolIndex

T = TypeVar("T")

DEFAULT_FOLD: Final = FoldPolicy(limit_tokens=32_000)
"""Leaves half of a window of 64,000 tokens to instructions, tools and the answer."""

DEFAULT_TTL_S: Final = 86_400.0
"""A day: how long the store in memory keeps a result, so that a server does not grow for ever."""

_MAX_SESSION_BYTES: Final = 64_000_000
_GC_PAUSE_S: Final = 3_600.0
_MAX_TURNS: Final = 1_024
_MAX_CATALOGUES: Final = 16
_ITEMS: Final = "session_items"
_HASHED: Final = "hashed:"


class ToolFacts(NamedTuple):
    """What is read of a framework's tool to choose it."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class SessionHooks:
    """Offloads results, chooses tools, folds messages and reads back, for any number of sessions.

    A result of one session cannot be read or found in another. The asynchronous methods may run on
    several event loops; `run_sync` calls them from code that is not asynchronous. Framework modules
    take one as their only setting. A deep copy, as of an agent, is the same object: copies share
    the store.

    Args:
        store: A store or a session's manager, or a folder as its path; None keeps results in
            memory, for a day and up to 64 MB a session.
        policy: Which results stay whole, and the size of the previews.
        fold_policy: When a history is folded; None never folds. Its `reader_name` is taken from
            `policy`.
        tools_limit_tokens: Definitions of tools that take more are reduced to those that fit the
            request; None shows all.
        max_tools: Most tools of such a choice, besides those that are kept.
        embedder: Compares tools with the request by meaning too, such as `StaticVectors`.
        counter: Counts tokens; None takes the upper bound.

    Attributes:
        session_id: The session of calls for which the framework names none; new for each object.
        reader_name: The name of the tool that reads by id.
        tool_names: The names of the tools that read back; their results are never offloaded.

    Raises:
        StoreError: A folder needs POSIX.
        TypeError: `store` is something else.
    """

    def __init__(
        self,
        store: ContextPointerStore | ToolContextManager | Path | str | None = None,
        *,
        policy: OffloadPolicy | None = None,
        fold_policy: FoldPolicy | None = DEFAULT_FOLD,
        tools_limit_tokens: int | None = 4_000,
        max_tools: int = 20,
        embedder: Embedder | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self._manager = store if isinstance(store, ToolContextManager) else None
        self._expires = store is None
        self._store = self._manager.pointer_store if self._manager else _store_of(store)
        self._policy = policy or OffloadPolicy()
        names = {"reader_name": self._policy.reader_name}
        self._fold_policy = fold_policy and fold_policy.model_copy(update=names)
        self._search_name = (self._fold_policy or DEFAULT_FOLD).search_name
        self._tools_limit_tokens = tools_limit_tokens
        self._max_tools = max_tools
        self._embedder = embedder
        self._counter = counter or DefaultCounter()
        self._lock, self._indexing = threading.Lock(), threading.Lock()
        self._turns: LRUCache[tuple[str, str], OffloadTurn] = LRUCache(_MAX_TURNS)
        self._catalogues: LRUCache[tuple[str, ...], _Catalogue] = LRUCache(_MAX_CATALOGUES)
        self._next_gc_s = time.monotonic() + _GC_PAUSE_S
        self.session_id = (
            self._manager.session_id if self._manager else f"session_{secrets.token_hex(16)}"
        )
        self.reader_name = self._policy.reader_name
        self.tool_names = (self.reader_name, self._search_name)

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @property
    def store(self) -> ContextPointerStore:
        """The store underneath."""
        return self._store

    def session(self, framework_id: object = None) -> str:
        """The session as a query id of the store: the framework's own id where the store allows it, else a hash.

        Different ids give different sessions; a user who chooses an id cannot choose a hash.

        Args:
            framework_id: How the framework names the conversation, such as a text, or a tuple of
                application, user and id; None or "" takes `session_id`.
        """
        if framework_id is None or framework_id == "":
            return self.session_id
        if isinstance(framework_id, str) and not framework_id.startswith(_HASHED):
            with suppress(InvalidIdError):
                return checked_query_id(framework_id, self._store.redactor)
        return _HASHED + hashlib.sha256(repr(framework_id).encode()).hexdigest()[:32]

    async def offload(
        self,
        result: Any,
        *,
        tool_name: str,
        args: Mapping[str, Any],
        session_id: str,
        query: str = "",
        turn_id: str | None = None,
        calls: int = 1,
    ) -> Offloaded | None:
        """What replaces a result in the prompt, now that it is stored.

        None if the result stays as it is.
        Its `preview` is never empty.

        Args:
            result: What a tool returned: plain data, or a text, which may be JSON. Give no errors
                and no images.
            tool_name: The tool's name.
            args: The arguments of the call.
            session_id: From `session`.
            query: Decides which passages the preview shows: what the user said last.
            turn_id: Calls of one turn share its budget, such as the id of the message that made
                them; None: a turn of its own.
            calls: How many calls the turn has.

        Raises:
            StoreError: The result could not be stored; its subclasses say why.
        """
        if tool_name in self.tool_names:
            return None
        turn = self._turn(session_id, turn_id, query, calls)
        context = self._manager or ToolContextManager(
            pointer_store=self._store, persist_threshold=0
        )
        if await turn.keeps(tool_name, result):
            return None
        pointer = await context.save_context(tool_name, dict(args), result, query_id=session_id)
        shown = await turn.preview(pointer, await context.as_stored(result))
        await self._collect()
        if shown.text:
            return shown
        line = f"{shown.total_chars:,} characters are stored, none has been read; read them with {self.reader_name} "
        return shown.model_copy(update={"text": f"{line}and the id {shown.pointer_id}"})

    async def choose_tools(
        self,
        tools: Sequence[T],
        *,
        query: str,
        facts_of: Callable[[T], ToolFacts],
        keep: Collection[str] = (),
    ) -> list[T]:
        """The tools that the next call sees, in the order given; all of them if they fit.

        Else those that fit the request, best first while there is room, besides the kept ones; none
        besides those if no tool fits the request. Without a model; the first choice among the same
        tools takes some 0.2 ms a tool.

        Args:
            tools: The framework's tools.
            query: What the user said last.
            facts_of: Reads name, description and parameters of one.
            keep: Names that are always shown: those that the conversation has called. The tools
                that read back count among them.
        """
        if self._tools_limit_tokens is None:
            return [*tools]
        facts = [facts_of(tool) for tool in tools]
        shown = await in_thread(self._shown_tools, facts, query, keep, self._tools_limit_tokens)
        return [tool for tool, one in zip(tools, facts, strict=True) if one.name in shown]

    async def fold_messages(
        self,
        messages: Sequence[T],
        *,
        session_id: str,
        read: Callable[[T], Mapping[str, Any]],
        write: Callable[[T | None, str], T],
    ) -> list[T]:
        """The messages within the limit of `fold_policy`; see `llm_common.history.fold`.

        Messages that fit are returned as they are, the same objects. Give the whole history each
        time.

        Args:
            messages: The framework's messages, oldest first.
            session_id: From `session`.
            read: A message as a dict in the shape of OpenAI's chat completions.
            write: A copy of a message that says another text and keeps its images, or, for None, a
                message of the user that says it.

        Raises:
            TokenBudgetError: What is never folded is over the limit.
            StoreError: What is folded could not be stored; nothing may be sent then.
        """
        if self._fold_policy is None:
            return [*messages]
        given = [{**read(message), "number": number} for number, message in enumerate(messages, 1)]
        folded = await fold(
            given,
            store=self._store,
            session_id=session_id,
            policy=self._fold_policy,
            counter=self._counter,
        )
        await self._collect()
        unchanged = {id(one) for one in given}
        originals = [
            messages[one["number"] - 1] if "number" in one else None for one in folded.messages
        ]
        return [
            original
            if original is not None and id(one) in unchanged
            else write(original, _shown(one["content"]))
            for one, original in zip(folded.messages, originals, strict=True)
        ]

    def tools(self, session_id: str) -> tuple[Tool, Tool]:
        """`read_context` and `search_history` for one session: one reads by id, one finds by words."""
        return history_tools(
            self._store,
            session_id=session_id,
            reader_name=self.reader_name,
            search_name=self._search_name,
        )

    async def read_back(self, tool_name: str, args: Mapping[str, Any], *, session_id: str) -> str:
        """What one of `tools` answers, as a text for the model.

        Raises:
            ToolArgumentsError: The arguments do not fit; the message tells the model what to do.
            ToolFailedError: The result cannot be read; the message says why.
        """
        reader, search = self.tools(session_id)
        return str(await (search if tool_name == search.name else reader).run(args))

    def _turn(self, session_id: str, turn_id: str | None, query: str, calls: int) -> OffloadTurn:
        def begun() -> OffloadTurn:
            return OffloadTurn(self._policy, query=query, calls=calls, counter=self._counter)

        if turn_id is None:
            return begun()
        with self._lock:
            return self._turns.setdefault((session_id, turn_id), begun())

    def _shown_tools(
        self, facts: Sequence[ToolFacts], query: str, keep: Collection[str], limit_tokens: int
    ) -> Collection[str]:
        catalogue = self._catalogue(facts)
        if sum(catalogue.tokens.values()) <= limit_tokens:
            return catalogue.tokens
        shown = {one.name for one in facts} & {*keep, *self.tool_names}
        left = limit_tokens - sum(catalogue.tokens[name] for name in shown)
        ranked = [
            row.name for row in catalogue.ranking.rank(query, len(facts)) if row.name not in shown
        ]
        for name in ranked[: self._max_tools]:
            if catalogue.tokens[name] <= left:
                shown.add(name)
                left -= catalogue.tokens[name]
        return shown

    def _catalogue(self, facts: Sequence[ToolFacts]) -> "_Catalogue":
        """The index of these tools, made once."""
        definitions = tuple(stable_json(one._asdict()) for one in facts)
        with self._indexing:  # which may take seconds
            if definitions not in self._catalogues:
                tokens = {
                    one.name: self._counter.count(text)
                    for one, text in zip(facts, definitions, strict=True)
                }
                self._catalogues[definitions] = _Catalogue(
                    ToolIndex([ToolDefinition(*one) for one in facts], self._embedder), tokens
                )
            return self._catalogues[definitions]

    async def _collect(self) -> None:
        """Frees what has expired, once an hour; a store that was given is its owner's."""
        if self._expires and time.monotonic() > self._next_gc_s:
            self._next_gc_s = time.monotonic() + _GC_PAUSE_S
            await self._store.gc()


class StoredItems:
    """A conversation's items, in the order in which they were added.

    For sessions that a framework keeps in a store.
    What the hooks offload cannot be reached through them, nor they through the tools that read
    back. They do not expire with results. What two writers add at the same time is all kept, in
    either order.

    Args:
        hooks: Its store keeps them.
        session_id: How the framework names the conversation.
    """

    def __init__(self, hooks: SessionHooks, session_id: str) -> None:
        self._store = hooks.store
        self._query_id = hooks.session((_ITEMS, session_id))

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The newest items, oldest first, or all of them.

        Raises `StoreError` if one cannot be read.
        """
        items = [item for _, batch in await in_thread(self._batches) for item in batch]
        return items if limit is None else items[max(len(items) - limit, 0) :]

    async def add_items(self, items: list[Any]) -> None:
        """Adds plain data after the last item; raises `StoreError` if it cannot be stored."""
        if items:
            pointers = await in_thread(self._pointers)
            number = pointers[-1].args["batch"] + 1 if pointers else 1
            await self._save({"batch": number, "writer": secrets.token_hex(4)}, items)

    async def pop_item(self) -> Any:
        """The last item, which is removed; None without one. Raises as the methods above."""
        batches = await in_thread(self._batches)
        if not batches:
            return None
        pointer, items = batches[-1]
        if len(items) > 1:
            await self._save(pointer.args, items[:-1])
        else:
            ids = {pointer.pointer_id}
            await in_thread(
                self._store.delete, query_id=self._query_id, pointer_ids=ids, remember=False
            )
        return items[-1]

    async def clear_session(self) -> None:
        """Removes every item.

        Stored results stay. Raises `StoreError` if they cannot be removed.
        """
        await in_thread(self._store.delete, query_id=self._query_id, remember=False)

    def _pointers(self) -> list[ContextPointer]:
        """What `add_items` has stored, in its order."""
        pointers = self._store.list(query_id=self._query_id)
        return sorted(pointers, key=lambda one: (one.args["batch"], one.args["writer"]))

    def _batches(self) -> list[tuple[ContextPointer, list[Any]]]:
        return [(pointer, self._store.load_result(pointer=pointer)) for pointer in self._pointers()]

    async def _save(self, args: Mapping[str, Any], items: Sequence[Any]) -> None:
        await self._store.save(
            query_id=self._query_id,
            task_id=None,
            tool_name=_ITEMS,
            args=dict(args),
            result=[*items],
            ttl_s=math.inf,
        )


class _Catalogue(NamedTuple):
    """Tools that can be ranked, and the tokens of their definitions by name."""

    ranking: ToolIndex
    tokens: Mapping[str, int]


def _shown(content: Any) -> Any:
    """The content as `write` takes it: a text, or blocks of which some are outputs."""
    if isinstance(content, str) or any(block.get("type") == "tool_result" for block in content):
        return content
    return next(block["text"] for block in content if isinstance(block.get("text"), str))


def plain_text(content: object) -> str | None:
    """A tool's content as one text: a text, or blocks that are all text.

    None for anything else, such as an image.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or not content:
        return None
    texts = [block.get("text") if isinstance(block, Mapping) else block for block in content]
    return "\n".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else None


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns or raises, for a caller that is not asynchronous, also beside a running event loop.

    All such work of a process runs on one event loop, in a thread of its own.
    """
    done = asyncio.run_coroutine_threadsafe(work, _loop(os.getpid()))
    try:
        return done.result()
    except BaseException:  # the caller was interrupted, or the work failed and is done
        done.cancel()
        raise


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:  # noqa: ARG001 - a forked child has none of its parent's threads
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="llm-common-hooks", daemon=True).start()
    return loop


def _store_of(store: object) -> ContextPointerStore:
    if store is None:
        return InMemoryContextPointerStore(
            ttl_s=DEFAULT_TTL_S, max_bytes_per_query=_MAX_SESSION_BYTES
        )
    if isinstance(store, str | Path):
        return FileContextPointerStore(store)
    if isinstance(store, ContextPointerStore):
        return store
    raise TypeError(
        f"store is a {type(store).__name__}; pass a ContextPointerStore, a ToolContextManager or the path of a folder"
    )
