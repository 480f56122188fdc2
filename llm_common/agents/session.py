"""`Session`: one conversation, with its results behind pointers and its prompts within limits.

`Sessions` keeps a `Session` for each conversation of a door. `SessionResults` is what one of
them stored.
"""

import asyncio
import hashlib
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Self

from cachetools import LRUCache

from llm_common._threads import in_thread
from llm_common.agents.offloading import Offloaded, OffloadPolicy, OffloadTurn, text_of
from llm_common.context.bundle import ContextBundle
from llm_common.context.intent import classify_intent
from llm_common.context.request import (
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    MemorySnippet,
    TurnEntry,
)
from llm_common.context.selector import ContextSelector
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.errors import InvalidIdError, PointerNotFoundError
from llm_common.history.fold import fold
from llm_common.history.folding import HISTORY_TOOL, FoldPolicy
from llm_common.history.message_shapes import (
    Message,
    calls_of,
    last_question,
    newest_calls,
    newest_texts,
)
from llm_common.history.search import FoundMessage, search_messages
from llm_common.pointers.pointer import ContextPointer, checked_query_id
from llm_common.pointers.reading import ContextReading
from llm_common.pointers.store import (
    ContextPointerStore,
    FileContextPointerStore,
    InMemoryContextPointerStore,
)
from llm_common.ranking.embeddings import Embedder
from llm_common.redaction.redactor import Redactor
from llm_common.text.canonical import decode_json, encode_json
from llm_common.text.display import in_fence, one_line
from llm_common.tools.read_back import DEFAULT_MAX_TOKENS, ReadBackTool, read_context
from llm_common.tools.tool import Tool
from llm_common.tools.tool_shortlist import (
    DefinitionT,
    ToolIndexes,
    ToolShortlist,
    definition_of,
)

SEARCH_NAME: Final = "search_context"
FINDER_NAME: Final = "find_tools"

# Leaves half of a window of 64,000 tokens to instructions, tools and the answer.
_FOLD: Final = FoldPolicy(max_tokens=32_000)

_MAX_TURNS: Final = 64  # of one conversation at once: more than any framework runs side by side
_MAX_OVERVIEW_TOKENS: Final = 150
_LINE_CHARS: Final = 100
_WORDS: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "Words that were said or returned."}},
    "required": ["query"],
    "additionalProperties": False,
}
_TOOL_WORDS: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tool should do."}},
    "required": ["query"],
    "additionalProperties": False,
}
_MAX_FOUND_TOOLS: Final = 5

# "yes, do it" says nothing about the tool: two turns before it do. More messages add no tool to the
# dialogues and runs of benchmarks/quality_shortlist.py, and take longer.
_MAX_TEXTS: Final = 4
_MAX_TEXT_CHARS: Final = 1_500

_log = logging.getLogger(__name__)

DEFAULT_TTL_S: Final = 86_400.0
"""A day: how long a `ShortLivedStore` keeps a result, so that a server does not grow for ever."""

_MAX_SESSION_BYTES: Final = 64_000_000
_GC_PAUSE_S: Final = 3_600.0
_MAX_LIVE: Final = 1_024  # a session that is no longer live is made again from its store
_HASHED: Final = "hashed:"

_MAX_CACHED_BYTES: Final = 8_000_000
_ID: Final = re.compile(r"[0-9a-f]{12,16}")
# The tool name of the records that list a session's queries. No tool may have it.
_QUERY_OF_SESSION: Final = "(session query)"


@dataclass(frozen=True)
class SessionConfig:
    """What the sessions of an application share.

    Attributes:
        offload: Which results stay whole, and the size of the previews. Its `reader_name` is the
            name of the tool that reads back.
        fold: When a history is folded. None never folds. Its names are those of the session.
        max_tool_tokens: Maximum tokens of all tool definitions, above which `choose_tools` hides
            some. None shows all of them.
        tool_limit: Number of tools that the newest messages choose before tools shown earlier.
        max_read_tokens: Tokens of an answer to reading and searching.
        search_name: The name of the tool that searches.
        finder_name: The name of the tool that finds hidden tools.
        embedder: Compares tools with the request by meaning too, such as `StaticVectors`.
        counter: Counts tokens. The default is exact with the extra `tokens`, else an upper bound.
    """

    offload: OffloadPolicy = field(default_factory=OffloadPolicy)
    fold: FoldPolicy | None = _FOLD
    max_tool_tokens: int | None = 4_000
    tool_limit: int = 20
    max_read_tokens: int = DEFAULT_MAX_TOKENS
    search_name: str = SEARCH_NAME
    finder_name: str = FINDER_NAME
    embedder: Embedder | None = None
    counter: TokenCounter = field(default_factory=DefaultCounter)

    @cached_property
    def tool_indexes(self) -> ToolIndexes:
        """Return the indexes of tools, which sessions share because building one takes time."""
        return ToolIndexes(self.embedder, self.counter)

    @cached_property
    def named_fold(self) -> FoldPolicy | None:
        """`fold` with the names of the session's tools."""
        names = {"reader_name": self.offload.reader_name, "search_name": self.search_name}
        return self.fold and self.fold.model_copy(update=names)


