"""`Session`: one conversation, with its results behind pointers and its prompts within limits."""

import errno
import logging
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from cachetools import LRUCache

from llm_common._telemetry import record
from llm_common._threads import ForkSafeLock, in_thread
from llm_common.agents.session.config import QUERY, TOOL_WORDS, WORDS, SessionConfig
from llm_common.agents.session.offloading import (
    Offloaded,
    OffloadTurn,
    text_of,
    unstored,
    whole,
)
from llm_common.agents.session.overview import DROP_NAME, RESTORE_NAME, ContextOverview
from llm_common.agents.session.reruns import View, shorter_form
from llm_common.agents.session.saved import SessionResults, store_of
from llm_common.agents.session.tables import SessionTables, StoredTable, answer_text
from llm_common.agents.session.trace import RecordedReader, SessionTrace
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
from llm_common.errors import PointerNotFoundError, StoreError, UnserialisableError
from llm_common.history.fold import fold, refers_to_results, results_in_view
from llm_common.history.folding import HISTORY_TOOL, FoldPolicy
from llm_common.history.message_shapes import (
    HistoryMessage,
    Message,
    last_question,
    newest_first,
)
from llm_common.history.pins import pinned_text
from llm_common.history.search import FoundMessage, search_messages
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.reading import ContextReading
from llm_common.pointers.store import ContextPointerStore
from llm_common.tables.database import QueryRows
from llm_common.text.display import in_fence, one_line
from llm_common.tools.read_back import ReadBackTool, read_context
from llm_common.tools.tool import Tool
from llm_common.tools.tool_shortlist import (
    MAX_FOUND,
    DefinitionT,
    ToolShortlist,
    definition_of,
)

_MAX_TURNS: Final = 64  # of one conversation at once: more than any framework runs side by side
_MAX_FOUND_TOOLS: Final = 5
_FOUND: Final = "- "  # before the name of a tool in an answer of the finder

# "yes, do it" says nothing about the tool: two turns before it do. More messages add no tool to the
# dialogues and runs of benchmarks/quality_shortlist.py, and take longer.
_MAX_TEXTS: Final = 4
_MAX_TEXT_CHARS: Final = 1_500

