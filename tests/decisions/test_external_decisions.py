"""Decision models of other packages as decision clients."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from llm_common.decisions import DecisionClient, LangChainDecisions, Predicate, PydanticAIDecisions
from llm_common.errors import (
    LLMConnectionError,
    LLMError,
    LLMRateLimitError,
    LLMTimeoutError,
    MalformedReplyError,
    ModelNotFoundError,
)
from llm_common.testing import DecisionClientContract
from llm_common.testing.decision_contract import Answering
from tests.decisions.decision_doubles import (
    Answer,
    BaseDecisionModel,
    DecisionResponse,
    RequestUsage,
    SystemOneModel,
)

LATE = Predicate("It is late.")
TOLD = {LATE.text: 0.9}


class TestLangChainDecisions(DecisionClientContract):
    @pytest.fixture
    def answering(self) -> Answering:
        @asynccontextmanager
        async def answer(by_text: Mapping[str, object]) -> AsyncIterator[DecisionClient]:
            yield LangChainDecisions(BaseDecisionModel(model="test-model", by_text=dict(by_text)))

        return answer


class TestPydanticAIDecisions(DecisionClientContract):
    @pytest.fixture
    def answering(self) -> Answering:
        @asynccontextmanager
        async def answer(by_text: Mapping[str, object]) -> AsyncIterator[DecisionClient]:
            yield PydanticAIDecisions(SystemOneModel(by_text))

        return answer


async def test_usage_and_model_of_langchain_are_kept() -> None:
    inner = BaseDecisionModel(
        model="test-model", by_text=TOLD, usage={"input_tokens": 7, "output_tokens": 2}
    )
    client = LangChainDecisions(inner)
    decisions = await client.decide("x", {"late": LATE}, model="other")
    assert (decisions.model, decisions.usage.total_tokens, decisions.cost_usd) == ("other", 9, None)
    assert inner.model == "test-model"


async def test_usage_and_cost_of_pydantic_ai_are_kept() -> None:
    client = PydanticAIDecisions(SystemOneModel(TOLD, RequestUsage(7, 2, Decimal("0.25"))))
    decisions = await client.decide("x", {"late": LATE}, model="test-model")
    assert (decisions.model, decisions.usage.total_tokens, decisions.cost_usd) == (
        "test-model",
        9,
        0.25,
    )
    with pytest.raises(ModelNotFoundError, match="other"):
        await client.decide("x", {"late": LATE}, model="other")


def test_an_object_without_questions_is_refused() -> None:
    class Chain:
        model = "m"

        async def ainvoke(self, input: str) -> str:  # noqa: A002
            return input

    with pytest.raises(TypeError, match="BaseDecisionModel"):
        LangChainDecisions(Chain())


class UnexpectedModelBehavior(Exception):  # noqa: N818 - pydantic-ai's name
    pass


class APITimeoutError(Exception):
    pass


class ModelHTTPError(Exception):
    def __init__(self, status_code: int) -> None:
        super().__init__("my words")
        self.status_code = status_code


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (UnexpectedModelBehavior("my words"), MalformedReplyError),
        (APITimeoutError("my words"), LLMTimeoutError),
        (ModelHTTPError(429), LLMRateLimitError),
        (ConnectionError("my words"), LLMConnectionError),
        (ValueError("my words"), LLMError),
    ],
)
@pytest.mark.parametrize("around", ["langchain", "pydantic-ai"])
async def test_third_party_exceptions_are_translated(
    around: str, fault: Exception, kind: type[LLMError]
) -> None:
    client: DecisionClient = (
        LangChainDecisions(BaseDecisionModel(model="test-model", fault=fault))
        if around == "langchain"
        else PydanticAIDecisions(SystemOneModel({}, fault=fault))
    )
    with pytest.raises(kind) as caught:
        await client.decide("x", {"late": LATE})
    assert "my words" not in str(caught.value)
    assert caught.value.__cause__ is fault


async def test_an_unexpected_answer_raises() -> None:
    class Wrong(SystemOneModel):
        async def decide(self, request: Any, model_settings: Any) -> Any:
            answer = Answer.model_validate({"type": "noul", "noul": 1.0})
            return DecisionResponse(answers={"other": answer}, model_name="m")

    with pytest.raises(MalformedReplyError) as caught:
        await PydanticAIDecisions(Wrong({})).decide("x", {"late": LATE})
    assert caught.value.reason == "wrong_question"


async def test_one_deadline_bounds_third_party_calls() -> None:
    class Slow(SystemOneModel):
        async def decide(self, request: Any, model_settings: Any) -> Any:
            await asyncio.sleep(60)

    with pytest.raises(LLMTimeoutError):
        await PydanticAIDecisions(Slow({}), timeout_s=30).decide(
            "x", {"late": LATE}, timeout_s=0.05
        )


async def test_the_latency_of_a_call_is_in_milliseconds() -> None:
    class Slow(SystemOneModel):
        async def decide(self, request: Any, model_settings: Any) -> Any:
            await asyncio.sleep(0.05)
            return await super().decide(request, model_settings)

    started = time.monotonic()
    decisions = await PydanticAIDecisions(Slow(TOLD)).decide("x", {"late": LATE})
    elapsed_ms = (time.monotonic() - started) * 1_000
    assert decisions.latency_ms is not None
    assert 45 <= decisions.latency_ms <= elapsed_ms + 1


async def test_another_model_of_pydantic_ai_is_not_found() -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        await PydanticAIDecisions(SystemOneModel(TOLD)).decide("x", {"late": LATE}, model="n" * 99)
    assert caught.value.status == 404
    assert caught.value.message == (
        f"this client has only the model test-model; make another for {'n' * 80}"
    )
