"""Tests `UserMemory`, also as the memory of a prompt."""

from typing import Any, Self

import pytest

from llm_common.errors import InvalidIdError
from llm_common.memory import Event, FactMemory, InMemoryMemory, Memory, MemoryFilters, UserMemory
from llm_common.prompt import ContextBuilder, TokenBudget, TriggerInput


async def test_a_prompt_contains_events_of_its_user_alone_s3_02_s3_04() -> None:
    memory = InMemoryMemory()
    hers, his = UserMemory(memory, "ann"), UserMemory(memory, "bob")
    await hers.append_event("chat", Event(text="The zebra is hers."))
    await his.append_event("chat", Event(text="The zebra is his."))
    await memory.append_event("chat", Event(text="The zebra is theirs."))
    for part, line in ((hers, "is hers"), (his, "is his"), (memory, "is theirs")):
        trigger = TriggerInput(session_id="chat", goal="Whose zebra?", budget=TokenBudget())
        bundle = await ContextBuilder(part, part).build(trigger)
        text = "\n".join(bundle.context_docs)
        assert [owner for owner in ("is hers", "is his", "is theirs") if owner in text] == [line]


async def test_closing_a_user_memory_leaves_the_memory_open_s3_05() -> None:
    memory = InMemoryMemory()
    async with UserMemory(memory, "ann") as hers:
        event_id = await hers.append_event("s", Event(text="zebra"), key="k")
    assert await hers.append_event("s", Event(text="lion"), supersedes=event_id) != event_id
    assert [event.text for event in await hers.recent("s", history=True)] == ["zebra", "lion"]
    assert await hers.summarize_episode("s") == "user: lion"
    assert await memory.recent("s") == []


@pytest.mark.parametrize("user", ["", " ", "a\nb", None, 5])
def test_an_invalid_user_raises_s3_04(user: Any) -> None:
    with pytest.raises(InvalidIdError, match=r"the user .* is not allowed"):
        UserMemory(InMemoryMemory(), user)


async def test_filters_of_a_wrong_type_raise_s3_04() -> None:
    wrong: Any = None
    with pytest.raises(TypeError, match="filters must be MemoryFilters, got NoneType"):
        await UserMemory(InMemoryMemory(), "ann").retrieve("zebra", 4, wrong)


class PlainMemory:
    """A third-party memory with the methods of `Memory` alone."""

    async def append_event(self, session_id: str, event: Event) -> None: ...

    async def summarize_episode(self, session_id: str) -> str | None: ...

    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[Any]:
        return []

    async def recent(self, session_id: str, *, limit: int = 20) -> list[Event]:
        return []

    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...


def test_a_memory_without_facts_is_a_memory_s3_04() -> None:
    plain: Memory = PlainMemory()
    assert isinstance(plain, Memory)
    assert not isinstance(plain, FactMemory)
    assert isinstance(UserMemory(InMemoryMemory(), "ann"), Memory)
    assert isinstance(InMemoryMemory(), FactMemory)
