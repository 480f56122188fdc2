import json
import logging

import pytest

from llm_common.context import IntentType, LLMIntentClassifier, classify_intent
from llm_common.errors import LLMAuthError, LLMConnectionError
from llm_common.testing import ScriptedClient

PLAIN = "could we sleep on it?"


async def test_the_model_decides_and_entities_are_found_locally_s1_01() -> None:
    client = ScriptedClient(json.dumps({"intent": " Project_Planning ", "confidence": 0.9}))
    intent = await LLMIntentClassifier(client, model="m").classify(
        "sleep on plan_b", current_project="weather"
    )
    assert (intent.classification, intent.confidence) == (IntentType.PROJECT_PLANNING, 0.9)
    assert intent.metadata.requires_project
    assert intent.metadata.current_project == "weather"
    assert [entity.text for entity in intent.entities] == ["plan_b"]
    assert (client.calls[0].model, client.calls[0].temperature) == ("m", 0.0)


async def test_a_reply_without_confidence_gets_the_default() -> None:
    intent = await LLMIntentClassifier(ScriptedClient('{"intent": "documentation"}')).classify(
        PLAIN
    )
    assert (intent.classification, intent.confidence) == (IntentType.DOCUMENTATION, 0.75)


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
async def test_after_any_failure_the_words_decide(reply: str | BaseException) -> None:
    text = "fix the crash in app.py"
    assert await LLMIntentClassifier(ScriptedClient([reply])).classify(text) == classify_intent(
        text
    )


async def test_a_slow_model_times_out() -> None:
    async def never(_: object) -> str:
        import asyncio

        await asyncio.sleep(60)
        return ""

    assert await LLMIntentClassifier(ScriptedClient([never]), timeout_s=0.01).classify(
        PLAIN
    ) == classify_intent(PLAIN)


async def test_an_empty_request_calls_no_model() -> None:
    intent = await LLMIntentClassifier(ScriptedClient([])).classify("  ")
    assert intent.classification is IntentType.CONVERSATIONAL


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
def test_a_timeout_must_be_positive(timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s"):
        LLMIntentClassifier(ScriptedClient([]), timeout_s=timeout_s)
