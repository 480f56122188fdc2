"""`Session`: one conversation, with its results behind pointers and its prompts within limits."""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from cachetools import LRUCache

from llm_common._threads import in_thread
from llm_common.agents.offloading import Offloaded, OffloadPolicy, OffloadTurn, text_of
from llm_common.agents.session_results import SessionResults
from llm_common.agents.tool_shortlist import ToolShortlist
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
from llm_common.history.fold import fold
from llm_common.history.folding import HISTORY_TOOL, FoldPolicy
from llm_common.history.message_shapes import Message, calls_of, last_question, newest_calls
from llm_common.history.search import FoundMessage, search_messages
from llm_common.pointers.reading import ContextReading
from llm_common.pointers.store import ContextPointerStore, FileContextPointerStore
from llm_common.ranking.embeddings import Embedder
from llm_common.text.display import in_fence, one_line
from llm_common.tools.definitions import ToolDefinition
from llm_common.tools.read_back import DEFAULT_LIMIT_TOKENS, ReadBackTool, read_context
from llm_common.tools.tool import Tool

DefinitionT = TypeVar("DefinitionT", bound=ToolDefinition | Tool | Mapping[str, Any])

SEARCH_NAME: Final = "search_context"

# Leaves half of a window of 64,000 tokens to instructions, tools and the answer.
_FOLD: Final = FoldPolicy(limit_tokens=32_000)

_MAX_TURNS: Final = 64  # of one conversation at once: more than any framework runs side by side
_MAX_OVERVIEW_TOKENS: Final = 150
_LINE_CHARS: Final = 100
_WORDS: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "Words that were said or returned."}},
    "required": ["query"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class SessionConfig:
    """What the sessions of an application share.

    Attributes:
        offload: Which results stay whole, and the size of the previews. Its `reader_name` is the
            name of the tool that reads back.
        fold: When a history is folded. None never folds. Its names are those of the session.
        max_tool_tokens: Tokens of all tool definitions, above which `choose_tools` shortens them.
            None shows all of them.
        tool_limit: How many tools are chosen then, besides those that are kept.
        max_read_tokens: Tokens of an answer to reading and searching.
        search_name: The name of the tool that searches.
        embedder: Compares tools with the request by meaning too, such as `StaticVectors`.
        counter: Counts tokens. The default is exact with the extra `tokens`, else an upper bound.
    """

    offload: OffloadPolicy = field(default_factory=OffloadPolicy)
    fold: FoldPolicy | None = _FOLD
    max_tool_tokens: int | None = 4_000
    tool_limit: int = 20
    max_read_tokens: int = DEFAULT_LIMIT_TOKENS
    search_name: str = SEARCH_NAME
    embedder: Embedder | None = None
    counter: TokenCounter = field(default_factory=DefaultCounter)

    @cached_property
    def shortlist(self) -> ToolShortlist:
        """What chooses tools. Sessions share it, since it keeps the tools that it has indexed."""
        return ToolShortlist(
            max_tokens=self.max_tool_tokens,
            limit=self.tool_limit,
            embedder=self.embedder,
            counter=self.counter,
        )

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
        turn: str | None = None,
        messages: Sequence[Message] | None = None,
    ) -> Offloaded:
        """Return a result as the model sees it: whole, or stored and replaced by a preview.

        Args:
            result: What a tool returned: plain data, or a text, which may be JSON.
            tool: The tool's name. What this session's own tools return stays whole.
            args: The arguments of the call.
            query: Decides which passages a preview shows. Empty takes what the user said last
                in `messages`.
            turn: Names the turn: its calls share one budget. None is a turn for this call alone.
            messages: The conversation up to the call. Its last message with calls tells how many
                calls share the turn.

        Returns:
            The result, of which `str()` goes into the prompt. It is never empty for a result that
            was stored.

        Raises:
            StoreError: If the result could not be stored. Its subclasses say why.
        """
        if isinstance(result, ContextReading) or tool in self.tool_names:
            text = str(result) if isinstance(result, ContextReading) else text_of(result)
            return Offloaded(pointer_id=None, tool_name=tool, total_chars=len(text), text=text)
        text = await in_thread(text_of, result)
        budget = self._turn(turn, query, messages or ())
        if await budget.keeps(tool, result, text=text):
            return Offloaded(pointer_id=None, tool_name=tool, total_chars=len(text), text=text)
        pointer = await self.results.save(result, tool=tool, args=dict(args))
        stored = await self.store.as_stored(result)
        shown = await budget.preview(pointer, stored, text=text if stored is result else None)
        if shown.text:
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
            limit_tokens=self.config.max_read_tokens,
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

        Else those that fit what the user said last, best first while there is room, besides those
        that the conversation has called. Asks no model. The first choice among the same tools
        takes about 0.2 ms a tool.

        Args:
            definitions: Tools, or definitions as MCP, OpenAI or Anthropic spell them.
            messages: The conversation, oldest first.
            keep: Names that are always shown. The session's own tools count among them.

        Raises:
            ConfigError: If a definition has no name.
        """
        called = {call.name for call in calls_of(messages)}
        return await in_thread(
            self.config.shortlist.choose,
            definitions,
            request=last_question(messages),
            keep={*keep, *called, *self.tool_names},
        )

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
    def tool_names(self) -> tuple[str, str]:
        """The names of the tools that read back, whose results are never offloaded."""
        return self.config.offload.reader_name, self.config.search_name

    def tools(self) -> tuple[Tool, Tool]:
        """Return the tools for the model: one reads a result by its id, one finds words.

        Raises:
            ConfigError: If a name is not allowed.
        """
        reader_name, search_name = self.tool_names
        reader = ReadBackTool(
            self.results.load_payload,
            name=reader_name,
            limit_tokens=self.config.max_read_tokens,
            counter=self.config.counter,
        )
        search = Tool(
            self._search_text,
            name=search_name,
            description=(
                "Finds words in all earlier messages and tool outputs of this conversation that "
                f"are not shown any more. Then read more with {reader_name}."
            ),
            parameters=_WORDS,
            read_only=True,
        )
        return reader, search

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
