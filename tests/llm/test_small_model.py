"""A model of 135 million parameters may choose badly, but selection must stay fail-closed.

The model's answers are printed, so that a person can judge them: `make test-llm`.
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
    LexicalToolSelector,
    PlannedTask,
    ToolRegistry,
    ToolSelectionConfig,
    ToolSelector,
)
from llm_common.apps.cli.demo.evidence import BUDGET, Agent, ask_questions
from llm_common.apps.cli.demo.questions import QUESTIONS
from llm_common.core import Attempt, LLMConfig, LLMMessage, OpenAICompatibleClient, ask
from llm_common.errors import MalformedReplyError
from llm_common.trace import read_trace
from llm_common.trace.lines import ModelCallLine

pytestmark = pytest.mark.llm

TIMEOUT_S = 120
ROOT = Path(__file__).parents[2]
KEY = "sk-local-0f1e2d3c4b5a69788796a5b4c3d2e1f0"
WEATHER = {
    "Oslo": "Snow all day, -3 degrees",
    "Lima": "Fog, 18 degrees",
    "Cairo": "Clear, 29 degrees",
}


def report(what: str, value: object) -> None:
    print(f"\n--- {what}: {value}")  # noqa: T201 - for the person who runs it


async def test_the_relevance_selector_returns_candidates_or_nothing(
    client: OpenAICompatibleClient, tmp_path: Path
) -> None:
    store = FileContextPointerStore(tmp_path)
    for city, text in WEATHER.items():
        await store.save(
            query_id="q", task_id=None, tool_name="weather", args={"query": city}, result=text
        )
    pointers = store.list(query_id="q")
    async with client:
        selector = ContextRelevanceSelector(client, timeout_s=TIMEOUT_S)
        selection = await selector.select_detailed(
            query="Is it snowing in Oslo?", pointers=pointers
        )
    report("relevance", selection)
    assert (
        set(selection.pointers) <= set(pointers)
        if selection.status == "ok"
        else selection.pointers == []
    )


async def test_the_tool_selector_returns_valid_calls_or_nothing(
    client: OpenAICompatibleClient,
) -> None:
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
            task=PlannedTask(id=1, description="What is the weather in Oslo?"),
            tool_registry=registry,
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
                [
                    LLMMessage(
                        role="user",  # type: ignore[arg-type]
                        content='List one hundred fruits as {"words": ["apple", "pear", ...]}.',
                    )
                ],
                reply_model=Reply,
                model=None,
                timeout_s=TIMEOUT_S,
                attempts=attempts,
            )
    report("cut reply", (caught.value.reason, attempts))
    assert caught.value.reason == "cut"
    assert attempts[0].usage is not None
    assert attempts[0].usage.completion_tokens == 12


def demo(endpoint: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `llm-common demo --json` with the endpoint and a secret key in its environment."""
    timeouts = dict.fromkeys(
        (
            "LLM_COMMON_TIMEOUT_S",
            "LLM_COMMON_TOOL_SELECTION_TIMEOUT_S",
            "LLM_COMMON_CONTEXT_SELECTION_TIMEOUT_S",
        ),
        str(TIMEOUT_S),
    )
    settings = {
        "PATH": "",
        "LLM_COMMON_PROVIDER": "local",
        "LLM_COMMON_BASE_URL": endpoint,
        "LLM_COMMON_API_KEY": KEY,
        "LLM_COMMON_MODEL": "smollm2",
        "LLM_COMMON_TOOL_SELECTION_MODEL": "smollm2",
        "LLM_COMMON_MAX_TOKENS": "150",
    }
    program = [
        sys.executable,
        "-c",
        "from llm_common.apps.cli import main; main()",
        "demo",
        *map(str, arguments),
        "--json",
    ]
    run = subprocess.run(
        program, capture_output=True, text=True, check=False, env=settings | timeouts, cwd=ROOT
    )
    report("demo", run.stdout[-3000:])
    assert run.returncode in {0, 1}, run.stderr
    assert_no_leak(run.stdout, run.stderr)
    return run


def assert_no_leak(*texts: str) -> None:
    """Fail if a text contains the key, or the path of the model or of this program."""
    for text in texts:
        assert KEY not in text
        assert str(ROOT) not in text


def assert_inert_pages(folder: Path) -> None:
    """Fail unless each question has a page and a trace, and none of them leaks anything."""
    for number in range(1, len(QUESTIONS) + 1):
        page = (folder / f"{number}.html").read_text(encoding="utf-8")
        assert page.lower().startswith("<!doctype html>")
        assert_no_leak(page)
    traces = [*(folder / "traces").rglob("*.jsonl")]
    assert len(traces) == len(QUESTIONS)
    assert_no_leak(*(trace.read_text(encoding="utf-8") for trace in traces))


def test_the_demo_ends_each_question_with_an_answer_or_reason(
    endpoint: str, tmp_path: Path
) -> None:
    document = json.loads(demo(endpoint, "--output", tmp_path).stdout)
    assert [each["question"] for each in document["questions"]] == [each.text for each in QUESTIONS]
    assert all(each["answer"] or each["problem"] for each in document["questions"])
    assert_inert_pages(tmp_path)


async def test_the_model_reads_no_more_tokens_than_the_budget_shown(
    config: LLMConfig, tmp_path: Path
) -> None:
    async with OpenAICompatibleClient(config) as client:
        agent = Agent(LexicalToolSelector(), client, "words choose, the model answers")
        reports = await ask_questions(
            QUESTIONS,
            agent,
            folder=tmp_path,
            progress=lambda *_: None,
        )
    sizes: list[int] = []
    for each in reports:
        assert each.trace is not None
        usages = [line.attempt.usage for line in read_trace(each.trace).of(ModelCallLine)]
        sizes += (read := [usage.prompt_tokens for usage in usages if usage])
        report(each.question, (each.tokens_with, read, each.answer or each.problem))
        assert each.found_in or each.problem or each.kind == "list"
        assert (each.answer and read) or each.problem  # so small a model may not end in time
    assert sizes
    assert max(sizes) <= BUDGET.max_input_tokens
    assert_inert_pages(tmp_path)
