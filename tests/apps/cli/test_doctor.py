"""`llm-common doctor`: settings, store and endpoint."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llm_common._env import VARIABLES
from llm_common.agents import FileContextPointerStore
from tests.apps.cli.running import run, run_json
from tests.core.loopback import Loopback, Script, answer, loopback, ok

KEY = "sk-proj-abcdefghijklmnopqrstuvwx0123456789"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_settings_there_is_no_call_and_no_problem(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    document = run_json("doctor")
    assert [row["name"] for row in document["variables"]] == [
        variable.name for variable in VARIABLES
    ]
    assert {row["source"] for row in document["variables"]} == {"default", "unset"}
    assert (document["endpoint"], document["problems"], document["store"]["exists"]) == (
        None,
        [],
        False,
    )
    assert "none is configured" in run("doctor").stdout
    assert list(folder.iterdir()) == []


def test_a_setting_is_shown_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_COMMON_TIMEOUT_S", "12")
    rows = {row["name"]: row for row in run_json("doctor")["variables"]}
    assert (rows["LLM_COMMON_TIMEOUT_S"]["value"], rows["LLM_COMMON_TIMEOUT_S"]["source"]) == (
        "12",
        "environment",
    )
    assert rows["LLM_COMMON_TIMEOUT_S"]["default"] == "60"
    assert rows["LLM_COMMON_TOOL_SELECTION_MAX_CALLS"]["source"] == "default"
    assert "LLM_COMMON_TIMEOUT_S\t12\tenvironment" in run("doctor").stdout


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("OPENAI_API_KEY", KEY),
        ("LLM_COMMON_API_KEY", "correct-horse"),
        ("LLM_COMMON_MODEL", KEY),
    ],
)
def test_a_key_is_never_shown_even_in_another_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, key: str
) -> None:
    monkeypatch.setenv("LLM_COMMON_PROVIDER", "local")
    monkeypatch.setenv(variable, key)
    result = run("doctor", "--offline")
    assert key not in result.output + str(run_json("doctor", "--offline"))
    assert f"{variable}\t" in result.stdout


@asynccontextmanager
async def endpoint(monkeypatch: pytest.MonkeyPatch, *scripts: Script) -> AsyncIterator[Loopback]:
    """Serve an endpoint that the settings name."""
    async with loopback(*scripts) as server:
        monkeypatch.setenv("LLM_COMMON_BASE_URL", server.config().base_url)
        monkeypatch.setenv("LLM_COMMON_MODEL", "small")
        monkeypatch.setenv("LLM_COMMON_API_KEY", KEY)
        yield server


async def test_doctor_asks_an_endpoint_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    async with endpoint(monkeypatch, answer(200, ok("yes"))) as server:
        document = await asyncio.to_thread(run_json, "doctor")
        offline = await asyncio.to_thread(run_json, "doctor", "--offline")
    assert len(server.requests) == 1
    assert document["endpoint"]["answers"] is True
    assert document["endpoint"]["latency_ms"] >= 0
    assert offline["endpoint"]["asked"] is False


@pytest.mark.parametrize("status", [401, 418])
async def test_a_failing_endpoint_is_a_problem_without_its_key(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    refusal = answer(status, json.dumps({"error": {"message": f"no {KEY}"}}).encode())
    async with endpoint(monkeypatch, refusal):
        document = await asyncio.to_thread(run_json, "doctor", code=1)
    assert document["endpoint"]["answers"] is False
    assert document["endpoint"]["problem"] in document["problems"][0]
    assert KEY not in json.dumps(document)


async def test_an_unreachable_endpoint_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    async with endpoint(monkeypatch):
        pass
    document = await asyncio.to_thread(run_json, "doctor", code=1)
    assert document["endpoint"]["answers"] is False
    assert "did not answer" in document["problems"][0]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LLM_COMMON_TIMEOUT_S", "soon"),
        ("LLM_COMMON_TOOL_SELECTION_MAX_CALLS", "many"),
        ("LLM_COMMON_CONTEXT_SELECTION_FAIL_CLOSED", "perhaps"),
        ("LLM_COMMON_CONTEXT_SELECTION_TIMEOUT_S", "-1"),
        ("LLM_COMMON_CONTEXT_SELECTION_MAX_POINTERS", "x"),
        ("LLM_COMMON_TIMOUT_S", "12"),
        ("LLM_COMMON_POINTER_STORE_DIR", "~nobody-of-that-name/store"),
    ],
)
def test_a_wrong_setting_is_reported_beside_all_settings(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    document = run_json("doctor", "--offline", code=1)
    assert variable in " ".join(document["problems"])
    assert len(document["variables"]) == len(VARIABLES)
    assert "Problem: " in run("doctor", "--offline", code=1).stdout


def test_a_damaged_store_is_reported_and_not_changed(folder: Path) -> None:
    store = FileContextPointerStore(durability="rename")
    pointer = asyncio.run(store.save(query_id="q", task_id=1, tool_name="t", args={}, result=1))
    assert run_json("doctor")["store"]["pointers"] == 1
    result = store.base_dir / "q" / f"{pointer.pointer_id}.result.json"
    result.write_text("2")
    document = run_json("doctor", code=1)
    assert "1 findings" in document["store"]["problem"]
    assert document["problems"] == [f"The store: {document['store']['problem']}"]
    assert result.read_text() == "2"
    assert run_json("doctor", "--quick")["store"]["checked"] is False


def test_a_store_that_is_not_a_folder_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("LLM_COMMON_POINTER_STORE_DIR", str(tmp_path / "file"))
    document = run_json("doctor", "--offline", code=1)
    assert document["store"]["exists"] is False
    assert document["problems"] == [f"The store: {document['store']['problem']}"]
    assert (
        "is not a folder. Name another in LLM_COMMON_POINTER_STORE_DIR" in document["problems"][0]
    )
