"""`Sessions`: the conversations of a framework over one store."""

import copy
import time
from pathlib import Path

import pytest

from llm_common.agents import InMemoryContextPointerStore, Session, Sessions
from llm_common.errors import PointerNotFoundError

ROWS = [{"id": number, "name": f"part {number}", "stock": number * 7} for number in range(2_000)]


async def offload(session: Session) -> str:
    shown = await session.offload(ROWS, tool="list_parts", args={})
    assert shown.pointer_id is not None
    return shown.pointer_id


@pytest.mark.parametrize(
    ("conversation_id", "is_kept"),
    [
        ("user:42", True),
        ("thread 1", True),
        ("../etc", False),
        ("x" * 300, False),
        ("x" * 190, False),  # the ids of its runs would be too long
        (7, False),
        (("app", "user"), False),
    ],
)
def test_a_session_has_the_name_of_the_framework_if_the_store_takes_it_t_02(
    conversation_id: object, is_kept: bool
) -> None:
    session = Sessions().get(conversation_id)
    assert (session.session_id == conversation_id) is is_kept
    assert session.session_id == Sessions().session_id_of(conversation_id)


def test_two_names_never_share_a_session_t_02() -> None:
    sessions = Sessions()
    names: list[object] = [
        "a",
        "../etc",
        ("a", "b"),
        "('a', 'b')",
        '["a","b"]',
        7,
        "7",
        sessions.session_id_of("../etc"),
        "\ud800",
    ]
    assert len({sessions.get(name).session_id for name in names}) == len(names)


def test_without_a_name_each_object_is_a_session() -> None:
    sessions, other = Sessions(), Sessions()
    assert sessions.get() is sessions.get("")
    assert sessions.session_id_of(None) == sessions.get().session_id != other.get().session_id


async def test_a_session_cannot_read_or_find_what_another_stored_t_01() -> None:
    sessions = Sessions()
    pointer_id = await offload(sessions.get("user:42"))
    with pytest.raises(PointerNotFoundError):
        await sessions.get("user:43").read(pointer_id)
    assert await sessions.get("user:43").search("part 1999") == ()
    assert (await sessions.get("user:42").read(pointer_id, path="/3")).text


async def test_a_folder_keeps_the_sessions_of_a_process_for_the_next_t_02(tmp_path: Path) -> None:
    pointer_id = await offload(Sessions(tmp_path).get("user:42"))
    assert "part 3" in (await Sessions(tmp_path).get("user:42").read(pointer_id, path="/3")).text


async def test_a_deep_copy_shares_the_sessions() -> None:
    sessions = Sessions()
    pointer_id = await offload(copy.deepcopy({"sessions": sessions})["sessions"].get("a"))
    assert (await sessions.get("a").read(pointer_id)).total_chars


def test_one_object_serves_several_hooks() -> None:
    sessions = Sessions()
    assert Sessions.over(sessions) is sessions
    assert Sessions.over(sessions.store).store is sessions.store


@pytest.mark.parametrize("is_given", [False, True])
async def test_only_a_store_of_its_own_is_collected_hourly(
    is_given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(InMemoryContextPointerStore() if is_given else None)
    await sessions.store.save(query_id="old", tool_name="tool", args={}, result=ROWS, ttl_s=1e-9)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 7_200.0)
    await offload(sessions.get("a"))
    assert ((await sessions.store.gc()).expired == 1) is is_given


def test_a_store_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="store is a int; pass a ContextPointerStore"):
        Sessions(3)  # type: ignore[arg-type]
