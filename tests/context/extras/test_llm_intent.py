import json
import logging

import pytest

from llm_common.context import IntentType, LLMIntentClassifier, classify_intent
from llm_common.errors import LLMAuthError, LLMConnectionError
from llm_common.testing import ScriptedClient

PLAIN = "could we sleep on it?"


async def test_the_model_decides_and_the_rest_is_read_locally_s1_01() -> None:
    client = ScriptedClient(json.dumps({"intent": " Project_Planning ", "confidence": 0.9}))
    found = await LLMIntentClassifier(client, model="m").classify(
        "sleep on plan_b", current_project="weather"
    )
    assert (found.classification, found.confidence) == (IntentType.PROJECT_PLANNING, 0.9)
    assert found.metadata.requires_project
    assert found.metadata.current_project == "weather"
    assert [entity.text for entity in found.entities] == ["plan_b"]
    assert (client.calls[0].model, client.calls[0].temperature) == ("m", 0.0)


async def test_a_reply_without_confidence_has_the_usual_one() -> None:
    found = await LLMIntentClassifier(ScriptedClient('{"intent": "documentation"}')).classify(PLAIN)
    assert (found.classification, found.confidence) == (IntentType.DOCUMENTATION, 0.75)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "code_writing",
        "{}",
        '{"intent": "poetry"}',
        '{"intent": 3}',
        '{"intent": "documentation", "confidence": 2}',
        '{"intent": "documentation", "confidence": NaN}',
        LLMConnectionError("down"),
        LLMAuthError("no key", status=401),
        RuntimeError("odd"),
    ],
    ids=repr,
)
async def test_a_failure_of_any_kind_leaves_the_words_to_decide(reply: str | BaseException) -> None:
    text = "fix the crash in app.py"
    assert await LLMIntentClassifier(ScriptedClient([reply])).classify(text) == classify_intent(
        text
    )


async def test_a_model_that_takes_too_long_is_not_waited_for() -> None:
    async def never(_: object) -> str:
        import asyncio

        await asyncio.sleep(60)
        return ""

    assert await LLMIntentClassifier(ScriptedClient([never]), timeout_s=0.01).classify(
        PLAIN
    ) == classify_intent(PLAIN)


async def test_an_empty_request_asks_no_model() -> None:
    found = await LLMIntentClassifier(ScriptedClient([])).classify("  ")
    assert found.classification is IntentType.CONVERSATIONAL


async def test_the_request_is_fenced_and_bounded() -> None:
    client = ScriptedClient('{"intent": "conversational"}')
    await LLMIntentClassifier(client).classify("start " + "x" * 1_000_000 + " \ud800 end")
    sent = str(client.calls[0].messages[-1].content)
    assert sent.startswith("<<<")
    assert "start" in sent
    assert "end" in sent
    assert len(sent.encode()) < 10_000


async def test_no_user_text_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await LLMIntentClassifier(ScriptedClient("secret-reply")).classify("secret-request")
    assert "classified no intent" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
def test_a_timeout_has_to_be_positive(timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s"):
        LLMIntentClassifier(ScriptedClient([]), timeout_s=timeout_s)
