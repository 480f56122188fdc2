"""How a command finds its store, a query and a pointer."""

import json
from pathlib import Path

import pytest

from llm_common.agents import ToolContextManager
from tests.apps.cli.running import run, run_json

QUESTION = "Which orders were refused? All of them, please."


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store with an output of a question, and one of a question in a session."""
    folder = tmp_path / "shop" / "context"
    manager = ToolContextManager(folder)
    await manager.save_context(
        "list_orders", {}, [{"order": 1}], query_id=ToolContextManager.hash_query(QUESTION)
    )
    named = ToolContextManager(folder, session_id="user:42")
    await named.save_context(
        "list_parts", {}, [{"part": 1}], query_id=named.query_id_of("Which parts?")
    )
    monkeypatch.chdir(tmp_path)
    return folder


def pointer_of(folder: Path, question: str) -> str:
    [pointer] = run_json("context list", question, "--store", folder)["pointers"]
    return str(pointer["pointer_id"])


def test_a_question_names_its_query_as_its_id_does(store: Path) -> None:
    by_id = ToolContextManager.hash_query(QUESTION)
    assert run_json("context list", QUESTION, "--store", store) == run_json(
        "context list", by_id, "--store", store
    )
    # Case and spaces at the ends do not count, as for the hash.
    assert pointer_of(store, f" {QUESTION.upper()} ") == pointer_of(store, by_id)


def test_the_question_of_a_run_in_a_session_names_its_query(store: Path) -> None:
    assert run_json("context list", "Which parts?", "--store", store)["query_id"].startswith(
        "user:42/q_"
    )


@pytest.mark.parametrize("arguments", ["list", "show 3ac5", "read 3ac5", "query", "erase --yes"])
def test_a_query_that_is_not_stored_is_named_and_ends_with_3(store: Path, arguments: str) -> None:
    command, *others = arguments.split()
    others += ["SELECT 1"] if command == "query" else []
    for text in ("Is it? No!", "user:43"):
        result = run("context", command, text, *others, "--store", store, code=3)
        assert f"There is no query '{text}' in the store" in result.stderr
        assert result.stdout == ""
    document = run("context", "list", "user:43", "--json", "--store", store, code=3).stdout
    assert json.loads(document)["pointers"] == []


@pytest.mark.parametrize("command", ["show", "read"])
def test_the_first_digits_name_a_pointer(store: Path, command: str) -> None:
    pointer = pointer_of(store, QUESTION)
    whole = run("context", command, QUESTION, pointer, "--store", store).stdout
    assert run("context", command, QUESTION, pointer[:4], "--store", store).stdout == whole
    wrong = "0000" if not pointer.startswith("0000") else "1111"
    assert wrong in run("context", command, QUESTION, wrong, "--store", store, code=3).output
    assert "first 4" in run("context", command, QUESTION, "abc", "--store", store, code=2).output


async def test_digits_of_several_pointers_name_them(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    beginnings: dict[str, str] = {}
    for number in range(2_000):
        pointer = await manager.save_context("lookup", {"n": number}, number, query_id="q")
        earlier = beginnings.setdefault(pointer.pointer_id[:4], pointer.pointer_id)
        if earlier != pointer.pointer_id:
            break
    else:
        pytest.fail("no two ids have the same beginning")
    output = run("context", "show", "q", earlier[:4], "--store", tmp_path, code=2).output
    assert earlier in output.replace("\n", "")
    assert pointer.pointer_id in output.replace("\n", "")


def test_the_query_that_a_session_recorded_is_listed_by_its_name(store: Path) -> None:
    [query] = [
        entry
        for entry in run_json("context list", "--store", store)["queries"]
        if "/" in entry["query_id"]
    ]
    listed = run("context", "list", "user:42", "--store", store).stdout
    assert f"a query of this session: {query['query_id']}" in listed
