"""`UserMemory`: what one user's code gets to see of a memory."""

from datetime import datetime
from types import TracebackType
from typing import Self

from llm_common.memory.entry import check_user
from llm_common.memory.protocol import Event, FactMemory, MemoryFilters, MemoryHit


class UserMemory:
    """A `Memory` of one user's sessions, on a memory of many users.

    Its holder reaches no other user's events, whatever session ids, event ids and filters are
    passed. It costs nothing to make. `ContextBuilder` and `Answering` take it as they take any
    memory.

    Args:
        memory: The memory of all users; it stays open when this one is closed.
        user: The user.

    Raises:
        InvalidIdError: The user is blank, over 200 characters or not printable.
    """

    def __init__(self, memory: FactMemory, user: str) -> None:
        check_user(user)
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
        """Keeps the event in the user's session; see `FactMemory.append_event`."""
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
        """The newest events of the user's session, oldest first; see `FactMemory.recent`."""
        return await self._memory.recent(session_id, limit=limit, user=self._user, history=history)

    async def summarize_episode(self, session_id: str) -> str | None:
        """The summary of the user's session; see `FactMemory.summarize_episode`."""
        return await self._memory.summarize_episode(session_id, user=self._user)

    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
        """The user's events that match, whatever user the filters name.

        See `MemoryReader.retrieve`.
        """
        if isinstance(filters, MemoryFilters):  # the memory refuses other kinds
            filters = filters.model_copy(update={"user": self._user})
        return await self._memory.retrieve(query, k, filters)

    async def forget(
        self,
        *,
        session_id: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of a hit's field
    ) -> int:
        """Erases the user's events that agree with every argument, all without one.

        See `FactMemory.forget`.
        """
        return await self._memory.forget(session_id=session_id, user=self._user, id=id)

    async def aclose(self) -> None:
        """Closes nothing; the memory of all users stays open."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
