"""`Session`: one conversation, with its results behind pointers and its prompts within limits."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from llm_common._threads import computed_once, in_thread
from llm_common.agents.session.config import SessionConfig
from llm_common.agents.session.saved import SavedResults, store_of
from llm_common.agents.session.trace import SessionTrace
from llm_common.history.policy import HISTORY_TOOL
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.store import ContextPointerStore

if TYPE_CHECKING:
    from llm_common.agents.session.history import SessionHistory
    from llm_common.agents.session.offloading import Offloaded, Offloading, OffloadTurn
    from llm_common.agents.session.results import ShownResults
    from llm_common.agents.session.tables import StoredTable
    from llm_common.agents.session.tools import DefinitionT, ToolChooser
    from llm_common.context import ContextBundle, ContextFile, MemorySnippet, TurnEntry
    from llm_common.history import FoundMessage, Message
    from llm_common.pointers.reading import ContextReading
    from llm_common.tables.sql.database import QueryRows
    from llm_common.tools.read_back import ReadBackTool
    from llm_common.tools.tool import Tool

# A part is imported when it is first used. One that only offloads never imports how to pack.
# ruff: noqa: PLC0415


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
    Each stored result takes about 5 KB of memory, for its pointer.

    Args:
        store: A store, or the folder of a file store. None takes the default folder of
            `FileContextPointerStore`, `.llm-common/context`.
        session_id: The conversation's id, by the rules of a query id. Another process can continue
            the conversation by this id. None creates a random id.
        config: Limits and policies. None takes the defaults.

    Attributes:
        config: The limits and policies.
        results: The session's pointers and results, which `ToolContextManager` lists.
        session_id: The conversation's id, which is also its query id in the store.
        store: The store of the results.

    Raises:
        InvalidIdError: If `session_id` is not allowed.
        StoreError: If a folder is given on a system that is not POSIX.
        TypeError: If `store` or `config` is something else.
    """

    def __init__(
        self,
        store: ContextPointerStore | Path | str | None = None,
        *,
        session_id: str | None = None,
        config: SessionConfig | None = None,
    ) -> None:
        if not isinstance(config, SessionConfig | None):
            raise TypeError(
                f"config must be a SessionConfig, got {type(config).__name__}; pass "
                "SessionConfig(offload=..., fold=...)"
            )
        self.config: Final = config or SessionConfig()
        self.results = SavedResults(store_of(store), session_id, ttl_s=self.config.ttl_s)
        self.session_id: Final = self.results.session_id
        self.store: Final = self.results.store
        self._trace = SessionTrace(self.session_id)

    @computed_once
    def _offloading(self) -> "Offloading":
        from llm_common.agents.session.offloading import Offloading

        return Offloading(self.results, self.config, self._trace)

    @computed_once
    def _shown(self) -> "ShownResults":
        from llm_common.agents.session.results import ShownResults

        return ShownResults(self.results, self.config, self._trace)

    @computed_once
    def _history(self) -> "SessionHistory":
        from llm_common.agents.session.history import SessionHistory

        return SessionHistory(self.results, self.config, self._trace)

    @computed_once
    def _chooser(self) -> "ToolChooser | None":
        from llm_common.agents.session.tools import ToolChooser

        max_tokens = self.config.max_tool_tokens
        if max_tokens is None:
            return None
        return ToolChooser(self.config, max_tokens=max_tokens, trace=self._trace)

    async def offload(
        self,
        result: Any,
        *,
        tool: str,
        args: Mapping[str, Any],
        query: str = "",
        turn: "str | OffloadTurn | None" = None,
        messages: "Sequence[Message] | None" = None,
        pointer: ContextPointer | None = None,
    ) -> "Offloaded":
        """Return a result as the model sees it: whole, or stored and replaced by a preview.

        Args:
            result: The tool's result: plain data, or a text, which may be JSON. Bytes in UTF-8
                are a text.
            tool: The tool's name. Results of this session's own tools stay whole.
            args: The arguments of the call.
            query: The question that decides what a preview shows. An empty one takes the
                user's newest text in `messages`.
            turn: The turn's name, or the turn itself with its own policy, query and number of
                calls. The calls of a turn share one budget. None is a turn for this call alone.
            messages: The conversation up to the call, as `fold` gets it. Its last message with
                calls tells how many calls share the turn. If it has the same result of the same
                call, a line refers to that one. Without messages, none is referred to.
            pointer: The pointer of a result that is stored already. None stores the result if it
                does not stay whole.

        Returns:
            The result, whose `str()` is for the prompt. It is never empty for a result that this
            call stored. If the store fails, it is the result itself, up to 100,000 characters or
            half of the limit of `fold`, and for a longer one its beginning and end. A warning is
            logged.

        Raises:
            UnserialisableError: If the result cannot be written as JSON.
        """
        view = None if messages is None else self._history.view(messages)
        return await self._offloading.offload(
            result,
            tool=tool,
            args=args,
            query=query,
            turn=turn,
            messages=messages,
            pointer=pointer,
            view=view,
        )

    async def read(
        self,
        pointer_id: str | None,
        *,
        path: str | None = None,
        lines: tuple[int, int] | None = None,
        chars: tuple[int, int] | None = None,
        pattern: str | None = None,
        cursor: str | None = None,
    ) -> "ContextReading":
        """Return a piece of a stored result, or of a part of it, within `max_read_tokens`.

        Args:
            pointer_id: The id of the result. None, as an `Offloaded` without a pointer has it, is
                never found.
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
        return await self._shown.read(
            pointer_id, path=path, lines=lines, chars=chars, pattern=pattern, cursor=cursor
        )

    async def search(self, words: str, *, limit: int = 10) -> "tuple[FoundMessage, ...]":
        """Return the results and folded messages that share words with a query, best first.

        Args:
            words: The words to find.
            limit: Maximum number of matches.

        Raises:
            StoreError: If the store cannot be read.
        """
        return await in_thread(self._shown.search, words, limit=limit)

    async def tables(self) -> "tuple[StoredTable, ...]":
        """Return the stored records as tables that `query` reads, the newest result first.

        All results are listed, and the newest four megabytes of them are read. An older one that
        no query has read is one table without columns, with None as the number of its rows.

        Raises:
            StoreError: If the store cannot be read.
        """
        return await self._shown.tables()

    async def query(self, sql: str, *, cursor: str | None = None) -> str:
        """Return the rows of one SELECT over the stored records, within `max_read_tokens`.

        The SELECT is SQLite's, with joins over several results, windows, dates and JSON. It can
        read nothing else and write nothing. It stops after two seconds of CPU time. The table of a
        result is named in its preview, and the table `tables` lists all.

        Args:
            sql: The SELECT.
            cursor: The cursor of the previous answer, with the same SELECT. None begins.

        Raises:
            ToolArgumentsError: If the SELECT or the cursor is not valid, or the SELECT takes too
                much time or memory. The message tells a model what to do.
            StoreError: If a result cannot be loaded.
        """
        return await self._shown.query(sql, cursor)

    async def query_rows(self, sql: str) -> "QueryRows":
        """Return the rows of one SELECT over the stored records as values, 10,000 at most.

        Args:
            sql: The SELECT, as for `query`.

        Raises:
            ToolArgumentsError: As for `query`.
            StoreError: If a result cannot be loaded.
        """
        return await self._shown.query_rows(sql)

    async def choose_tools(
        self,
        definitions: "Sequence[DefinitionT]",
        *,
        messages: "Sequence[Message]",
        keep: Collection[str] = (),
    ) -> "list[DefinitionT]":
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
        if self._chooser is None:
            return list(definitions)
        return await self._chooser.choose(definitions, messages=messages, keep=keep)

    def pin(self, content: "str | Message") -> None:
        """Keep a text in every prompt of `fold`, word for word. Idempotent.

        This object alone remembers it, so an application pins again after a restart.

        Raises:
            TypeError: If it is neither a text nor a message with a text.
        """
        self._history.pin(content)

    async def fold(
        self, messages: "Sequence[Message]", pinned: "Sequence[str | Message]" = ()
    ) -> "list[Message]":
        """Return the messages to send, within the limit of the config's `fold`.

        Folded messages are stored, and the session's tools find them. Pass the whole history each
        time. The prompt has the config's pins, those of `pin` and `pinned`, and what the user
        stated as a rule. See `llm_common.history.fold`.

        Raises:
            TokenBudgetError: If the messages that are never folded exceed the limit.
            StoreError: If the folded messages could not be stored. Do not send anything then.
        """
        return await self._history.fold(messages, pinned)

    async def pack(
        self,
        query: str,
        *,
        max_tokens: int,
        turns: "Sequence[TurnEntry]" = (),
        files: "Sequence[ContextFile]" = (),
        memories: "Sequence[MemorySnippet]" = (),
    ) -> "ContextBundle":
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
        from llm_common.context import (
            ContextSelectionRequest,
            ContextSelector,
            DataPoolSnapshot,
            classify_intent,
        )

        if max_tokens <= 0:
            raise ValueError(f"max_tokens is {max_tokens}; pass 1 or more tokens")
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
        return self.config.tool_names

    def tools(self) -> "tuple[Tool, ...]":
        """Return the tools for the model.

        One reads a result by its id, one finds words in results and folded messages, and one
        queries records. With `max_tool_tokens`, a fourth finds tools that `choose_tools` hides.

        Raises:
            ConfigError: If a name is not allowed.
        """
        own = self._shown
        tools: list[Tool] = [own.reader(), own.searcher(), own.querier()]
        if self._chooser is not None:
            tools.append(self._chooser.finder())
        return tuple(tools)

    def querier(self) -> "Tool":
        """Return the tool that runs one SELECT over the stored records."""
        return self._shown.querier()

    def reader(self, name: str | None = None) -> "ReadBackTool":
        """Return the tool that reads a result by its id.

        Args:
            name: The tool's name. None takes the config's `offload.reader_name`.

        Raises:
            ConfigError: If the name is not allowed.
        """
        return self._shown.reader(name)

    def overview(self) -> str:
        """Return what is in the prompt and behind pointers, for a prompt's tail, in 150 tokens.

        It has the tokens of the newest folded prompt by role, and the stored results, newest
        first. Put it into the last message, so that the messages before it stay in the provider's
        cache.

        Raises:
            StoreError: If the store cannot be read.
        """
        return self._history.overview(self.results.list_all()[::-1])

    async def clear(self) -> None:
        """Remove everything that is stored under the session's id. Idempotent.

        If conversations share the id, only what no other object saved.

        Raises:
            StoreError: If some files could not be removed. Call again to retry.
        """
        if not self.results.lists_own:
            # Other processes may have stored results under the session's id, which go as well.
            await self.results.resume()
        await self.results.clear_files()
        self.results.forget()

    @classmethod
    def over(cls, results: SavedResults, config: SessionConfig | None = None) -> Self:
        """Return a session over results that an adapter has set up.

        Args:
            results: The results, with a cache or with an id that several conversations share.
            config: Limits and policies. None takes the defaults.
        """
        session = cls(results.store, session_id=results.session_id, config=config)
        session.results = results
        return session
