"""`UserMemory`: one user's part of a memory, as prompts use it."""

from typing import Any, Self

import pytest

from llm_common.errors import InvalidIdError
from llm_common.memory import Event, FactMemory, InMemoryMemory, Memory, MemoryFilters, UserMemory
from llm_common.prompt import ContextBuilder, TokenBudget, TriggerInput


async def test_a_prompt_holds_the_lines_of_its_user_alone_s3_02_s3_04() -> None:
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


async def test_closing_a_users_part_leaves_the_memory_open_s3_05() -> None:
    memory = InMemoryMemory()
    async with UserMemory(memory, "ann") as hers:
        kept = await hers.append_event("s", Event(text="zebra"), key="k")
    assert await hers.append_event("s", Event(text="lion"), supersedes=kept) != kept
    assert [event.text for event in await hers.recent("s", history=True)] == ["zebra", "lion"]
    assert await hers.summarize_episode("s") == "user: lion"
    assert await memory.recent("s") == []


@pytest.mark.parametrize("user", ["", " ", "a\nb", None, 5])
def test_what_is_no_user_is_refused_s3_04(user: Any) -> None:
    with pytest.raises(InvalidIdError, match=r"the user .* is not allowed"):
        UserMemory(InMemoryMemory(), user)


async def test_filters_of_another_kind_are_type_errors_s3_04() -> None:
    wrong: Any = None
    with pytest.raises(TypeError, match="filters is a NoneType; pass MemoryFilters"):
        await UserMemory(InMemoryMemory(), "ann").retrieve("zebra", 4, wrong)


class Older:
    """A memory of someone else, with the methods of `Memory` alone."""

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


def test_a_memory_without_facts_is_a_memory_still_s3_04() -> None:
    older: Memory = Older()
    assert isinstance(older, Memory)
    assert not isinstance(older, FactMemory)
    assert isinstance(UserMemory(InMemoryMemory(), "ann"), Memory)
    assert isinstance(InMemoryMemory(), FactMemory)
