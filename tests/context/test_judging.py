"""A decision model weighs the best items of a context. If it fails, the words decide."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from llm_common.context import ContextBundle, ContextSelector, DataPoolSnapshot, MeasuredStrategy
from llm_common.decisions import REFUSED, DecisionClient
from llm_common.errors import LLMConnectionError
from llm_common.testing import ScriptedClient, ScriptedDecisionClient
from tests.context.samples import NOON, PROJECT, file, memory, output, request_of, turn
from tests.decisions.decision_server import WireName, served
from tests.decisions.weighing_doubles import labels_of, scripted, serving

POOL = DataPoolSnapshot(
    session_log=tuple(turn(index, f"Turn {index} is about rain and wind.") for index in range(30)),
    context_files=tuple(
        file(f"src/f{index}.py", f"def rain_{index}(): return {index}\n") for index in range(9)
    ),
    memory_hits=tuple(memory(index, f"Memory {index} of the rain.") for index in range(5)),
    tool_outputs=(output(1, digest="rain in Bergen"),),
    project_state=PROJECT,
)
ASKED = request_of(600, "how much rain fell?").model_copy(update={"now": NOON})


async def packed(
    judge: DecisionClient | None, *, pool: DataPoolSnapshot = POOL, timeout_s: float = 5.0
) -> ContextBundle:
    strategy = MeasuredStrategy(judge=judge, judge_timeout_s=timeout_s)
    return await ContextSelector(strategies={"measured": strategy}).select(ASKED, pool)


@pytest.mark.parametrize("wire", ["systemone", "openai"])
async def test_one_call_lifts_the_items_that_the_model_finds_helpful(wire: WireName) -> None:
    probabilities = {"Turn 24 ": 0.95, "Turn 11 ": 0.9}
    async with served(wire, serving(wire, probabilities), input_usd_per_million=1.0) as (
        server,
        client,
    ):
        bundle = await packed(client)
        assert len(server.requests) == 1
    account = bundle.metadata.judge
    assert account is not None
    assert (account.status, account.items, account.model, account.note) == (
        "ok",
        40,
        "served-model",
        "",
    )
    assert account.tokens == 132
    assert account.cost_usd == pytest.approx(120e-6)
    parts = {account.id: account.parts.get("judge") for account in (*bundle.kept, *bundle.dropped)}
    lifted = {name for name, part in parts.items() if part is not None and part > 0.25}
    assert len([part for part in parts.values() if part is not None]) == 40
    assert lifted == {
        turn.id
        for turn in POOL.session_log
        if "Turn 24 " in turn.content or "Turn 11 " in turn.content
    }
    assert lifted <= {account.id for account in bundle.kept}
    assert bundle.metadata.total_tokens <= 600
    assert bundle.explain()["metadata"]["judge"]["items"] == 40


async def test_after_a_failure_words_decide_and_the_account_has_the_reason() -> None:
    async def silent(*_: object) -> dict[str, object]:
        await asyncio.sleep(60)
        return {}

    refusing: Callable[..., Any] = lambda _, questions: dict.fromkeys(questions, REFUSED)  # noqa: E731
    by_words = await packed(None)
    assert by_words.metadata.judge is None
    for answer, status in (
        (LLMConnectionError("gone"), "error"),
        (RuntimeError("sentinel"), "error"),
        (refusing, "invalid"),
        ({}, "invalid"),
        (silent, "timeout"),
    ):
        client = ScriptedDecisionClient([answer])
        bundle = await packed(client, timeout_s=0.3 if answer is silent else 5.0)
        assert (bundle.render(), bundle.kept, bundle.dropped) == (
            by_words.render(),
            by_words.kept,
            by_words.dropped,
        )
        account = bundle.metadata.judge
        assert account is not None
        assert (account.status, account.note.partition(":")[0]) == (status, "ranked by words alone")
        assert "sentinel" not in account.note
        assert "ranked by words alone" in bundle.explain_text()
        assert len(client.calls) == 1


async def test_the_order_of_the_pool_changes_neither_call_nor_bundle() -> None:
    client = ScriptedDecisionClient(default=scripted({"Turn 7 ": 0.9}))
    turned = DataPoolSnapshot(
        session_log=POOL.session_log[::-1],
        context_files=POOL.context_files[::-1],
        memory_hits=POOL.memory_hits[::-1],
        tool_outputs=POOL.tool_outputs,
        project_state=PROJECT,
    )
    one, other = await packed(client), await packed(client, pool=turned)
    assert client.calls[0].state == client.calls[1].state
    assert one.render() == other.render()


async def test_excluded_items_are_not_sent_and_an_empty_pool_makes_no_call() -> None:
    client = ScriptedDecisionClient(default=scripted({}))
    narrowed = ASKED.model_copy(update={"exclude_patterns": ("src/*",)})
    strategy = MeasuredStrategy(judge=client)
    await ContextSelector(strategies={"measured": strategy}).select(narrowed, POOL)
    assert "rain_1" not in str(client.calls[0].state)
    assert len(labels_of(client.calls[0].state)) <= 40
    bundle = await packed(client, pool=DataPoolSnapshot())
    assert (len(client.calls), bundle.metadata.judge and bundle.metadata.judge.status) == (
        1,
        "no_candidates",
    )


def test_a_judge_must_be_a_decision_client() -> None:
    for wrong in (ScriptedClient([]), object()):
        with pytest.raises(TypeError, match="client"):
            MeasuredStrategy(judge=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="judge_timeout_s"):
        MeasuredStrategy(judge=ScriptedDecisionClient(), judge_timeout_s=0)
