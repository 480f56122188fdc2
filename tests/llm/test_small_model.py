"""A model of 135 million parameters may choose badly, but selection must stay fail-closed.

The model's answers are printed, so that a person can judge them: `make test-llm`.
"""

from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from llm_common.agents import (
    AgenticExecutor,
    Answering,
    ContextRelevanceSelector,
    FileContextPointerStore,
    LexicalToolSelector,
    OffloadPolicy,
    PlannedTask,
    ToolContextManager,
    ToolRegistry,
    ToolSelectionConfig,
    ToolSelector,
)
from llm_common.apps.cli.demo.agent import BUDGET
from llm_common.apps.cli.demo.public_data import QUESTIONS, public_tools
from llm_common.apps.inspector import render_html
from llm_common.core import Attempt, LLMConfig, LLMMessage, OpenAICompatibleClient, ask
from llm_common.errors import MalformedReplyError
from llm_common.trace import Trace, read_trace
from llm_common.trace.lines import ModelCallLine
from tests.llm.reporting import report

pytestmark = pytest.mark.llm

TIMEOUT_S = 120
ROOT = Path(__file__).parents[2]
KEY = "sk-local-0f1e2d3c4b5a69788796a5b4c3d2e1f0"
WEATHER = {
    "Oslo": "Snow all day, -3 degrees",
    "Lima": "Fog, 18 degrees",
    "Cairo": "Clear, 29 degrees",
}


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


def assert_no_leak(*texts: str) -> None:
    """Fail if a text contains the key, or the path of the model or of this program."""
    for text in texts:
        assert KEY not in text
        assert str(ROOT) not in text


async def test_the_model_reads_no_more_tokens_than_the_budget_shown(
    config: LLMConfig, tmp_path: Path
) -> None:
    """Ask the questions of `llm-common demo`: words choose the calls, and the model answers."""
    sizes: list[int] = []
    trace = Trace(tmp_path / "traces", texts=True)
    with_key = config.model_copy(update={"api_key": SecretStr(KEY)})
    async with OpenAICompatibleClient(with_key) as client:
        for question in QUESTIONS:
            session = ToolContextManager(tmp_path / "context", clear_on_exit=True)
            executor = AgenticExecutor(
                client,
                public_tools(),
                session,
                selector=LexicalToolSelector(),
                offload=OffloadPolicy(),
                read_back=True,
            )
            async with session:
                with trace.run(session.query_id_of(question.text), query=question.text) as run:
                    answer = await executor.run(
                        question.text, plan=question.steps, answering=Answering(budget=BUDGET)
                    )
            trace.flush()
            assert run.path is not None
            recorded = read_trace(run.path)
            usages = [line.attempt.usage for line in recorded.of(ModelCallLine)]
            read = [usage.prompt_tokens for usage in usages if usage]
            sizes += read
            report(question.text, (answer.prompt_tokens, read, answer.text or answer.problem))
            assert (answer.text and read) or answer.problem  # so small a model may not end in time
            page = render_html(recorded)
            assert page.lower().startswith("<!doctype html>")
            assert_no_leak(page, run.path.read_text(encoding="utf-8"))
    assert sizes
    assert max(sizes) <= BUDGET.max_input_tokens
