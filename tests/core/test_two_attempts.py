"""`ask_with_fallback`: two calls share one deadline."""

import asyncio
import time

import pytest

from llm_common.agents import ToolCall
from llm_common.core import LLMMessage
from llm_common.core.structured import CallOptions, Outcome, Prompt, ask_with_fallback
from llm_common.errors import LLMTimeoutError
from llm_common.testing import ScriptedClient

UNANSWERED: Prompt[ToolCall, None] = Prompt("s", "u", ToolCall, lambda _: pytest.fail("no reply"))


async def hang(_: list[LLMMessage]) -> str:
    await asyncio.sleep(30)
    return ""


async def asked(client: ScriptedClient, *, seconds: float, timeout_s: float = 5.0) -> Outcome[None]:
    options = CallOptions(model="one", fallback_model="two", timeout_s=timeout_s)
    ends_at = asyncio.get_running_loop().time() + seconds
    return await ask_with_fallback(client, UNANSWERED, options, ends_at=ends_at)


@pytest.mark.parametrize("row", ["S2-11", "S0-38"])
async def test_attempts_share_one_deadline_and_each_has_its_own(row: str) -> None:
    # Long enough that a busy machine cannot use up the time of the second attempt.
    started = time.perf_counter()
    outcome = await asked(ScriptedClient([hang, hang]), seconds=1.2, timeout_s=0.8)
    assert 1.1 < time.perf_counter() - started < 10
    assert [attempt.error for attempt in outcome.attempts] == ["timeout", "timeout"]
    assert outcome.attempts[0].latency_ms >= 790
    assert outcome.attempts[1].latency_ms < outcome.attempts[0].latency_ms


@pytest.mark.parametrize(("seconds", "calls"), [(0.05, 1), (-1, 0)])
async def test_after_the_deadline_there_is_no_further_call(seconds: float, calls: int) -> None:
    client = ScriptedClient([hang])
    outcome = await asked(client, seconds=seconds)
    assert isinstance(outcome.error, LLMTimeoutError)
    assert outcome.error.model == "one"
    assert len(client.calls) == len(outcome.attempts) == calls
