"""The contract of decision clients over both wire formats, and of the scripted double."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from llm_common.decisions import DecisionClient
from llm_common.testing import DecisionClientContract, ScriptedDecisionClient
from llm_common.testing.decision_contract import Answering
from tests.decisions.decision_server import WireName, served, telling


class TestHttpDecisionClient(DecisionClientContract):
    @pytest.fixture(params=["systemone", "openai"])
    def answering(self, request: pytest.FixtureRequest) -> Answering:
        wire: WireName = request.param

        @asynccontextmanager
        async def answer(by_text: Mapping[str, object]) -> AsyncIterator[DecisionClient]:
            async with served(wire, telling(wire, by_text)) as (_, client):
                yield client

        return answer


class TestScriptedDecisionClient(DecisionClientContract):
    @pytest.fixture
    def answering(self) -> Answering:
        @asynccontextmanager
        async def answer(by_text: Mapping[str, object]) -> AsyncIterator[DecisionClient]:
            yield ScriptedDecisionClient(
                default=lambda _, questions: {
                    n: by_text[q.text] for n, q in questions.items() if q.text in by_text
                }
            )

        return answer
