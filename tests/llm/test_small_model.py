"""A model of 135 million parameters need not choose well; it must never break fail-closed.

Prints what the model answered, so that a person can judge it: `make test-llm`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from llm_common.agents import (
    ContextRelevanceSelector,
    FileContextPointerStore,
    PlannedTask,
    ToolRegistry,
    ToolSelectionConfig,
    ToolSelector,
)
from llm_common.core import LLMConfig, LLMMessage, OpenAICompatibleClient
from llm_common.core.structured import Attempt, ask
from llm_common.errors import MalformedReplyError

pytestmark = pytest.mark.llm

TIMEOUT_S = 120
WEATHER = {"Oslo": "Snow all day, -3 degrees", "Lima": "Fog, 18 degrees", "Cairo": "Clear, 29 degrees"}


def report(what: str, value: object) -> None:
    print(f"\n--- {what}: {value}")  # noqa: T201 - for the person who runs it


async def test_the_relevance_selector_returns_candidates_or_nothing(
    client: OpenAICompatibleClient, tmp_path: Path
) -> None:
    store = FileContextPointerStore(tmp_path)
    for city, text in WEATHER.items():
        await store.save(query_id="q", task_id=None, tool_name="weather", args={"query": city}, result=text)
    pointers = store.list(query_id="q")
    async with client:
        selector = ContextRelevanceSelector(client, timeout_s=TIMEOUT_S)
        selection = await selector.select_detailed(query="Is it snowing in Oslo?", pointers=pointers)
    report("relevance", selection)
    assert set(selection.pointers) <= set(pointers) if selection.status == "ok" else selection.pointers == []


async def test_the_tool_selector_returns_valid_calls_or_nothing(client: OpenAICompatibleClient) -> None:
    registry = ToolRegistry()

    @registry.tool
    def weather(city: str) -> str:
        """Today's weather in a city."""
        return WEATHER[city]

    @registry.tool
    def add(a: int, b: int) -> int:
        """The sum of two numbers."""
        return a + b

    async with client:
        selector = ToolSelector(client, ToolSelectionConfig(model="smollm2", timeout_s=TIMEOUT_S))
        selection = await selector.select_detailed(
            task=PlannedTask(id=1, description="What is the weather in Oslo?"), tool_registry=registry
        )
    report("tools", selection)
    assert len(selection.attempts) <= 2
    assert {call.tool for call in selection.calls} <= {"weather", "add"}
    if selection.failed:
        assert selection.calls == ()


async def test_a_reply_cut_by_max_tokens_is_recognised(config: LLMConfig) -> None:
    class Reply(BaseModel):
        words: list[str]

    attempts: list[Attempt] = []
    async with OpenAICompatibleClient(config.model_copy(update={"max_tokens": 12})) as client:
        with pytest.raises(MalformedReplyError) as caught:
            await ask(
                client,
                [LLMMessage(role="user", content='List one hundred fruits as {"words": ["apple", "pear", ...]}.')],  # type: ignore[arg-type]
                reply_model=Reply,
                model=None,
                timeout_s=TIMEOUT_S,
                attempts=attempts,
            )
    report("cut reply", (caught.value.reason, attempts))
    assert caught.value.reason == "cut"
    assert attempts[0].usage is not None
    assert attempts[0].usage.completion_tokens == 12


def test_the_demo_runs_against_the_model_and_says_so(endpoint: str, tmp_path: Path) -> None:
    for name, text in {"escape.py": "def escape(text): ...", "parse.py": "def parse(text): ..."}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    run = subprocess.run(
        [
            str(Path(sys.executable).with_name("llm-common")),
            "demo",
            str(tmp_path),
            "--query",
            "How is text escaped?",
            "--json",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={
            "PATH": "",
            "LLM_COMMON_PROVIDER": "local",
            "LLM_COMMON_BASE_URL": endpoint,
            "LLM_COMMON_MODEL": "smollm2",
            "LLM_COMMON_TOOL_SELECTION_MODEL": "smollm2",
            "LLM_COMMON_MAX_TOKENS": "150",
            "LLM_COMMON_TIMEOUT_S": str(TIMEOUT_S),
            "LLM_COMMON_TOOL_SELECTION_TIMEOUT_S": str(TIMEOUT_S),
            "LLM_COMMON_CONTEXT_SELECTION_TIMEOUT_S": str(TIMEOUT_S),
        },
    )
    report("demo", run.stdout[-3000:])
    assert run.returncode in {0, 1}, run.stderr
    assert json.loads(run.stdout)