class Session:
    """One conversation: its results behind pointers, its tools and its history within limits.

    A plain loop, where `ask` calls a model with messages and tools as chat completions have them:

        session = Session(session_id="user:42")
        tools = ToolRegistry([*own_tools, *session.tools()])
        while messages[-1]["role"] != "assistant":
            definitions = await session.choose_tools([*tools], messages=messages)
            reply = await ask(await session.fold(messages), definitions)
            messages.append(reply)
            for call in reply.get("tool_calls", ()):
                tool, args = call["function"]["name"], json.loads(call["function"]["arguments"])
                result = await tools.execute(tool, args)
                shown = await session.offload(result, tool=tool, args=args, messages=messages)
                output = {"role": "tool", "tool_call_id": call["id"], "content": str(shown)}
                messages.append(output)

    Results of one session cannot be read or found in another. A session on an old id sees what
    is stored under it. Calls may run concurrently, and on several event loops.

    Args:
        store: A store, or the folder of one. None takes the folder of `FileContextPointerStore`,
            `.llm-common/context`.
        session_id: Names the conversation, by the rules of a query id, so that a later process
            takes it up. None makes a new id.
        config: Limits and policies, which sessions share.
        persist_threshold: Bytes up to which a stored result also stays in memory, 8 MB in all.

    Attributes:
        config: As given.
        results: What the session stored. Getters of `ToolContextManager` read it.

    Raises:
        InvalidIdError: If `session_id` is not allowed.
        StoreError: If a folder is given on a system that is not POSIX.
        TypeError: If `store` is something else.
    """

    def __init__(
        self,
        store: ContextPointerStore | Path | str | None = None,
        *,
        session_id: str | None = None,
        config: SessionConfig | None = None,
        persist_threshold: int = 0,
    ) -> None:
        self.config: Final = config or SessionConfig()
        self.results: Final = SessionResults(
            store_of(store), session_id, persist_threshold=persist_threshold
        )
        self._turns: LRUCache[str, OffloadTurn] = LRUCache(_MAX_TURNS)
        self._shortlist = None
        if self.config.max_tool_tokens is not None:
            self._shortlist = ToolShortlist(
                self.config.tool_indexes,
                max_tokens=self.config.max_tool_tokens,
                limit=self.config.tool_limit,
            )
        self._lock = threading.Lock()

    @property
    def session_id(self) -> str:
        """The conversation's id, which names its folder in the store."""
        return self.results.session_id

    @property
    def store(self) -> ContextPointerStore:
        """Where the results are."""
        return self.results.store

    async def offload(
        self,
        result: Any,
        *,
        tool: str,
        args: Mapping[str, Any],
        query: str = "",
        turn: str | OffloadTurn | None = None,
        messages: Sequence[Message] | None = None,
        pointer: ContextPointer | None = None,
    ) -> Offloaded:
        """Return a result as the model sees it: whole, or stored and replaced by a preview.

        Args:
            result: What a tool returned: plain data, or a text, which may be JSON.
            tool: The tool's name. What this session's own tools return stays whole.
            args: The arguments of the call.
            query: Decides which passages a preview shows. Empty takes what the user said last
                in `messages`.
            turn: The turn's name, or the turn itself with its own policy, query and number of
                calls. The calls of a turn share one budget. None is a turn for this call alone.
            messages: The conversation up to the call. Its last message with calls tells how many
                calls share the turn.
            pointer: The pointer of a result that is stored already. None stores the result if it
                does not stay whole.

        Returns:
            The result, of which `str()` goes into the prompt. It is never empty for a result that
            this call stored.

        Raises:
            StoreError: If the result could not be stored. Its subclasses say why.
        """
        if not isinstance(turn, OffloadTurn):
            turn = self._turn(turn, query, messages or ())
        if isinstance(result, ContextReading):
            text, is_own = str(result), False  # the turn keeps it whole, and counts it
        else:
            text = await in_thread(text_of, result)
            is_own = pointer is None and tool in self.tool_names
        if is_own or await turn.keeps(tool, result, text=text):
            return Offloaded(pointer_id=None, tool_name=tool, total_chars=len(text), text=text)
        is_stored = pointer is not None
        if pointer is None:
            pointer = await self.results.save(result, tool=tool, args=dict(args))
        redacted = await self.store.as_stored(result)
        shown = await turn.preview(pointer, redacted, text=text if redacted is result else None)
        if shown.text or is_stored:
            return shown
        # The turn has no tokens left, but a model that is shown nothing cannot read on.
        line = (
            f"{shown.total_chars:,} characters are stored, none has been read; read them with "
            f"{self.config.offload.reader_name} and the id {shown.pointer_id}"
        )
        return shown.model_copy(update={"text": line})

    def _turn(self, turn: str | None, query: str, messages: Sequence[Message]) -> OffloadTurn:
        with self._lock:
            if turn is not None and turn in self._turns:
                return self._turns[turn]
            calls = 1
            if messages:
                query = query or last_question(messages)
                calls = max(len(newest_calls(messages)), 1)
            budget = OffloadTurn(
                self.config.offload, query=query, calls=calls, counter=self.config.counter
            )
            if turn is not None:
                self._turns[turn] = budget
            return budget

    async def read(
        self,
        pointer_id: str,
        *,
        path: str | None = None,
        lines: tuple[int, int] | None = None,
        chars: tuple[int, int] | None = None,
        pattern: str | None = None,
        cursor: str | None = None,
    ) -> ContextReading:
        """Return a piece of a stored result, or of a part of it, within `max_read_tokens`.

        Args:
            pointer_id: Which result.
            path: JSON pointer to a value, such as `/items/4321/name`.
            lines: First and last line, from 1.
            chars: First character, from 0, and the one after the last.
            pattern: Regular expression. Returns the places of its matches.
            cursor: From the piece before, with the same part. None starts at the beginning.

        Raises:
            PointerNotFoundError: If the session has no such result. `.reason` says why.
            ToolArgumentsError: If the part is not there, or the pattern or cursor cannot be used.
            StoreError: If the result cannot be loaded.
        """
        part = {"path": path, "lines": lines, "chars": chars, "regex": pattern}
        wanted = {name: value for name, value in part.items() if value is not None}
        return await read_context(
            pointer_id,
            load=self.results.load_payload,
            select=wanted or None,
            cursor=cursor,
            max_tokens=self.config.max_read_tokens,
            counter=self.config.counter,
        )

    async def search(self, words: str, *, limit: int = 10) -> tuple[FoundMessage, ...]:
        """Return the results and folded messages of the session that hold words, best first.

        Args:
            words: What to find.
            limit: How many findings.

        Raises:
            StoreError: If the store cannot be read.
        """
        return await in_thread(self._search, words, limit)

    def _search(self, words: str, limit: int) -> tuple[FoundMessage, ...]:
        pointers = self.results.list_all()
        return search_messages(
            words,
            self.store,
            query_ids={pointer.query_id for pointer in pointers},
            pointer_ids={pointer.pointer_id for pointer in pointers},
            limit=limit,
        )

    async def choose_tools(
        self,
        definitions: Sequence[DefinitionT],
        *,
        messages: Sequence[Message],
        keep: Collection[str] = (),
    ) -> list[DefinitionT]:
        """Return the tools that the next call sees, in the order given: all of them if they fit.

        If they do not fit, some are hidden, and the tool `find_tools` of `tools()` finds them.
        Shown are `keep`, the session's own tools, what the conversation called and what was found.
        The remaining tokens go to the tools that fit the last four messages best, then to those
        shown before, then to the others. Asks no model. The first choice among the same tools takes
        about 0.2 ms a tool.

        Args:
            definitions: Tools, or definitions as MCP, OpenAI or Anthropic spell them.
            messages: The conversation, oldest first.
            keep: Names of further tools that are always shown.

        Raises:
            ConfigError: If a definition has no name.
        """
        if self._shortlist is None:
            return list(definitions)
        return await in_thread(self._choose_tools, self._shortlist, definitions, messages, keep)

    def _choose_tools(
        self,
        shortlist: ToolShortlist,
        tools: Sequence[DefinitionT],
        messages: Sequence[Message],
        keep: Collection[str],
    ) -> list[DefinitionT]:
        by_name = {definition_of(tool).name: tool for tool in tools}
        finder = by_name.pop(self.config.finder_name, None)
        called = {call.name for call in calls_of(messages)}
        choice = shortlist.choose(
            [definition_of(tool) for tool in by_name.values()],
            texts=newest_texts(messages, _MAX_TEXTS, _MAX_TEXT_CHARS),
            keep={*keep, *called, *self.tool_names},
        )
        if choice.hidden:
            _log.info(
                "%d of %d tools are shown, %d tokens; %s finds the others",
                len(choice.names),
                choice.offered,
                choice.tokens,
                self.config.finder_name if finder is not None else "no tool",
            )
        names = {*choice.names}
        if choice.hidden and finder is not None:
            names.add(self.config.finder_name)
        return [tool for tool in tools if definition_of(tool).name in names]

    async def fold(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages to send, within the limit of the config's `fold`.

        What is not shown is stored, and `tools` find it again. Give the whole history each time.
        See `llm_common.history.fold`.

        Raises:
            TokenBudgetError: If what is never folded is over the limit.
            StoreError: If what is folded could not be stored. Nothing may be sent then.
        """
        if self.config.named_fold is None:
            return list(messages)
        folded = await fold(
            messages,
            store=self.store,
            session_id=self.session_id,
            policy=self.config.named_fold,
            counter=self.config.counter,
        )
        return list(folded.messages)

    async def pack(
        self,
        query: str,
        *,
        max_tokens: int,
        turns: Sequence[TurnEntry] = (),
        files: Sequence[ContextFile] = (),
        memories: Sequence[MemorySnippet] = (),
    ) -> ContextBundle:
        """Return what answers a question, of the session's results and of what is given with it.

        Args:
            query: The question.
            max_tokens: Never exceeded by the rendered bundle.
            turns: Turns of the conversation.
            files: Files that may be shown.
            memories: Memories that may be shown.

        Raises:
            StoreError: If the results cannot be listed.
            ValueError: If `max_tokens` is not above zero.
        """
        pointers = await in_thread(self.results.list_all)
        request = ContextSelectionRequest(
            intent=classify_intent(query), token_budget=max_tokens, counter=self.config.counter
        )
        pool = DataPoolSnapshot(
            session_log=tuple(turns),
            context_files=tuple(files),
            memory_hits=tuple(memories),
            tool_outputs=tuple(
                pointer for pointer in pointers if pointer.tool_name != HISTORY_TOOL
            ),
        )
        return await ContextSelector(store=self.results).select(request, pool)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Return the names of the session's own tools, whose results are never offloaded."""
        return (
            self.config.offload.reader_name,
            self.config.search_name,
            self.config.finder_name,
        )

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools for the model.

        One reads a result by its id, one finds words in results and folded messages. With
        `max_tool_tokens`, a third finds tools that `choose_tools` hides.

        Raises:
            ConfigError: If a name is not allowed.
        """
        if self._shortlist is None:
            return self.reader(), self._searcher()
        finder = Tool(
            self._find_tools,
            name=self.config.finder_name,
            description=(
                "Finds tools that are not in your list. Tools that it finds are in your list from "
                "the next step on, and you call them by their own names."
            ),
            parameters=_TOOL_WORDS,
            read_only=True,
        )
        return self.reader(), self._searcher(), finder

    def _searcher(self) -> Tool:
        return Tool(
            self._search_text,
            name=self.config.search_name,
            description=(
                "Finds words in all earlier messages and tool outputs of this conversation that "
                f"are not shown any more. Then read more with {self.config.offload.reader_name}."
            ),
            parameters=_WORDS,
            read_only=True,
        )

    def reader(self, name: str | None = None) -> ReadBackTool:
        """Return the tool that reads a result by its id.

        Args:
            name: The tool's name. None takes the config's `offload.reader_name`.

        Raises:
            ConfigError: If the name is not allowed.
        """
        return ReadBackTool(
            self.results.load_payload,
            name=name or self.config.offload.reader_name,
            max_tokens=self.config.max_read_tokens,
            counter=self.config.counter,
        )

    async def _search_text(self, query: str) -> str:
        findings = await self.search(query)
        if not findings:
            return "Nothing that is stored holds these words; try others."
        lines: list[str] = []
        for finding in findings:
            lines.append(finding.line)
            if self.config.counter.count(in_fence("\n".join(lines))) > self.config.max_read_tokens:
                lines.pop()
                break
        return in_fence("\n".join(lines))

    async def _find_tools(self, query: str) -> str:
        assert self._shortlist is not None  # without a limit, tools() has no finder
        found = await in_thread(self._shortlist.find, query, limit=_MAX_FOUND_TOOLS)
        if not found:
            return "No tool fits these words. Try other words, such as a verb and its object."
        lines = ["These tools are in your list from the next step on:"]
        for definition in found:
            lines.append(f"- {definition.name}: {one_line(definition.description, max_chars=200)}")
        return in_fence("\n".join(lines))

    def overview(self) -> str:
        """Return what is stored, newest first, in up to 150 tokens, for a prompt.

        Raises:
            StoreError: If the store cannot be read.
        """
        pointers = self.results.list_all()
        if not pointers:
            return "No results are stored."
        head = f"{len(pointers)} results are stored, newest first. {self.tool_names[0]} reads them."
        text = head
        lines: list[str] = []
        for pointer in reversed(pointers):
            lines.append(
                f"{pointer.pointer_id}: {one_line(pointer.summary, max_chars=_LINE_CHARS)}"
            )
            longer = f"{head}\n{in_fence(chr(10).join(lines))}"
            if self.config.counter.count(longer) > _MAX_OVERVIEW_TOKENS:
                break
            text = longer
        return text

    async def clear(self) -> None:
        """Remove everything that is stored under the session's id, and forget it; idempotent.

        Raises:
            StoreError: If some files could not be removed. Call again to retry.
        """
        await self.results.resume()
        await self.results.clear_files()
        self.results.forget()


def store_of(store: object) -> ContextPointerStore:
    """Return a store itself, or the one of a folder.

    Raises:
        TypeError: If `store` is something else.
        StoreError: If a folder is given on a system that is not POSIX.
    """
    if isinstance(store, ContextPointerStore):
        return store
    if store is None or isinstance(store, str | Path):
        return FileContextPointerStore(store)
    raise TypeError(
        f"store is a {type(store).__name__}; pass a ContextPointerStore or the path of a folder"
    )


class ShortLivedStore(InMemoryContextPointerStore):
    """Keeps results in memory for a day, up to 64 MB a session, and frees expired ones hourly."""

    def __init__(self) -> None:
        super().__init__(ttl_s=DEFAULT_TTL_S, max_bytes_per_query=_MAX_SESSION_BYTES)
        self._next_gc_s = time.monotonic() + _GC_PAUSE_S

    async def save(self, **call: Any) -> ContextPointer:
        """Store a result, as `ContextPointerStore.save` does."""
        pointer = await super().save(**call)
        if time.monotonic() > self._next_gc_s:
            self._next_gc_s = time.monotonic() + _GC_PAUSE_S
            await self.gc()
        return pointer


class Sessions:
    """One `Session` for each conversation of a framework, over one store with one config.

    A deep copy, as frameworks make of an agent, is the same object: copies share the store.

    Args:
        store: A store, or the folder of one. None keeps results in memory, for a day and up to
            64 MB a session.
        config: Limits and policies of all sessions.

    Attributes:
        config: As given.
        store: Where the results are.

    Raises:
        StoreError: If a folder is given on a system that is not POSIX.
        TypeError: If `store` is something else.
    """

    def __init__(
        self,
        store: ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
    ) -> None:
        self.config: Final = config or SessionConfig()
        # Without a name of the framework's, all conversations of this object are one session.
        unnamed = Session(
            ShortLivedStore() if store is None else store,
            session_id=f"session_{secrets.token_hex(16)}",
            config=self.config,
        )
        self.store: Final = unnamed.store
        self._unnamed = unnamed
        self._live: LRUCache[str, Session] = LRUCache(_MAX_LIVE)
        self._lock = threading.Lock()

    @classmethod
    def over(
        cls,
        store: "Sessions | ContextPointerStore | Path | str | None" = None,
        config: SessionConfig | None = None,
    ) -> "Sessions":
        """Return the sessions that are given, or new ones over a store."""
        return store if isinstance(store, Sessions) else cls(store, config)

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def get(self, conversation_id: object = None) -> Session:
        """Return the session of a conversation.

        Args:
            conversation_id: How the framework names the conversation, such as a text, or a tuple
                of application, user and id. None or "" is one session for all that have no name.
        """
        if conversation_id is None or conversation_id == "":
            return self._unnamed
        session_id = self.session_id_of(conversation_id)
        with self._lock:
            if session_id not in self._live:
                self._live[session_id] = Session(
                    self.store, session_id=session_id, config=self.config
                )
            return self._live[session_id]

    def session_id_of(self, conversation_id: object) -> str:
        """Return the framework's own id where the store allows it, else a hash of it.

        Names of sessions never collide: a hash is not accepted as a name.
        """
        if conversation_id is None or conversation_id == "":
            return self._unnamed.session_id
        if isinstance(conversation_id, str) and not conversation_id.startswith(_HASHED):
            with suppress(InvalidIdError):
                return checked_session_id(conversation_id, self.store.redactor)
        return _HASHED + hashlib.sha256(repr(conversation_id).encode()).hexdigest()[:32]


class SessionResults:
    """The pointers of one session over a store, in save order.

    A session with a given id outlives its process. The store records which queries belong to
    it, so that `resume` finds all of them in another process. Before a result is taken from
    memory the store is asked, so that nothing erased or expired is shown.

    Args:
        store: Keeps the results.
        session_id: Query id of what is saved without one. None makes a new id, which no other
            process knows.
        persist_threshold: Bytes up to which a stored result also stays in memory, 8 MB in all
            (LRU). 0 keeps none.

    Attributes:
        is_named: Whether the id was given, so that other processes can resume the session.

    Raises:
        InvalidIdError: If `session_id` is not allowed.
    """

    def __init__(
        self,
        store: ContextPointerStore,
        session_id: str | None = None,
        *,
        persist_threshold: int = 0,
    ) -> None:
        self.store: Final = store
        self.is_named: Final = session_id is not None
        if session_id is None:
            session_id = f"session_{secrets.token_hex(16)}"
        self.session_id: Final = checked_session_id(session_id, store.redactor)
        self.pointers: Final[dict[str, ContextPointer]] = {}
        """What the session saved or resumed, by id, in save order."""
        self._recorded = {self.session_id}
        self._stored: dict[str, set[str]] = {}  # ids by query: what clearing removes
        self._erased: set[str] = set()
        self._saving: set[asyncio.Task[ContextPointer]] = set()
        self._cache = ResultCache(max_item_bytes=persist_threshold, max_bytes=_MAX_CACHED_BYTES)

    async def save(
        self,
        result: Any,
        *,
        tool: str,
        args: dict[str, Any],
        task_id: str | int | None = None,
        query_id: str | None = None,
    ) -> ContextPointer:
        """Store a result and return its pointer.

        If the caller is cancelled, a save that has begun goes on. Clearing waits for it, and
        removes what it wrote.

        Raises:
            StoreError: If nothing was saved. Its subclasses say why.
        """
        query_id = self.session_id if query_id is None else query_id
        saving = asyncio.create_task(self._save(result, tool, args, task_id, query_id))
        # A cancelled caller forgets its save: without this set nobody would know what it wrote.
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)
        return await asyncio.shield(saving)

    async def _save(
        self,
        result: Any,
        tool: str,
        args: dict[str, Any],
        task_id: str | int | None,
        query_id: str,
    ) -> ContextPointer:
        if self.is_named and query_id not in self._recorded:
            # Before the result: a kill in between must not lose it.
            await self._record_query(query_id)
        pointer = await self.store.save(
            query_id=query_id,
            task_id=None if task_id is None else str(task_id),
            tool_name=tool,
            args=args,
            result=result,
            source_urls=_urls_named_by(result),
            keep_repeats=True,
        )
        self._keep(pointer)
        if pointer.expires_at is None and self._cache.takes(pointer.result_bytes):
            payload = encode_json(result).data
            # The result may have changed during the save.
            if hashlib.sha256(payload).hexdigest() == pointer.result_sha256:
                self._cache.put(_key(pointer), payload)
        return pointer

    async def _record_query(self, query_id: str) -> None:
        record = await self.store.save(
            query_id=self.session_id,
            task_id=None,
            tool_name=_QUERY_OF_SESSION,
            args={"query_id": list(query_id.encode())},  # as text it might be taken for a secret
            result=query_id,
        )
        self._keep_record(record)

    def _keep_record(self, record: ContextPointer) -> str:
        """Remember the query that a record names, and the record itself for clearing."""
        query_id = bytes(record.args["query_id"]).decode()
        self._recorded.add(query_id)
        self._stored.setdefault(self.session_id, set()).add(record.pointer_id)
        return query_id

    def _keep(self, pointer: ContextPointer) -> None:
        """Make a pointer the session's newest."""
        self.pointers.pop(pointer.pointer_id, None)
        self.pointers[pointer.pointer_id] = pointer
        self._stored.setdefault(pointer.query_id, set()).add(pointer.pointer_id)
        self._erased.discard(pointer.pointer_id)

    def list_query(self, query_id: str) -> list[ContextPointer]:
        """Return every stored pointer of a query, also of other sessions, oldest first.

        Raises:
            StoreError: If the query id is not allowed, or its folder cannot be read.
        """
        pointers = self.store.list(query_id=query_id)
        return [pointer for pointer in pointers if pointer.tool_name != _QUERY_OF_SESSION]

    def list_stored(self) -> list[ContextPointer]:
        """Return everything that is stored under the session's id, in any process, oldest first.

        Raises:
            StoreError: If a folder cannot be read.
        """
        stored = self.list_query(self.session_id)
        for record in self.store.list(query_id=self.session_id):
            if record.tool_name == _QUERY_OF_SESSION:
                stored += self.list_query(self._keep_record(record))
        return sorted(stored, key=attrgetter("created_at"))

    def list_all(self) -> list[ContextPointer]:
        """Return what is stored under the session's id or was saved elsewhere, oldest first."""
        stored = self.list_stored()
        elsewhere = [
            pointer for pointer in self.pointers.values() if pointer.query_id not in self._recorded
        ]
        return sorted([*stored, *elsewhere], key=attrgetter("created_at"))

    async def resume(self, query_id: str | None = None) -> list[ContextPointer]:
        """Take in the stored pointers of a query, or all of the session's, and return them.

        Raises:
            StoreError: If the query id is not allowed, or its folder cannot be read.
        """
        if query_id is None:
            pointers = await in_thread(self.list_stored)
        else:
            pointers = await in_thread(self.list_query, query_id)
        for pointer in pointers:
            self._keep(pointer)
        in_order = sorted(self.pointers.values(), key=attrgetter("created_at"))
        self.pointers.clear()
        self.pointers.update({pointer.pointer_id: pointer for pointer in in_order})
        return pointers

    def find(self, entry: object) -> ContextPointer | None:
        """Return the pointer itself, or the session's one with this id or path.

        Raises:
            TypeError: If `entry` is none of these.
        """
        if isinstance(entry, ContextPointer):
            return entry
        if not isinstance(entry, str | Path):
            kind = type(entry).__name__
            raise TypeError(
                "pass a ContextPointer, as save_context returns it, its id or its result_path, "
                f"not a {kind}"
            )
        path = os.fspath(entry)
        if path in self.pointers:
            return self.pointers[path]
        for pointer in self.pointers.values():
            if pointer.result_path == path:
                return pointer
        return None

    def load_result(self, *, pointer: ContextPointer | str) -> Any:
        """Return the result behind a pointer, or behind the id or path of one of this session's.

        Raises:
            PointerNotFoundError: If there is no such pointer, or its result is gone.
            StoreError: If the result cannot be read.
            TypeError: If `pointer` is something else.
        """
        known = self.find(pointer)
        if known is None:
            raise self._missing(pointer)
        cached = self._cached(known)
        return self.store.load_result(pointer=known) if cached is None else decode_json(cached)

    def load_payload(self, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Return a pointer of this session with its result as stored bytes.

        Raises:
            PointerNotFoundError: If the session has no such pointer, or its result is gone.
            StoreError: If the result cannot be read.
        """
        pointer = self.pointers.get(pointer_id)
        if pointer is None:
            return self._load_unlisted(pointer_id)
        cached = self._cached(pointer)
        if cached is None:
            return self.store.load_payload(pointer_id, query_id=pointer.query_id)
        return pointer, cached

    def _load_unlisted(self, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Load what was folded, or what the session stored in another process or before."""
        if pointer_id in self._erased or not _ID.fullmatch(pointer_id):
            raise self._missing(pointer_id)
        try:
            return self.store.load_payload(pointer_id, query_id=self.session_id)
        except PointerNotFoundError as exc:
            for pointer in self.list_stored():
                if pointer.pointer_id == pointer_id:
                    return self.store.load_payload(pointer_id, query_id=pointer.query_id)
            if exc.reason == "unknown":
                raise self._missing(pointer_id) from exc
            raise

    def _cached(self, pointer: ContextPointer) -> bytes | None:
        """Return the result in memory while the store has it too."""
        cached = self._cache.get(_key(pointer))
        # Another process may have erased, evicted or expired it.
        if cached is None or self.store.is_stored(
            query_id=pointer.query_id, pointer_id=pointer.pointer_id
        ):
            return cached
        self._cache.remove(_key(pointer))
        return None

    def _missing(self, entry: object) -> PointerNotFoundError:
        is_id = isinstance(entry, str) and _ID.fullmatch(entry)
        named = f"pointer {entry}" if is_id else "such pointer"
        return PointerNotFoundError(
            f"This session has no {named}; use an id that it gave",
            reason="erased" if entry in self._erased else "unknown",
        )

    def forget(self) -> None:
        """Remove pointers and results from memory. Files can still be cleared."""
        self.pointers.clear()
        self._cache.clear()

    async def clear_files(self) -> None:
        """Remove what this session saved or resumed from the store; idempotent.

        Raises:
            StoreError: If some files could not be removed. Call again to retry.
        """
        if self._saving:
            await asyncio.wait(self._saving)
        self._cache.clear()
        # Also if the rest fails: a later save records its query again.
        self._recorded = {self.session_id}
        for query_id in list(self._stored):
            removed = frozenset(self._stored[query_id])
            # No tombstones: the session itself records what it erased.
            await in_thread(
                self.store.delete, query_id=query_id, pointer_ids=removed, remember=False
            )
            self._erased |= removed
            self._stored[query_id] -= removed


def checked_session_id(session_id: str, redactor: Redactor) -> str:
    """Return a session's id if the store takes it.

    Raises:
        InvalidIdError: If it does not.
    """
    # The ids of the session's queries are longer than its own, and must be allowed too.
    checked_query_id(f"{session_id}/q_{'0' * 16}", redactor)
    return session_id


class ResultCache:
    """Results as bytes by query and pointer id. LRU, safe among threads.

    Args:
        max_item_bytes: Longer results are not kept.
        max_bytes: Limit of all together.
    """

    def __init__(self, *, max_item_bytes: int, max_bytes: int) -> None:
        self._max_item_bytes = min(max_item_bytes, max_bytes)
        self._results: LRUCache[tuple[str, str], bytes] = LRUCache(max_bytes, getsizeof=len)
        self._lock = threading.Lock()

    def takes(self, size: int | None) -> bool:
        """Return whether a result of that many bytes would be kept."""
        return size is not None and size <= self._max_item_bytes

    def put(self, key: tuple[str, str], payload: bytes) -> None:
        """Replace the result of a key. One that is too long is only removed."""
        with self._lock:
            self._results.pop(key, None)
            if self.takes(len(payload)):
                self._results[key] = payload

    def get(self, key: tuple[str, str]) -> bytes | None:
        """Return the result of a key, or None."""
        with self._lock:
            return self._results.get(key)

    def remove(self, key: tuple[str, str]) -> None:
        """Remove the result of a key, if there is one."""
        with self._lock:
            self._results.pop(key, None)

    def clear(self) -> None:
        """Remove every result."""
        with self._lock:
            self._results.clear()

    def __len__(self) -> int:
        return len(self._results)


def _key(pointer: ContextPointer) -> tuple[str, str]:
    return pointer.query_id, pointer.pointer_id


def _urls_named_by(result: Any) -> Sequence[str]:
    """Return the URLs that a dict lists under `url` and `sources`.

    The store itself reads `source_urls`.
    """
    if not isinstance(result, dict):
        return []
    entries: list[Any] = [result]
    if isinstance(result.get("sources"), list):
        entries += result["sources"]
    urls = [entry.get("url") for entry in entries if isinstance(entry, dict)]
    return [url for url in urls if isinstance(url, str)]
