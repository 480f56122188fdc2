"""Test that whoever is handed a pointer can read it.

`HookPromises` shows it with each framework that has a module of hooks. New hooks have to keep it.
"""

import re
from pathlib import Path

import pytest

import llm_common.integrations
from llm_common.agents import (
    InMemoryContextPointerStore,
    OffloadPolicy,
    Session,
    SessionConfig,
    Sessions,
)
from llm_common.errors import ToolFailedError
from llm_common.integrations.delegation import calling, inlined, session_of_caller
from llm_common.integrations.translation import read_back

MODULES = Path(llm_common.integrations.__file__).parent


@pytest.mark.parametrize(
    "framework",
    [
        path.stem
        for path in Path(__file__).parent.glob("*.txt")
        if (MODULES / f"{path.stem}.py").exists()
    ],
)
def test_the_hooks_of_every_framework_hand_pointers_on_t_08(framework: str) -> None:
    tests = Path(__file__).with_name(f"test_{framework}.py").read_text(encoding="utf-8")
    assert re.search(r"^class Test\w+\((Hook|Folding)Promises\b", tests, re.MULTILINE)


async def test_an_inlined_text_has_the_results_that_it_names_t_08() -> None:
    session = Session(InMemoryContextPointerStore())
    short = await session.results.save("all is well", tool="check", args={})
    long = await session.results.save(
        "begin " + "word " * 50_000 + "end", tool="check", args={"n": 1}
    )
    args = {"task": f"Compare {short.pointer_id} and {long.pointer_id}.", "depth": 3, "list": ["a"]}
    result = await inlined(session, args)
    assert result["task"].startswith(args["task"])
    assert "all is well" in result["task"]
    assert f"The result {long.pointer_id}, 250,009 characters:" in result["task"]
    assert "begin" in result["task"]
    assert "word end\n" in result["task"]
    assert session.config.counter.count(result["task"]) < 2_500
    assert (result["depth"], result["list"]) == (3, ["a"])


async def test_an_inlined_result_has_at_most_the_tokens_of_a_whole_one() -> None:
    config = SessionConfig(offload=OffloadPolicy(max_whole_tokens=50))
    session = Session(InMemoryContextPointerStore(), config=config)
    pointer = await session.results.save("a b c d " * 40, tool="check", args={})
    text = await inlined(session, pointer.pointer_id)
    assert config.counter.count(text) < 150
    assert "characters left out" in text or "…" in text


async def test_an_inlined_text_has_nothing_of_another_session() -> None:
    store = InMemoryContextPointerStore()
    pointer = await Session(store, session_id="alice").results.save("secret", tool="t", args={})
    text = f"Read {pointer.pointer_id}"
    assert await inlined(Session(store, session_id="bob"), text) == text


def test_a_session_is_handed_on_within_a_call_only() -> None:
    sessions = Sessions(InMemoryContextPointerStore())
    alice = sessions.get("alice")
    assert session_of_caller(sessions) is None
    with calling(alice):
        assert session_of_caller(sessions) is alice
        with calling(sessions.get()):
            assert session_of_caller(sessions) is sessions.get()
        other = session_of_caller(Sessions(sessions.store))
        assert other is not None
        assert (other.session_id, other.store) == ("alice", sessions.store)
    assert session_of_caller(sessions) is None


async def test_a_delegate_with_its_own_session_reads_what_its_caller_names_t_08() -> None:
    sessions = Sessions(InMemoryContextPointerStore())
    ann, delegate = sessions.get("ann"), sessions.get("delegate")
    rows = [{"id": number, "price": number} for number in range(900)]
    named = await ann.offload(rows, tool="list_prices", args={})
    other = await ann.offload(rows, tool="list_costs", args={})
    args = {"task": f"Sum up list_prices_{str(named.pointer_id)[:6]}"}
    with calling(ann, args), calling(delegate, {"id": other.pointer_id}):
        assert '"price":7' in await read_back(
            delegate, "read_context", {"id": named.pointer_id, "path": "/7"}
        )
        with pytest.raises(ToolFailedError, match="no stored result of this session"):
            await read_back(delegate, "read_context", {"id": other.pointer_id})
        sql = f"SELECT * FROM list_costs_{str(other.pointer_id)[:6]}"
        with pytest.raises(ToolFailedError, match="no such table"):
            await read_back(delegate, "query_context", {"sql": sql})
    await delegate.clear()
    assert (await ann.read(named.pointer_id, path="/7/price")).text == "7"


async def test_a_conversation_outside_of_a_call_takes_nothing_over_t_08() -> None:
    sessions = Sessions(InMemoryContextPointerStore())
    ann, ben = sessions.get("ann"), sessions.get("ben")
    shown = await ann.offload("secret words " * 2_000, tool="read_mail", args={})
    with calling(ann, {"task": f"Read {shown.pointer_id}"}):
        pass
    with (
        calling(ben, {"task": f"Read {shown.pointer_id}"}),
        pytest.raises(ToolFailedError, match="no stored result of this session"),
    ):
        await read_back(ben, "read_context", {"id": shown.pointer_id})
