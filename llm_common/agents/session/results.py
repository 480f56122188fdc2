"""`ShownResults`: the stored results of a session, read by their id, by words and as tables.

A model reads them by the tools that `ShownResults` creates.
"""

from functools import partial
from typing import Final

from llm_common._threads import OwnThreads, PerProcess, computed_once, in_thread
from llm_common.agents.session.config import SessionConfig
from llm_common.agents.session.saved import SavedResults
from llm_common.agents.session.tables import SessionTables, StoredTable, answer_text
from llm_common.agents.session.trace import RecordedTool, SessionTrace
from llm_common.errors import (
    PointerNotFoundError,
    ToolArgumentsError,
)
from llm_common.history.search import FoundMessage, search_messages
from llm_common.parts.fill import fill, largest_room
from llm_common.pointers.reading import ContextReading
from llm_common.tables.sql.database import QUERY_NAME, QueryRows
from llm_common.text.display import in_fence, one_line
from llm_common.tools.read_back import ReadBackTool, read_context
from llm_common.tools.tool import Tool

_MAX_MATCHES: Final = 10
# As JSON Schema.
_WORDS: Final = {
    "type": "object",
    "properties": {"words": {"type": "string"}},
    "required": ["words"],
    "additionalProperties": False,
}
_QUERY: Final = {
    "type": "object",
    "properties": {
        "sql": {"type": "string"},
        "cursor": {"type": "string", "description": "Of the answer before. Repeat its sql."},
    },
    "required": ["sql"],
    "additionalProperties": False,
}


class ShownResults:
    """Reads, finds and queries the results of one session.

    Args:
        saved: The results of the session.
        config: The limits and policies.
        trace: Records what a model reads.

    Attributes:
        saved: The results of the session.
    """

    def __init__(self, saved: SavedResults, config: SessionConfig, trace: SessionTrace) -> None:
        self.saved: Final = saved
        self._config = config
        self._trace = trace
        # The session's own, so that a long query delays no work of another session.
        self._query_thread = PerProcess(partial(OwnThreads, 1, "query", daemon=False))

    @computed_once
    def _tables(self) -> SessionTables:
        return SessionTables(self.saved)

    async def tables(self) -> tuple[StoredTable, ...]:
        """Return the stored records as tables. See `Session.tables`."""
        return await self._query_thread.get().run(self._tables.tables)

    async def query_rows(self, sql: str) -> QueryRows:
        """Return the rows of one SELECT as values. See `Session.query_rows`."""
        return await self._query_thread.get().run(self._tables.query, sql)

    async def query(self, sql: str, cursor: str | None = None) -> str:
        """Return the rows of one SELECT as a text for a model. See `Session.query`."""
        return await self._query_thread.get().run(self._answer, sql, cursor)

    def _answer(self, sql: str, cursor: str | None) -> str:
        max_tokens, counter = self._config.max_read_tokens, self._config.counter
        try:
            rows = self._tables.query(sql)
            return answer_text(sql, rows, cursor=cursor, max_tokens=max_tokens, counter=counter)
        except ToolArgumentsError as exc:
            message = exc.message
            while counter.count(message) > max_tokens:
                message = one_line(message, max_chars=len(message) * 3 // 4)
            raise ToolArgumentsError(message, tool=QUERY_NAME) from exc

    async def read(
        self,
        pointer_id: str | None,
        *,
        path: str | None,
        lines: tuple[int, int] | None,
        chars: tuple[int, int] | None,
        pattern: str | None,
        cursor: str | None,
    ) -> ContextReading:
        """Return a piece of a stored result. See `Session.read`."""
        if not isinstance(pointer_id, str | None):
            raise TypeError(
                f"pointer_id must be a str, got {type(pointer_id).__name__}; pass its pointer_id"
            )
        if pointer_id is None:
            raise PointerNotFoundError(
                "this result has no pointer: it is whole in the text that offload returned, or it "
                "could not be stored. Use that text"
            )
        with self._trace.recorded():
            return await read_context(
                pointer_id,
                load=self.saved.load_payload,
                path=path,
                lines=lines,
                chars=chars,
                pattern=pattern,
                cursor=cursor,
                max_tokens=self._config.max_read_tokens,
                counter=self._config.counter,
            )

    def search(self, words: str, *, limit: int) -> tuple[FoundMessage, ...]:
        """Return the results and folded messages that share words with a query, best first."""
        # Sessions without a name may share query ids, so the pointers are named as well.
        pointers = self.saved.list_all()
        return search_messages(
            words,
            self.saved.store,
            query_ids={pointer.query_id for pointer in pointers},
            pointer_ids={pointer.pointer_id for pointer in pointers},
            limit=limit,
        )

    def reader(self, name: str | None = None) -> ReadBackTool:
        """Return the tool that reads a result by its id. See `Session.reader`."""
        return ReadBackTool(
            self.saved.load_payload,
            name=name or self._config.offload.reader_name,
            max_tokens=self._config.max_read_tokens,
            counter=self._config.counter,
            running=self._trace.recorded,
        )

    def searcher(self) -> Tool:
        """Return the tool that finds words in results and folded messages."""
        return RecordedTool(
            self._trace,
            self._search,
            name=self._config.search_name,
            description=(
                "Finds words in all earlier messages and tool outputs of this conversation that "
                f"are not shown any more. Read more of a match with "
                f"{self._config.offload.reader_name}."
            ),
            parameters=_WORDS,
        )

    def querier(self) -> Tool:
        """Return the tool that runs one SELECT over the stored records."""
        return RecordedTool(
            self._trace,
            self.query,
            name=self._config.query_name,
            description=(
                "Runs one SELECT (SQLite) over stored records, joins included, and returns the "
                "rows. Previews name their tables; SELECT * FROM tables lists all. number(x) reads "
                "texts such as $1,234.50."
            ),
            parameters=_QUERY,
        )

    async def _search(self, words: str) -> str:
        matches = await in_thread(self.search, words, limit=_MAX_MATCHES)
        if not matches:
            # No search proves that a word is nowhere: it leaves out stop words and damaged results.
            return "Nothing was found by these words (common ones are not looked up); try others."
        found = [match.line for match in matches]
        # Counted with the fence, since the model gets both.
        lines = fill(
            self._config.max_read_tokens,
            found,
            self._config.counter.count,
            whole=lambda lines: self._config.counter.count(in_fence("\n".join(lines))),
        )
        if not lines:
            lines = [self._beginning(found[0])]
        return in_fence("\n".join(lines))

    def _beginning(self, line: str) -> str:
        """Return as much of a line as fits an answer."""

        def fits(chars: int) -> bool:
            text = in_fence(one_line(line, max_chars=chars))
            return self._config.counter.count(text) <= self._config.max_read_tokens

        return one_line(line, max_chars=largest_room(len(line), fits) or 1)
