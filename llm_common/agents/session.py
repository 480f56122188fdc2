"""`Session`: one conversation, with its results behind pointers and its prompts within limits.

`Sessions` has a `Session` for each conversation of a framework or server. `SessionResults` has the
pointers of one session.
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
_MAX_OVERVIEW_TOKENS: Final = 150  # small enough for every prompt of a conversation
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
"""A day: how long a `ShortLivedStore` keeps a result, so that a server's memory stays bounded."""

# A server has many sessions in memory, and looks at all of their results to free expired ones.
_MAX_SESSION_BYTES: Final = 64_000_000
_GC_PAUSE_S: Final = 3_600.0
_MAX_LIVE: Final = 1_024  # an evicted session is created again over the same store
_HASHED: Final = "hashed:"

_MAX_CACHED_BYTES: Final = 8_000_000
# Checked before the store is asked, so that a model's invention never becomes a path.
_ID: Final = re.compile(r"[0-9a-f]{12,16}")
# The tool name of the records that list a session's queries. No tool may have it.
_QUERY_OF_SESSION: Final = "(session query)"


@dataclass(frozen=True)
class SessionConfig:
    """Limits and policies, which the sessions of an application share.

    Attributes:
        offload: Which results stay whole, and the size of the previews. Its `reader_name` is the
            name of the tool that reads back.
        fold: When a history is folded. None never folds. The session sets the names of its tools.
        max_tool_tokens: Maximum tokens of all tool definitions, above which `choose_tools` hides
            some. None always shows all tools.
        tool_limit: Number of tools that the newest messages choose before tools shown earlier.
        max_read_tokens: Maximum tokens of an answer of the tools that read and search.
        search_name: The name of the tool that searches.
        finder_name: The name of the tool that finds hidden tools.
        embedder: Also compares tools with the request by meaning, such as `StaticVectors`.
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

    # `cached_property` writes to `__dict__`, so it works in a frozen dataclass without slots.
    @cached_property
    def tool_indexes(self) -> ToolIndexes:
        """Return the indexes of tools, which sessions share because building one takes time."""
        return ToolIndexes(self.embedder, self.counter)

    @cached_property
    def named_fold(self) -> FoldPolicy | None:
        """Return `fold` with the names of the session's tools."""
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

    A session cannot read or find the results of another one. A session with an old id has all
    results that are stored under this id. Calls may run concurrently, and on several event loops.

    Args:
        store: A store, or the folder of a file store. None takes the default folder of
            `FileContextPointerStore`, `.llm-common/context`.
        session_id: The conversation's id, by the rules of a query id. Another process can continue
            the conversation by this id. None creates a random id.
        config: Limits and policies. None takes the defaults.
        persist_threshold: Maximum bytes of a stored result that also stays in memory, 8 MB in all.

    Attributes:
        config: The limits and policies.
        results: The session's pointers and results, which `ToolContextManager` lists.

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
        # A framework does not say when a turn ends, so only the oldest turns are dropped.
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
        """Return the conversation's id, which is also its query id in the store."""
        return self.results.session_id

    @property
    def store(self) -> ContextPointerStore:
        """Return the store of the results."""
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
            result: The tool's result: plain data, or a text, which may be JSON.
            tool: The tool's name. Results of this session's own tools stay whole.
            args: The arguments of the call.
            query: The question that decides which passages a preview shows. An empty one takes the
                user's newest text in `messages`.
            turn: The turn's name, or the turn itself with its own policy, query and number of
                calls. The calls of a turn share one budget. None is a turn for this call alone.
            messages: The conversation up to the call. Its last message with calls tells how many
                calls share the turn.
            pointer: The pointer of a result that is stored already. None stores the result if it
                does not stay whole.

        Returns:
            The result, whose `str()` is for the prompt. It is never empty for a result that this
            call stored.

        Raises:
            StoreError: If the result could not be stored. Its subclasses name the reason.
        """
        if not isinstance(turn, OffloadTurn):
            turn = self._turn(turn, query, messages or ())
        if isinstance(result, ContextReading):
            text, is_own = str(result), False  # the turn keeps it whole, but counts its tokens
        else:
            # In a thread, since encoding megabytes would block the event loop.
            text = await in_thread(text_of, result)
            # The session's tools limit their outputs already.
            is_own = pointer is None and tool in self.tool_names
        if is_own or await turn.keeps(tool, result, text=text):
            return Offloaded(pointer_id=None, tool_name=tool, total_chars=len(text), text=text)
        is_stored = pointer is not None
        if pointer is None:
            pointer = await self.results.save(result, tool=tool, args=dict(args))
        # A model must not see a secret that the store removes.
        redacted = await self.store.as_stored(result)
        preview = await turn.preview(pointer, redacted, text=text if redacted is result else None)
        if preview.text or is_stored:
            return preview
        # The turn has no tokens left, but a model needs the id at least to read the result.
        line = (
            f"{preview.total_chars:,} characters are stored, none has been read; read them with "
            f"{self.config.offload.reader_name} and the id {preview.pointer_id}"
        )
        return preview.model_copy(update={"text": line})

    def _turn(self, name: str | None, query: str, messages: Sequence[Message]) -> OffloadTurn:
        """Return the turn of a name, or a new one."""
        # Frameworks run the calls of a turn in threads too, and they must share one budget.
        with self._lock:
            if name is not None and name in self._turns:
                return self._turns[name]
            calls = 1
            if messages:
                query = query or last_question(messages)
                calls = max(len(newest_calls(messages)), 1)
            turn = OffloadTurn(
                self.config.offload, query=query, calls=calls, counter=self.config.counter
            )
            if name is not None:
                self._turns[name] = turn
            return turn

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
            pointer_id: The id of the result.
            path: JSON pointer to a value, such as `/items/4321/name`.
            lines: First and last line, from 1.
            chars: Index of the first character, from 0, and of the end.
            pattern: Regular expression, whose matches are returned with the text around them.
            cursor: The cursor of the previous piece, with the same part. None reads the first.

        Raises:
            PointerNotFoundError: If the session has no such result. `.reason` says why.
            ToolArgumentsError: If the part is missing, or the pattern or cursor is not valid.
            StoreError: If the result cannot be loaded.
        """
        part = {"path": path, "lines": lines, "chars": chars, "regex": pattern}
        selected = {name: value for name, value in part.items() if value is not None}
        return await read_context(
            pointer_id,
            load=self.results.load_payload,
            select=selected or None,
            cursor=cursor,
            max_tokens=self.config.max_read_tokens,
            counter=self.config.counter,
        )

    async def search(self, words: str, *, limit: int = 10) -> tuple[FoundMessage, ...]:
        """Return the results and folded messages that share words with a query, best first.

        Args:
            words: The words to find.
            limit: Maximum number of matches.

        Raises:
            StoreError: If the store cannot be read.
        """
        return await in_thread(self._search, words, limit)

    def _search(self, words: str, limit: int) -> tuple[FoundMessage, ...]:
        # Sessions without a name may share query ids, so the pointers are named as well.
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
        """Return the tools for the next model call, in their order.

        If they do not fit, some are hidden, and the tool `find_tools` of `tools()` finds them. The
        session always shows `keep`, its own tools, the tools that the conversation has called, and
        those that `find_tools` found. The remaining tokens go to the tools that fit the last four
        messages best, then to tools shown before, then to the remaining tools. No model is called.
        The first choice among the same tools takes about 0.2 ms a tool.

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
        # The finder is shown only beside hidden tools, so it does not compete with the others.
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

        Folded messages are stored, and the session's tools find them. Pass the whole history each
        time. See `llm_common.history.fold`.

        Raises:
            TokenBudgetError: If the messages that are never folded exceed the limit.
            StoreError: If the folded messages could not be stored. Do not send anything then.
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
        """Select from the session's results, and from further items, what answers a question.

        Args:
            query: The question.
            max_tokens: Maximum tokens of the rendered bundle.
            turns: Turns of the conversation.
            files: Files to choose from.
            memories: Memories to choose from.

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
            # Folded messages are left out: the caller passes `turns`.
            tool_outputs=tuple(
                pointer for pointer in pointers if pointer.tool_name != HISTORY_TOOL
            ),
        )
        return await ContextSelector(store=self.results).select(request, pool)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Return the names of the session's tools, whose results are never offloaded."""
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
                f"are not shown any more. Read more of a match with "
                f"{self.config.offload.reader_name}."
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
        matches = await self.search(query)
        if not matches:
            return "No stored result or message contains these words; try others."
        lines: list[str] = []
        for match in matches:
            lines.append(match.line)
            # Counted with its fence, since the model gets both.
            if self.config.counter.count(in_fence("\n".join(lines))) > self.config.max_read_tokens:
                lines.pop()
                break
        return in_fence("\n".join(lines))

    async def _find_tools(self, query: str) -> str:
        assert self._shortlist is not None  # without a limit, tools() has no finder
        definitions = await in_thread(self._shortlist.find, query, limit=_MAX_FOUND_TOOLS)
        if not definitions:
            return "No tool fits these words. Try other words, such as a verb and its object."
        lines = ["These tools are in your list from the next step on:"]
        for definition in definitions:
            lines.append(f"- {definition.name}: {one_line(definition.description, max_chars=200)}")
        return in_fence("\n".join(lines))

    def overview(self) -> str:
        """Return a list of the stored results for a prompt, newest first, in up to 150 tokens.

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
        """Remove everything that is stored under the session's id. Idempotent.

        Raises:
            StoreError: If some files could not be removed. Call again to retry.
        """
        # Other processes may have stored results under the session's id, which go as well.
        await self.results.resume()
        await self.results.clear_files()
        self.results.forget()


def store_of(store: object) -> ContextPointerStore:
    """Return the store, or a file store over a folder.

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
    """Keeps results in memory for a day, up to 64 MB a session. Removes expired ones hourly."""

    def __init__(self) -> None:
        super().__init__(ttl_s=DEFAULT_TTL_S, max_bytes_per_query=_MAX_SESSION_BYTES)
        self._next_gc_s = time.monotonic() + _GC_PAUSE_S

    async def save(self, **call: Any) -> ContextPointer:
        """Store a result as `ContextPointerStore.save` does, and collect garbage once an hour."""
        pointer = await super().save(**call)
        if time.monotonic() > self._next_gc_s:
            # Set before the await, so that a concurrent save does not collect as well.
            self._next_gc_s = time.monotonic() + _GC_PAUSE_S
            await self.gc()
        return pointer


