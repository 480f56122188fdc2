"""Defines `UserMemory`, which limits a memory to the sessions of one user."""

from datetime import datetime

from llm_common.memory.entry import check_id
from llm_common.memory.protocol import Event, FactMemory, Memory, MemoryFilters, MemoryHit


class UserMemory(Memory):
    """A `Memory` of one user's sessions, on a memory of many users.

    Other users' events cannot be reached, whatever session ids, event ids and filters are passed.
    It holds no resources. `ContextBuilder` and `Answering` accept it like any memory.

    Args:
        memory: The memory of all users. It stays open when this one is closed.
        user: The user.

    Raises:
        InvalidIdError: If the user is blank, over 200 characters or not printable.
    """

    def __init__(self, memory: FactMemory, user: str) -> None:
        check_id("user", user)
        self._memory = memory
        self._user = user

    async def append_event(
        self,
        session_id: str,
        event: Event,
        *,
        key: str | None = None,
        supersedes: str | None = None,
        valid_until: datetime | None = None,
    ) -> str:
        """Store the event in the user's session. See `FactMemory.append_event`."""
        return await self._memory.append_event(
            session_id,
            event,
            user=self._user,
            key=key,
            supersedes=supersedes,
            valid_until=valid_until,
        )

    async def recent(
        self, session_id: str, *, limit: int = 20, history: bool = False
    ) -> list[Event]:
        """Return the newest events of the user's session, oldest first. See `FactMemory.recent`."""
        return await self._memory.recent(session_id, limit=limit, user=self._user, history=history)

    async def summarize_episode(self, session_id: str) -> str | None:
        """Summarize the user's session. See `FactMemory.summarize_episode`."""
        return await self._memory.summarize_episode(session_id, user=self._user)

    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
        """Return the user's events that match, whatever user is in the filters.

        See `MemoryReader.retrieve`.
        """
        if isinstance(filters, MemoryFilters):  # else the memory raises the TypeError
            # Replaced, not checked: code of one user need not know its user.
            filters = filters.model_copy(update={"user": self._user})
        return await self._memory.retrieve(query, k, filters)

    async def forget(
        self,
        *,
        session_id: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of a hit's field
    ) -> int:
        """Erase the user's events that match every argument. Without arguments, erase them all.

        See `FactMemory.forget`.
        """
        return await self._memory.forget(session_id=session_id, user=self._user, id=id)

    async def aclose(self) -> None:
        """Do nothing: the memory of all users stays open."""