_log = logging.getLogger(__name__)


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
        persist_threshold: Maximum bytes of a stored result that also stays in memory, 8 MB in all.
        lists_own: Whether several conversations share the id. See `SessionResults`.
        siblings: The beginning of the ids of the same user's other sessions. See `SessionResults`.

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
        lists_own: bool = False,
        siblings: str = "",
    ) -> None:
        self.config: Final = config or SessionConfig()
        self.results: Final = SessionResults(
            store_of(store),
            session_id,
            persist_threshold=persist_threshold,
            ttl_s=self.config.ttl_s,
            lists_own=lists_own,
            siblings=siblings,
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
        self._pins: dict[str, None] = {}  # ordered
        fold_policy = self.config.fold
        self._overview = ContextOverview(
            self.results,
            counter=self.config.counter,
            reader_name=self.config.offload.reader_name,
            max_tokens=fold_policy.max_tokens if fold_policy else None,
        )
        self._tables = SessionTables(self.results)
        self._trace = SessionTrace(self.session_id)
        self._lock = ForkSafeLock(self._forget_turns)

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
        if not isinstance(turn, OffloadTurn):
            turn = self._turn(turn, query, messages or ())
        with self._trace.recorded(lambda: query or last_question(messages or ())):
            # The session's tools limit their outputs already. The trace has them as readings.
            if isinstance(result, ContextReading) or (pointer is None and tool in self.tool_names):
                return await self._own_result(result, turn, tool)
            offloaded = await self._offload(
                result, tool, args, turn, pointer=pointer, messages=messages
            )
            record("offload", session_id=self.session_id, offloaded=offloaded)
        if offloaded.pointer_id is not None:
            _log.info(
                "a result of %d characters is stored as %s, and the model sees %d",
                offloaded.total_chars,
                offloaded.pointer_id,
                len(offloaded.text),
            )
        return offloaded

    async def _own_result(self, result: Any, turn: OffloadTurn, tool: str) -> Offloaded:
        """Return the answer of one of the session's tools, which stays whole."""
        if isinstance(result, ContextReading):
            await turn.keeps(tool, result)  # counts its tokens
            return whole(tool, str(result))
        return whole(tool, await in_thread(text_of, result))

    async def _offload(
        self,
        result: Any,
        tool: str,
        args: Mapping[str, Any],
        turn: OffloadTurn,
        *,
        pointer: ContextPointer | None,
        messages: Sequence[Message] | None,
    ) -> Offloaded:
        # In a thread, since encoding megabytes would block the event loop.
        text = await in_thread(text_of, result)
        if await turn.keeps(tool, result, text=text):
            return whole(tool, text)
        is_stored = pointer is not None
        if pointer is None:
            try:
                pointer = await self.results.save(result, tool=tool, args=dict(args))
            except UnserialisableError:
                raise  # a fault of the result, which the caller can replace
            except StoreError as exc:
                return await self._unstored(result, turn, tool, text, exc)
        # A model must not see a secret that the store removes.
        redacted = await self.store.as_stored(result)
        if redacted is not result:
            text = await in_thread(text_of, redacted)
        shorter = None
        # An application may store results that no model has seen, such as those of its own run.
        if messages is not None or not is_stored:
            shorter = await in_thread(
                shorter_form,
                self.results,
                pointer,
                text,
                is_text=isinstance(redacted, str),
                view=self._view(messages),
                reader_name=turn.reader_name,
            )
        preview = await turn.preview(pointer, redacted, text=text, shorter=shorter)
        # If the turn has no tokens left, a model needs the id at least to read the result.
        return preview if preview.text or is_stored else turn.stored_line(preview)

    def _view(self, messages: Sequence[Message] | None) -> View | None:
        """Return what tells which results the folded messages show, or None without messages."""
        if messages is None:
            return None
        return partial(
            results_in_view,
            messages,
            session_id=self.session_id,
            policy=self.config.named_fold,
            counter=self.config.counter,
            pinned=(*self.config.pinned, *self._pins),
        )

    async def _unstored(
        self, result: Any, turn: OffloadTurn, tool: str, text: str, error: StoreError
    ) -> Offloaded:
        """Return a result that could not be stored as the model sees it, and log a warning."""
        # Only the class and the system's code, because the message may contain a path of the user.
        reason = type(error).__name__
        if isinstance(error.__cause__, OSError):
            reason += f", {errno.errorcode.get(error.__cause__.errno or 0, 'unknown error')}"
        _log.warning("a result was not stored, and the run goes on: %s", reason)
        # A model must not see a secret that the store removes.
        without_secrets = await self.store.as_stored(result)
        is_changed = without_secrets is not result
        if is_changed:
            text = await in_thread(text_of, without_secrets)
        max_tokens = self.config.fold.max_tokens if self.config.fold is not None else None
        max_chars = await in_thread(turn.unstored_chars, text, max_tokens)
        return unstored(tool, text, max_chars=max_chars, is_changed=is_changed)

    def _forget_turns(self) -> None:
        self._turns = LRUCache(_MAX_TURNS)

    def _turn(self, name: str | None, query: str, messages: Sequence[Message]) -> OffloadTurn:
        """Return the turn of a name, or a new one."""
        # Frameworks run the calls of a turn in threads too, and they must share one budget.
        with self._lock:
            if name is not None and name in self._turns:
                return self._turns[name]
            calls = 1
            if messages:
                query = query or last_question(messages)
                newest = (len(message.calls) for message in newest_first(messages))
                calls = next(filter(None, newest), 1)
            turn = OffloadTurn(
                self.config.offload, query=query, calls=calls, counter=self.config.counter
            )
            if name is not None:
                self._turns[name] = turn
            return turn

    async def read(
        self,
        pointer_id: str | None,
        *,
        path: str | None = None,
        lines: tuple[int, int] | None = None,
        chars: tuple[int, int] | None = None,
        pattern: str | None = None,
        cursor: str | None = None,
    ) -> ContextReading:
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
        if pointer_id is None:
            raise PointerNotFoundError(
                "this result has no pointer: it is whole in the text that offload returned, or it "
                "could not be stored. Use that text"
            )
        part = {"path": path, "lines": lines, "chars": chars, "regex": pattern}
        selected = {name: value for name, value in part.items() if value is not None}
        with self._trace.recorded():
            return await read_context(
                pointer_id,
                load=self._overview.load_payload,
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

    async def tables(self) -> tuple[StoredTable, ...]:
        """Return the stored records as tables that `query` reads, the newest result first.

        Raises:
            StoreError: If the store cannot be read.
        """
        return await in_thread(self._tables.tables)

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
        return await in_thread(self._query, sql, cursor)

    async def query_rows(self, sql: str) -> QueryRows:
        """Return the rows of one SELECT over the stored records as values, 10,000 at most.

        Args:
            sql: The SELECT, as for `query`.

        Raises:
            ToolArgumentsError: As for `query`.
            StoreError: If a result cannot be loaded.
        """
        return await in_thread(self._tables.query, sql)

    def _query(self, sql: str, cursor: str | None) -> str:
        return answer_text(
            sql,
            self._tables.query(sql),
            cursor=cursor,
            max_tokens=self.config.max_read_tokens,
            counter=self.config.counter,
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
        with self._trace.recorded(lambda: last_question(messages)):
            return await in_thread(self._choose_tools, self._shortlist, definitions, messages, keep)

    def _choose_tools(
        self,
        shortlist: ToolShortlist,
        tools: Sequence[DefinitionT],
        messages: Sequence[Message],
        keep: Collection[str],
    ) -> list[DefinitionT]:
        definitions = [definition_of(tool) for tool in tools]
        by_name = {definition.name: definition for definition in definitions}
        # The finder is shown only beside hidden tools, so it does not compete with the others.
        finder = by_name.pop(self.config.finder_name, None)
        history = [*newest_first(messages)]
        called = {call.name for message in history for call in message.calls}
        # Another process of this conversation may have found them.
        found = _found_names(history, self.config.finder_name)
        choice = shortlist.choose(
            [*by_name.values()],
            texts=_ends_of_texts(history)[:_MAX_TEXTS],
            keep={*keep, *called, *found, *self.tool_names},
        )
        hidden = [name for name in by_name if name not in choice.names]
        record(
            "tool_list",
            session_id=self.session_id,
            shown=choice.names,
            hidden=hidden,
            tokens=choice.tokens,
            limit_tokens=self.config.max_tool_tokens,
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
        return [
            tool
            for tool, definition in zip(tools, definitions, strict=True)
            if definition.name in names
        ]

    def pin(self, content: str | Message) -> None:
        """Keep a text in every prompt of `fold`, word for word. Idempotent.

        This object alone remembers it, so an application pins again after a restart.

        Raises:
            TypeError: If it is neither a text nor a message with a text.
        """
        self._pins[pinned_text(content)] = None

    async def fold(
        self, messages: Sequence[Message], pinned: Sequence[str | Message] = ()
    ) -> list[Message]:
        """Return the messages to send, within the limit of the config's `fold`.

        Folded messages are stored, and the session's tools find them. Pass the whole history each
        time. The prompt has the config's pins, those of `pin` and `pinned`, and what the user
        stated as a rule. See `llm_common.history.fold`.

        Raises:
            TokenBudgetError: If the messages that are never folded exceed the limit.
            StoreError: If the folded messages could not be stored. Do not send anything then.
        """
        pins = (*self.config.pinned, *self._pins, *pinned)
        policy = self.config.named_fold
        if policy is None:
            # The caller may have dropped a result to which a later output refers.
            if not pins and not await in_thread(refers_to_results, messages):
                return list(messages)
            policy = FoldPolicy(max_tokens=sys.maxsize)  # nothing is folded, pins come first
        with self._trace.recorded(lambda: last_question(messages)):
            folded = await fold(
                messages,
                store=self.store,
                session_id=self.session_id,
                policy=policy,
                counter=self.config.counter,
                ttl_s=self.config.ttl_s,
                pinned=pins,
            )
        self._overview.note_prompt(folded)
        if folded.parts:
            _log.debug(
                "%d of %d messages are sent, %d tokens; %d parts are stored",
                len(folded.messages),
                len(messages),
                folded.tokens,
                len(folded.parts),
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
        names = (
            self.config.offload.reader_name,
            self.config.search_name,
            self.config.query_name,
            self.config.finder_name,
        )
        return (*names, DROP_NAME, RESTORE_NAME) if self.config.drops_outputs else names

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools for the model.

        One reads a result by its id, one finds words in results and folded messages, and one
        queries records. With `max_tool_tokens`, a fourth finds tools that `choose_tools` hides.
        With `drops_outputs`, two more drop and restore outputs.

        Raises:
            ConfigError: If a name is not allowed.
        """
        tools: list[Tool] = [self.reader(), self._searcher(), self.querier()]
        if self._shortlist is not None:
            tools.append(self._finder())
        if self.config.drops_outputs:
            tools += self._overview.tools()
        return tuple(tools)

    def _finder(self) -> Tool:
        return Tool(
            self._find_tools,
            name=self.config.finder_name,
            description=(
                "Finds tools that are not in your list. Tools that it finds are in your list from "
                "the next step on, and you call them by their own names."
            ),
            parameters=TOOL_WORDS,
            read_only=True,
        )

    def querier(self) -> Tool:
        """Return the tool that runs one SELECT over the stored records."""
        return Tool(
            self._query_text,
            name=self.config.query_name,
            description=(
                "Runs one SELECT (SQLite) over stored records, joins included, and returns the "
                "rows. Previews name their tables; SELECT * FROM tables lists all. number(x) reads "
                "texts such as $1,234.50."
            ),
            parameters=QUERY,
            read_only=True,
        )

    def _searcher(self) -> Tool:
        return Tool(
            self._search_text,
            name=self.config.search_name,
            description=(
                "Finds words in all earlier messages and tool outputs of this conversation that "
                f"are not shown any more. Read more of a match with "
                f"{self.config.offload.reader_name}."
            ),
            parameters=WORDS,
            read_only=True,
        )

    def reader(self, name: str | None = None) -> ReadBackTool:
        """Return the tool that reads a result by its id.

        Args:
            name: The tool's name. None takes the config's `offload.reader_name`.

        Raises:
            ConfigError: If the name is not allowed.
        """
        return RecordedReader(
            self._trace,
            load=self._overview.load_payload,
            name=name or self.config.offload.reader_name,
            max_tokens=self.config.max_read_tokens,
            counter=self.config.counter,
        )

    async def _query_text(self, sql: str, cursor: str | None = None) -> str:
        with self._trace.recorded():
            text = await self.query(sql, cursor=cursor)
            record("read_back", tool=self.config.query_name, chars=len(text))
        return text

    async def _search_text(self, query: str) -> str:
        with self._trace.recorded():
            text = await self._search_answer(query)
            record("read_back", tool=self.config.search_name, chars=len(text))
        return text

    async def _search_answer(self, query: str) -> str:
        matches = await self.search(query)
        if not matches:
            return "No stored result or message contains these words; try others."
        lines: list[str] = []
        for match in matches:
            lines.append(match.line)
            if not self._fits_answer(lines):
                lines.pop()
                break
        if not lines:
            # Halved until it fits, since a line of emoji takes several tokens a character.
            line = matches[0].line
            while len(line) > 1 and not self._fits_answer([line]):
                line = one_line(line, max_chars=len(line) // 2)
            lines.append(line)
        return in_fence("\n".join(lines))

    def _fits_answer(self, lines: Sequence[str]) -> bool:
        # Counted with the fence, since the model gets both.
        text = in_fence("\n".join(lines))
        return self.config.counter.count(text) <= self.config.max_read_tokens

    async def _find_tools(self, query: str) -> str:
        with self._trace.recorded():
            text = await self._find_answer(query)
            record("read_back", tool=self.config.finder_name, chars=len(text))
        return text

    async def _find_answer(self, query: str) -> str:
        assert self._shortlist is not None  # without a limit, tools() has no finder
        definitions = await in_thread(self._shortlist.find, query, limit=_MAX_FOUND_TOOLS)
        if not definitions:
            return "No tool fits these words. Try other words, such as a verb and its object."
        lines = ["These tools are in your list from the next step on:"]
        for definition in definitions:
            lines.append(
                f"{_FOUND}{definition.name}: {one_line(definition.description, max_chars=200)}"
            )
        return in_fence("\n".join(lines))

    def overview(self) -> str:
        """Return what is in the prompt and behind pointers, for a prompt's tail, in 150 tokens.

        It has the tokens of the newest folded prompt by role, its largest outputs, and the stored
        results, newest first. Put it into the last message, so that the messages before it stay in
        the provider's cache.

        Raises:
            StoreError: If the store cannot be read.
        """
        return self._overview.text()

    async def clear(self) -> None:
        """Remove everything that is stored under the session's id. Idempotent.

        With `lists_own`, only what this object saved.

        Raises:
            StoreError: If some files could not be removed. Call again to retry.
        """
        if not self.results.lists_own:
            # Other processes may have stored results under the session's id, which go as well.
            await self.results.resume()
        await self.results.clear_files()
        self.results.forget()
        self._tables.forget()


def _found_names(newest_first: Sequence[HistoryMessage], finder_name: str) -> list[str]:
    """Return the newest tools that answers of the finder name, newest answer first."""
    finder_ids: set[str] = set()
    for message in newest_first:
        finder_ids.update(call.call_id for call in message.calls if call.name == finder_name)
    names: list[str] = []
    for message in newest_first:
        for output in message.outputs:
            if output.call_id in finder_ids:
                for line in output.text.splitlines():
                    if line.startswith(_FOUND):
                        names.append(line.removeprefix(_FOUND).partition(": ")[0])
    return names[:MAX_FOUND]


def _ends_of_texts(newest_first: Sequence[HistoryMessage]) -> list[str]:
    """Return the ends of the texts of user and assistant."""
    texts: list[str] = []
    for message in newest_first:
        if message.role in ("user", "assistant") and message.text:
            texts.append(message.text[-_MAX_TEXT_CHARS:])
    return texts