class Sessions:
    """The sessions of a framework's conversations, over one store with one config.

    Frameworks copy their agents deeply. A deep copy of this object is the object itself, so the
    copies share the store.

    Args:
        store: A store, or the folder of a file store. None keeps results in memory, for a day and
            up to 64 MB a session.
        config: Limits and policies of all sessions. None takes the defaults.

    Attributes:
        config: The limits and policies.
        store: The store of the results.

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
        # Some frameworks do not name their conversations. These share one session.
        # Its id is random, so that two processes over one store have different ones.
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
        """Return `store` itself if it is a `Sessions`, or new sessions over a store."""
        return store if isinstance(store, Sessions) else cls(store, config)

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def get(self, conversation_id: object = None) -> Session:
        """Return the session of a conversation.

        Args:
            conversation_id: The framework's name of the conversation, such as a text, or a tuple
                of application, user and id. All conversations with None or "" share one session.
        """
        if conversation_id is None or conversation_id == "":
            return self._unnamed
        session_id = self.session_id_of(conversation_id)
        # Two threads of a framework must get the same session, with the same turns.
        with self._lock:
            if session_id not in self._live:
                self._live[session_id] = Session(
                    self.store, session_id=session_id, config=self.config
                )
            return self._live[session_id]

    def session_id_of(self, conversation_id: object) -> str:
        """Return the framework's id where the store allows it, else a hash of it.

        Session ids never collide, since the prefix of a hash is not accepted in an id.
        """
        if conversation_id is None or conversation_id == "":
            return self._unnamed.session_id
        if isinstance(conversation_id, str) and not conversation_id.startswith(_HASHED):
            with suppress(InvalidIdError):
                return checked_session_id(conversation_id, self.store.redactor)
        # `repr` tells a tuple from a text that looks like it, and escapes lone surrogates.
        return _HASHED + hashlib.sha256(repr(conversation_id).encode()).hexdigest()[:32]


class SessionResults:
    """The pointers of one session over a store, in save order.

    A session with a `session_id` outlives its process. The store records its queries, so that
    `resume` finds all of them in another process. Results in memory are returned only while the
    store has them too, so nothing erased or expired is returned.

    Args:
        store: Keeps the results.
        session_id: The query id of results that are saved without one. None creates a random id.
        persist_threshold: Maximum bytes of a stored result that also stays in memory, 8 MB in all
            (LRU). 0 keeps none.

    Attributes:
        is_named: Whether the caller chose the id, so that other processes can resume the session.

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
        """The saved and resumed pointers by id, in save order."""
        self._recorded = {self.session_id}
        self._stored: dict[str, set[str]] = {}  # the ids that `clear_files` removes, by query
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

        Cancelling the caller does not stop a save that has begun. `clear_files` waits for the save,
        and removes its files.

        Raises:
            StoreError: If nothing was saved. Its subclasses name the reason.
        """
        if query_id is None:
            query_id = self.session_id
        if task_id is not None:
            task_id = str(task_id)
        saving = asyncio.create_task(self._save(result, tool, args, task_id, query_id))
        # The event loop has only weak references to tasks, and `clear_files` has to wait for them.
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)
        # A thread cannot be cancelled, and `_keep` has to list the files that it still writes.
        return await asyncio.shield(saving)

    async def _save(
        self,
        result: Any,
        tool: str,
        args: dict[str, Any],
        task_id: str | None,
        query_id: str,
    ) -> ContextPointer:
        if self.is_named and query_id not in self._recorded:
            # Before the result, which a kill in between would leave without a record.
            await self._record_query(query_id)
        pointer = await self.store.save(
            query_id=query_id,
            task_id=task_id,
            tool_name=tool,
            args=args,
            result=result,
            source_urls=_urls_named_by(result),
            keep_repeats=True,
        )
        self._keep(pointer)
        if pointer.expires_at is None and self._cache.takes(pointer.result_bytes):
            # As bytes, since the caller may change the result later.
            payload = encode_json(result).data
            # The result may have changed during the save, or the store has redacted it.
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
        """Add the query of a record to the session's queries, and return its id."""
        query_id = bytes(record.args["query_id"]).decode()
        self._recorded.add(query_id)
        self._stored.setdefault(self.session_id, set()).add(record.pointer_id)
        return query_id

    def _keep(self, pointer: ContextPointer) -> None:
        """Make a pointer the session's newest."""
        # A dict leaves an existing key in its old place.
        self.pointers.pop(pointer.pointer_id, None)
        self.pointers[pointer.pointer_id] = pointer
        self._stored.setdefault(pointer.query_id, set()).add(pointer.pointer_id)
        # A repeated call has the id of its erased result again.
        self._erased.discard(pointer.pointer_id)

    def list_query(self, query_id: str) -> list[ContextPointer]:
        """Return every stored pointer of a query, also from other sessions, oldest first.

        Raises:
            StoreError: If the query id is not allowed, or its folder cannot be read.
        """
        pointers = self.store.list(query_id=query_id)
        return [pointer for pointer in pointers if pointer.tool_name != _QUERY_OF_SESSION]

    def list_stored(self) -> list[ContextPointer]:
        """Return every pointer that any process stored under the session's id, oldest first.

        Raises:
            StoreError: If a folder cannot be read.
        """
        stored = self.list_query(self.session_id)
        for record in self.store.list(query_id=self.session_id):
            if record.tool_name == _QUERY_OF_SESSION:
                stored += self.list_query(self._keep_record(record))
        return sorted(stored, key=attrgetter("created_at"))

    def list_all(self) -> list[ContextPointer]:
        """Return the pointers under the session's id and those of its other queries, oldest first.

        Raises:
            StoreError: If a folder cannot be read.
        """
        pointers = self.list_stored()
        for pointer in self.pointers.values():
            # An unnamed session records no queries, so memory alone knows these pointers.
            if pointer.query_id not in self._recorded:
                pointers.append(pointer)
        return sorted(pointers, key=attrgetter("created_at"))

    async def resume(self, query_id: str | None = None) -> list[ContextPointer]:
        """Add the stored pointers of a query, or all of the session's, and return them.

        Raises:
            StoreError: If the query id is not allowed, or its folder cannot be read.
        """
        if query_id is None:
            pointers = await in_thread(self.list_stored)
        else:
            pointers = await in_thread(self.list_query, query_id)
        for pointer in pointers:
            self._keep(pointer)
        # Another process may have saved between two saves of this one.
        in_order = sorted(self.pointers.values(), key=attrgetter("created_at"))
        self.pointers.clear()
        self.pointers.update({pointer.pointer_id: pointer for pointer in in_order})
        return pointers

    def find(self, entry: object) -> ContextPointer | None:
        """Return the pointer itself, or the session's pointer with this id or path, or None.

        Raises:
            TypeError: If `entry` is neither a pointer nor a text or path.
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
        """Return the result of a pointer, or of the session's pointer with this id or path.

        Raises:
            PointerNotFoundError: If there is no such pointer, or its result is gone.
            StoreError: If the result cannot be read.
            TypeError: If `pointer` is something else.
        """
        match = self.find(pointer)
        if match is None:
            raise self._missing(pointer)
        cached = self._cached(match)
        return self.store.load_result(pointer=match) if cached is None else decode_json(cached)

    def load_payload(self, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Return a pointer of this session with the bytes of its result.

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
        """Load a folded part, or a result that another process of the session stored."""
        if pointer_id in self._erased or not _ID.fullmatch(pointer_id):
            raise self._missing(pointer_id)
        try:
            return self.store.load_payload(pointer_id, query_id=self.session_id)
        except PointerNotFoundError as exc:
            # Not under the session's id itself, but maybe under one of its queries.
            for pointer in self.list_stored():
                if pointer.pointer_id == pointer_id:
                    return self.store.load_payload(pointer_id, query_id=pointer.query_id)
            if exc.reason == "unknown":
                raise self._missing(pointer_id) from exc
            raise

    def _cached(self, pointer: ContextPointer) -> bytes | None:
        """Return the result from memory, if the store has it too."""
        cached = self._cache.get(_key(pointer))
        # Another process may have erased or evicted it, and it may have expired.
        if cached is None or self.store.is_stored(
            query_id=pointer.query_id, pointer_id=pointer.pointer_id
        ):
            return cached
        self._cache.remove(_key(pointer))
        return None

    def _missing(self, entry: object) -> PointerNotFoundError:
        # Only an id is repeated: any other text may be a secret, or an attack on a log.
        is_id = isinstance(entry, str) and _ID.fullmatch(entry)
        pointer = f"pointer {entry}" if is_id else "such pointer"
        return PointerNotFoundError(
            f"This session has no {pointer}; use an id that it gave",
            reason="erased" if entry in self._erased else "unknown",
        )

    def forget(self) -> None:
        """Remove pointers and results from memory. Files can still be cleared."""
        self.pointers.clear()
        self._cache.clear()

    async def clear_files(self) -> None:
        """Remove the session's saved and resumed results from the store. Idempotent.

        Raises:
            StoreError: If some files could not be removed. Call again to retry.
        """
        # A save that ends after the deletion would leave its files behind.
        # `wait` does not raise the error of a save, which its own caller gets.
        if self._saving:
            await asyncio.wait(self._saving)
        self._cache.clear()
        # First, in case a deletion fails: a later save then records its query again.
        self._recorded = {self.session_id}
        # A save during an await may add a query, and a dict must not grow in a loop.
        for query_id in list(self._stored):
            # A copy, since a save during the deletion adds an id that stays.
            removed = frozenset(self._stored[query_id])
            # Without tombstones in the store, since `_erased` has the ids.
            await in_thread(
                self.store.delete, query_id=query_id, pointer_ids=removed, remember=False
            )
            self._erased |= removed
            self._stored[query_id] -= removed


def checked_session_id(session_id: str, redactor: Redactor) -> str:
    """Return a session's id if the store accepts it.

    Raises:
        InvalidIdError: If it does not.
    """
    # The query ids of a session begin with its id, and must be allowed too.
    checked_query_id(f"{session_id}/q_{'0' * 16}", redactor)
    return session_id


class ResultCache:
    """A thread-safe LRU cache of results as bytes, by query id and pointer id.

    Args:
        max_item_bytes: Maximum bytes of a result.
        max_bytes: Maximum bytes of all results.
    """

    def __init__(self, *, max_item_bytes: int, max_bytes: int) -> None:
        # An `LRUCache` raises for an item that is larger than the cache.
        self._max_item_bytes = min(max_item_bytes, max_bytes)
        self._results: LRUCache[tuple[str, str], bytes] = LRUCache(max_bytes, getsizeof=len)
        # Readers need the lock too: `get` of an LRU cache changes the order of its entries.
        self._lock = threading.Lock()

    def takes(self, size: int | None) -> bool:
        """Return whether the cache keeps a result of that size."""
        return size is not None and size <= self._max_item_bytes

    def put(self, key: tuple[str, str], payload: bytes) -> None:
        """Replace the result of a key, or remove it if the new one is too long."""
        with self._lock:
            self._results.pop(key, None)
            if self.takes(len(payload)):
                self._results[key] = payload

    def get(self, key: tuple[str, str]) -> bytes | None:
        """Return the result of a key, or None."""
        with self._lock:
            return self._results.get(key)

    def remove(self, key: tuple[str, str]) -> None:
        """Remove the result of a key, if the cache has it."""
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
    """Return the URLs of a dict under `url` and `sources`. The store itself reads `source_urls`."""
    urls: list[str] = []
    if isinstance(result, dict):
        entries: list[Any] = [result]
        if isinstance(result.get("sources"), list):
            entries += result["sources"]
        for entry in entries:
            if isinstance(entry, dict) and isinstance(entry.get("url"), str):
                urls.append(entry["url"])
    return urls
