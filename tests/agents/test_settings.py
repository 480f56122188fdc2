"""Settings come from the environment, and `doctor` says what is wrong with it."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from llm_common._env import VARIABLES
from llm_common.agents import (
    Answering,
    FileContextPointerStore,
    OffloadPolicy,
    RunLimits,
    SessionConfig,
    Settings,
    TokenBudget,
    ToolSelectionConfig,
    doctor,
)
from llm_common.errors import ConfigError
from llm_common.history import FoldPolicy
from tests.storage.test_files import as_nobody


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [*os.environ]:
        if name.startswith("LLM_COMMON_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LLM_COMMON_POINTER_STORE_DIR", str(tmp_path / "store"))


def test_without_variables_the_settings_are_the_librarys_defaults() -> None:
    assert Settings.from_env() == Settings()
    assert Settings() == Settings(
        tool_selection=ToolSelectionConfig(),
        budget=Answering().budget,
        limits=RunLimits(),
        offload=OffloadPolicy(),
        fold=SessionConfig().fold or FoldPolicy(),
    )


def test_every_variable_sets_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "TOOL_SELECTION_MAX_CALLS": "3",
        "BUDGET_MAX_INPUT_TOKENS": "4000",
        "BUDGET_MAX_OUTPUT_TOKENS": "300",
        "RUN_MAX_CALLS": "20",
        "RUN_MAX_TOKENS": "50000",
        "RUN_MAX_COST_USD": "0.5",
        "RUN_TIMEOUT_S": "90",
        "RUN_MAX_ROUNDS": "2",
        "RUN_MAX_PARALLEL": "4",
        "RUN_MAX_OUTPUTS_TOKENS": "0",
        "OFFLOAD_MAX_WHOLE_TOKENS": "500",
        "OFFLOAD_MAX_PREVIEW_TOKENS": "200",
        "OFFLOAD_MAX_TURN_TOKENS": "5000",
        "FOLD_MAX_TOKENS": "9000",
        "FOLD_TARGET_SHARE": "0.5",
        "FOLD_NOTE_SHARE": "0.1",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"LLM_COMMON_{name}", value)
    assert Settings.from_env() == Settings(
        tool_selection=ToolSelectionConfig(max_calls=3),
        budget=TokenBudget(max_input_tokens=4000, max_output_tokens=300),
        limits=RunLimits(
            max_calls=20,
            max_tokens=50_000,
            max_cost_usd=0.5,
            timeout_s=90,
            max_rounds=2,
            max_parallel=4,
            max_outputs_tokens=0,
        ),
        offload=OffloadPolicy(max_whole_tokens=500, max_preview_tokens=200, max_turn_tokens=5000),
        fold=FoldPolicy(max_tokens=9000, target_share=0.5, note_share=0.1),
    )


@pytest.mark.parametrize(
    "name",
    [
        variable.name
        for variable in VARIABLES
        if variable.name.split("_")[2] in {"BUDGET", "RUN", "OFFLOAD", "FOLD"}
    ]
    + ["LLM_COMMON_TOOL_SELECTION_MAX_CALLS", "LLM_COMMON_CONTEXT_SELECTION_TIMEOUT_S"],
)
def test_a_malformed_variable_is_named_when_settings_are_made(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "many")
    with pytest.raises(ConfigError, match=rf"^{name} is 'many'\. Set it to a ") as caught:
        Settings.from_env()
    assert caught.value.variable == name


LIMITS = [
    ("BUDGET_MAX_INPUT_TOKENS", ("0", "10000000"), ("-1", "10000001")),
    ("BUDGET_MAX_OUTPUT_TOKENS", ("0", "10000000"), ("-1", "10000001")),
    ("RUN_MAX_CALLS", ("1", "1000000"), ("0", "1000001")),
    ("RUN_MAX_TOKENS", ("1", "10000000"), ("0", "10000001")),
    ("RUN_MAX_COST_USD", ("0.000001", "1000000"), ("0.0000009", "1000000.1")),
    ("RUN_TIMEOUT_S", ("0.1", "604800"), ("0.09", "604801")),
    ("RUN_MAX_ROUNDS", ("1", "1000"), ("0", "1001")),
    ("RUN_MAX_PARALLEL", ("1", "1000"), ("0", "1001")),
    ("RUN_MAX_OUTPUTS_TOKENS", ("0", "10000000"), ("-1", "10000001")),
    ("OFFLOAD_MAX_WHOLE_TOKENS", ("0", "10000000"), ("-1", "10000001")),
    ("OFFLOAD_MAX_PREVIEW_TOKENS", ("0", "10000000"), ("-1", "10000001")),
    ("OFFLOAD_MAX_TURN_TOKENS", ("0", "10000000"), ("-1", "10000001")),
    ("FOLD_MAX_TOKENS", ("200", "10000000"), ("199", "10000001")),
    ("FOLD_TARGET_SHARE", ("0.2", "0.9"), ("0.19", "0.91")),
    ("FOLD_NOTE_SHARE", ("0.05", "0.5"), ("0.04", "0.51")),
]


@pytest.mark.parametrize(("name", "allowed", "refused"), LIMITS, ids=str)
def test_a_variable_is_taken_up_to_its_limits(
    name: str,
    allowed: tuple[str, str],
    refused: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for value in allowed:
        monkeypatch.setenv(f"LLM_COMMON_{name}", value)
        Settings.from_env()
    for value in refused:
        monkeypatch.setenv(f"LLM_COMMON_{name}", value)
        with pytest.raises(ConfigError) as caught:
            Settings.from_env()
        assert caught.value.variable == f"LLM_COMMON_{name}"


async def test_doctor_finds_nothing_wrong_with_defaults() -> None:
    diagnosis = await doctor(offline=True)
    assert diagnosis.problems == ()
    assert diagnosis.endpoint is None
    assert [row.name for row in diagnosis.variables] == [variable.name for variable in VARIABLES]


async def test_doctor_names_every_wrong_and_misspelled_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLM_COMMON_FOLD_MAX_TOKENS", "few")
    monkeypatch.setenv("LLM_COMMON_RUN_MAX_CALS", "9")
    told = "\n".join((await doctor(offline=True, quick=True)).problems)
    assert "LLM_COMMON_FOLD_MAX_TOKENS is 'few'" in told
    assert "Did you mean LLM_COMMON_RUN_MAX_CALLS?" in told


async def test_doctor_verifies_the_store_within_a_running_loop() -> None:
    store = FileContextPointerStore(durability="rename")
    pointer = await store.save(query_id="q", tool_name="t", args={}, result="whole")
    steps: list[str] = []
    diagnosis = await doctor(offline=True, progress=steps.append)
    assert (diagnosis.store.checked, diagnosis.store.pointers) == (True, 1)
    assert steps == ["Verifying the store", "Calling the endpoint"]
    (store.base_dir / "q" / f"{pointer.pointer_id}.result.json").write_text('"other"')
    assert (await doctor(offline=True)).problems[0].startswith("The store: 1 findings")


@pytest.mark.parametrize("quick", [False, True])
async def test_doctor_reports_a_file_in_place_of_the_store(tmp_path: Path, quick: bool) -> None:
    (tmp_path / "store").write_text("notes")
    diagnosis = await doctor(offline=True, quick=quick)
    text = f"{tmp_path / 'store'} is not a folder. Name another in LLM_COMMON_POINTER_STORE_DIR"
    assert diagnosis.problems == (f"The store: {text}",)
    assert (diagnosis.store.exists, diagnosis.store.problem) == (False, text)


def test_doctor_reports_a_folder_where_nothing_can_be_stored(
    shared_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_root.chmod(0o555)
    monkeypatch.setenv("LLM_COMMON_POINTER_STORE_DIR", str(shared_root / "new" / "store"))

    def problems() -> tuple[str, ...]:
        return asyncio.run(doctor(offline=True, quick=True)).problems

    told = repr(problems())  # also imports what another user may not be able to read
    if os.geteuid() == 0:
        told = as_nobody(problems)
    assert f"The store: Nothing can be written in {shared_root / 'new' / 'store'}" in told


async def test_doctor_shows_no_password_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_COMMON_BASE_URL", "https://ann:hunter2CANARY9f3a@api.example.test/v1")
    diagnosis = await doctor(offline=True, quick=True)
    assert "hunter2CANARY9f3a" not in repr(diagnosis)
    [row] = [row for row in diagnosis.variables if row.name == "LLM_COMMON_BASE_URL"]
    assert row.value
    assert "api.example.test" in row.value


async def test_doctor_names_an_endpoint_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    monkeypatch.setenv("LLM_COMMON_BASE_URL", f"http://127.0.0.1:{port}/v1")
    monkeypatch.setenv("LLM_COMMON_MODEL", "m")
    diagnosis = await doctor(quick=True)
    [problem] = diagnosis.problems
    assert problem.startswith(f"The endpoint 127.0.0.1:{port} did not answer: ")
