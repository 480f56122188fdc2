"""`ShownResults`: the stored results of a session, read by their id, by words and as tables."""

from functools import partial
from typing import Final

from llm_common._threads import OwnThreads, PerProcess, computed_once
from llm_common.agents.session.config import SessionConfig
from llm_common.agents.session.saved import SavedResults
from llm_common.agents.session.tables import SessionTables, StoredTable, answer_text
from llm_common.agents.session.trace import SessionTrace
from llm_common.errors import (
    PointerNotFoundError,
    ToolArgumentsError,
)
from llm_common.history.search import FoundMessage, search_messages
from llm_common.pointers.reading import ContextReading
from llm_common.tables.sql.database import QUERY_NAME, QueryRows
from llm_common.text.display import one_line
from llm_common.tools.read_back import read_context


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
