"""`PointerStorage`: a pointer store as the storage of Strands Agents."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager

from strands.storage.storage import StorageSearchResult
from strands.types.exceptions import StorageError

from llm_common._threads import in_thread
from llm_common.errors import StoreError
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.store import ContextPointerStore

_MAX_FOUND = 20
_MAX_KEY_CHARS = 1_000


class PointerStorage:
    """A pointer store as Strands' `Storage`: `Agent(storage=PointerStorage(store))`.

    UTF-8 is kept as text, so that the tools of a session read it. Redaction, limits and lifetime
    are the store's: with `redact_results`, what held secrets is not read as it was written.

    Args:
        store: Keeps a pointer for each key.
        query_id: Its query of the store; other queries are neither read nor listed.
    """

    def __init__(self, store: ContextPointerStore, *, query_id: str = "strands") -> None:
        self._store, self._query_id = store, query_id

    async def write(self, key: str, data: bytes) -> None:
        """Store the bytes, in place of what was there.

        Raises `StorageError`, also for a key that holds a secret.
        """
        args = {"name": key}
        if self._store.redactor.args(args) != args or len(key) > _MAX_KEY_CHARS:
            raise StorageError(
                f"keys take up to {_MAX_KEY_CHARS:,} characters without secrets; use another one"
            )
        with _storage_errors():
            query_id, result = self._query_id, _result_of(data)
            await self._store.save(
                query_id=query_id, task_id=None, tool_name="storage", args=args, result=result
            )

    async def read(self, key: str) -> bytes | None:
        """Return the bytes, or None. Raises `StorageError`."""
        with _storage_errors():
            pointer = (await self._pointers()).get(key)
            if pointer is None:
                return None
            result = await in_thread(self._store.load_result, pointer=pointer)
        if isinstance(result, dict):
            return base64.b64decode(result["base64"])
        return str(result).encode()

    async def delete(self, key: str) -> None:
        """Remove the key, if it is there. Raises `StorageError`."""
        with _storage_errors():
            if pointer := (await self._pointers()).get(key):
                ids = [pointer.pointer_id]
                await in_thread(
                    self._store.delete, query_id=self._query_id, pointer_ids=ids, remember=False
                )

    async def search(self, query: str) -> list[StorageSearchResult]:
        """Return at most 20 keys whose bytes hold words of the query, the best first.

        Raises `StorageError`.
        """
        with _storage_errors():
            pointers = list((await self._pointers()).values())
            keys = {pointer.pointer_id: str(pointer.args["name"]) for pointer in pointers}
            search = await in_thread(
                self._store.find,
                query,
                query_id=self._query_id,
                pointer_ids=keys,
                limit=_MAX_FOUND,
                in_results=True,
            )
        return [
            StorageSearchResult(keys[match.pointer.pointer_id], match.score)
            for match in search.matches
        ]

    async def list(self, query: str = "") -> list[str]:
        """Return the keys that begin so, sorted. Raises `StorageError`."""
        with _storage_errors():
            return sorted(key for key in await self._pointers() if key.startswith(query))

    async def _pointers(self) -> dict[str, ContextPointer]:
        pointers = await in_thread(self._store.list, query_id=self._query_id)
        return {
            pointer.args["name"]: pointer for pointer in pointers if pointer.tool_name == "storage"
        }


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except StoreError as exc:
        raise StorageError(str(exc)) from exc


def _result_of(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
