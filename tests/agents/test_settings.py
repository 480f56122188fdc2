"""Settings come from the environment, and `doctor` says what is wrong with it."""

import os
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


async def test_doctor_finds_nothing_wrong_with_defaults() -> None:
    diagnosis = await doctor(offline=True)
    assert diagnosis.problems == ()
    assert diagnosis.endpoint is None
    assert [row.name for row in diagnosis.variables] == [variable.name for variable in VARIABLES]


async def test_doctor_names_every_wrong_and_misspelled_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLM_COMMON_FOLD_MAX_TOKENS", "few")
    monkeypatch.setenv("LLM_COMMON_DECISION_WIRE", "tin")
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
