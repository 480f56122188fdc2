"""Use a pointer store as the storage of Strands agents: `PointerStorage`."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from strands.storage.storage import StorageSearchResult
from strands.types.exceptions import StorageError

from llm_common.agents import ContextPointer, ContextPointerStore
from llm_common.errors import StoreError
from llm_common.pointers import find_pointers
from llm_common.runtime import in_thread

_MAX_MATCHES = 20
# The store shortens longer arguments, and two keys could then become one.
_MAX_KEY_CHARS = 1_000


class PointerStorage:
    """A pointer store as Strands' `Storage`: `Agent(storage=PointerStorage(store))`.

    UTF-8 is stored as text, so that the tools of a session can read it. Redaction, limits and
    lifetime are the store's: with `redact_results`, secrets in the bytes are read back redacted.

    Args:
        store: Keeps one pointer per key.
        query_id: The query in the store. Other queries are neither read nor listed.
    """

    def __init__(self, store: ContextPointerStore, *, query_id: str = "strands") -> None:
        self._store, self._query_id = store, query_id

    async def write(self, key: str, data: bytes) -> None:
        """Store the bytes under a key and replace earlier ones.

        Raises:
            StorageError: If the store fails, or the key is too long or contains a secret.
        """
        args = {"name": key}
        # Redacted keys could become the same key.
        if len(key) > _MAX_KEY_CHARS or self._store.redactor.args(args) != args:
            raise StorageError(
                f"keys have up to {_MAX_KEY_CHARS:,} characters and no secrets; use another one"
            )
        result: Any
        try:
            result = data.decode()
        except UnicodeDecodeError:
            # Results are JSON, which has no bytes.
            result = {"base64": base64.b64encode(data).decode()}
        query_id = self._query_id
        with _storage_errors():
            await self._store.save(
                query_id=query_id, task_id=None, tool_name="storage", args=args, result=result
            )

    async def read(self, key: str) -> bytes | None:
        """Return the bytes of a key, or None. Raises `StorageError`."""
        with _storage_errors():
            pointer = (await self._pointers()).get(key)
            if pointer is None:
                return None
            result = await in_thread(self._store.load_result, pointer=pointer)
        # `write` stores a dict for bytes only.
        if isinstance(result, dict):
            return base64.b64decode(result["base64"])
        return str(result).encode()

    async def delete(self, key: str) -> None:
        """Remove a key. Do nothing if it does not exist. Raises `StorageError`."""
        with _storage_errors():
            if pointer := (await self._pointers()).get(key):
                ids = [pointer.pointer_id]
                await in_thread(
                    self._store.delete, query_id=self._query_id, pointer_ids=ids, remember=False
                )

    async def search(self, query: str) -> list[StorageSearchResult]:
        """Return up to 20 keys whose bytes contain words of the query, best first.

        Raises `StorageError`.
        """
        keys: dict[str, str] = {}
        with _storage_errors():
            for key, pointer in (await self._pointers()).items():
                keys[pointer.pointer_id] = key
            search = await in_thread(
                find_pointers,
                self._store,
                query,
                query_id=self._query_id,
                pointer_ids=keys,
                limit=_MAX_MATCHES,
                in_results=True,
            )
        return [
            StorageSearchResult(keys[match.pointer.pointer_id], match.score)
            for match in search.matches
        ]

    async def list(self, query: str = "") -> list[str]:
        """Return the keys that begin with `query`, sorted. Raises `StorageError`."""
        with _storage_errors():
            return sorted(key for key in await self._pointers() if key.startswith(query))

    async def _pointers(self) -> dict[str, ContextPointer]:
        pointers: dict[str, ContextPointer] = {}
        for pointer in await in_thread(self._store.list, query_id=self._query_id):
            # An application may save other results under the same query.
            if pointer.tool_name == "storage":
                pointers[str(pointer.args["name"])] = pointer
        return pointers


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except StoreError as exc:
        raise StorageError(str(exc)) from exc
