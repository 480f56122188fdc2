"""Keep the items of a conversation in a pointer store: `StoredItems`."""

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from llm_common.agents import ContextPointer, Sessions
from llm_common.runtime import in_thread

_ITEMS: Final = "session_items"


class StoredItems:
    """The items of one conversation, in the order in which they were added.

    Tools that read back cannot reach the items, and the items never expire. If two writers add
    items at the same time, all of them are stored, in either order.

    Args:
        sessions: Their store keeps the items.
        conversation_id: The framework's name of the conversation.
    """

    def __init__(self, sessions: Sessions, conversation_id: str) -> None:
        self._store = sessions.store
        # A tuple is hashed, so no session can have this id and read the items.
        self._query_id = sessions.session_id_of((_ITEMS, conversation_id))

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the newest items, oldest first, or all of them.

        Raises `StoreError` if one cannot be read.
        """
        items: list[Any] = []
        for _, batch in await in_thread(self._batches):
            items += batch
        if limit is None:
            return items
        # Not `items[-limit:]`, which is the whole list if the limit is 0.
        return items[max(len(items) - limit, 0) :]

    async def add_items(self, items: list[Any]) -> None:
        """Add plain data after the last item. Raises `StoreError` if it cannot be stored."""
        if items:
            pointers = await in_thread(self._pointers)
            batch = pointers[-1].args["batch"] + 1 if pointers else 1
            # Two writers may pick the same batch. A random name keeps their pointers apart.
            await self._save({"batch": batch, "writer": secrets.token_hex(4)}, items)

    async def pop_item(self) -> Any:
        """Remove the last item and return it, or return None if there are no items.

        Raises `StoreError` if it cannot be read or removed.
        """
        batches = await in_thread(self._batches)
        if not batches:
            return None
        pointer, items = batches[-1]
        if len(items) > 1:
            # The same arguments are the same call, so this replaces the batch.
            await self._save(pointer.args, items[:-1])
        else:
            ids = {pointer.pointer_id}
            await in_thread(
                self._store.delete, query_id=self._query_id, pointer_ids=ids, remember=False
            )
        return items[-1]

    async def clear_session(self) -> None:
        """Remove all items. Stored results stay. Raises `StoreError`."""
        # Items are listed and never looked up, so no lookup has to report them as erased.
        await in_thread(self._store.delete, query_id=self._query_id, remember=False)

    def _pointers(self) -> list[ContextPointer]:
        """Return the pointers of all batches, in the order of `add_items`."""
        pointers = self._store.list(query_id=self._query_id)
        return sorted(pointers, key=lambda pointer: (pointer.args["batch"], pointer.args["writer"]))

    def _batches(self) -> list[tuple[ContextPointer, list[Any]]]:
        return [(pointer, self._store.load_result(pointer=pointer)) for pointer in self._pointers()]

    async def _save(self, args: Mapping[str, Any], items: Sequence[Any]) -> None:
        await self._store.save(
            query_id=self._query_id,
            task_id=None,
            tool_name=_ITEMS,
            args=dict(args),
            result=[*items],
            ttl_s=math.inf,  # else the store's own lifetime applies
        )
