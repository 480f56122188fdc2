"""`ScriptedClient`: replies in order, recorded calls, and the end of the script."""

import asyncio
from dataclasses import FrozenInstanceError

import pytest
from pydantic import BaseModel

from llm_common.core import LLMClient, LLMMessage, LLMResponse, MessageRole, ask
from llm_common.errors import LLMConnectionError
from llm_common.testing import ScriptedClient, UnexpectedCallError

MESSAGES = [LLMMessage(role=MessageRole.USER, content="hello")]


class Reply(BaseModel):
    n: int


async def test_returns_the_replies_of_the_script_in_order() -> None:
    whole = LLMResponse(id="x", model="m", content="whole")

    def echo(messages: list[LLMMessage]) -> str:
        return f"heard {messages[0].content}"

    async def later(_: list[LLMMessage]) -> LLMResponse:
        await asyncio.sleep(0)
        return whole

    async with ScriptedClient(["text", whole, echo, later]) as client:
        assert isinstance(client, LLMClient)
        answers = [await client.chat_completion(MESSAGES) for _ in range(4)]
    assert [answer.content for answer in answers] == ["text", "whole", "heard hello", "whole"]
    assert (answers[0].finish_reason, answers[0].model) == ("stop", "scripted")


async def test_raises_the_errors_of_the_script() -> None:
    error = LLMConnectionError("gone")
    client = ScriptedClient([error, lambda _: error, "then"])
    for _ in range(2):
        with pytest.raises(LLMConnectionError) as caught:
            await client.chat_completion(MESSAGES)
        assert caught.value is error
    assert (await client.chat_completion(MESSAGES)).content == "then"


async def test_records_every_call_as_it_was_made() -> None:
    client = ScriptedClient("one", default=LLMConnectionError("gone"))
    messages = list(MESSAGES)
    await client.chat_completion(
        messages, model="m", temperature=0.5, max_tokens=9, response_format={"type": "x"}
    )
    messages.clear()
    with pytest.raises(LLMConnectionError):
        await client.chat_completion(messages)
    first, second = client.calls
    assert first.messages == tuple(MESSAGES)
    assert (first.model, first.temperature, first.max_tokens) == ("m", 0.5, 9)
    assert first.options == {"response_format": {"type": "x"}}
    assert (second.messages, second.model, second.options) == ((), None, {})
    with pytest.raises(FrozenInstanceError):
        first.model = "other"  # type: ignore[misc]


async def test_default_answers_every_call_after_the_script() -> None:
    client = ScriptedClient(["first"], default="again")
    assert [(await client.chat_completion(MESSAGES)).content for _ in range(3)] == [
        "first",
        "again",
        "again",
    ]


async def test_a_call_after_the_script_fails_a_test_of_selectors_too() -> None:
    client = ScriptedClient(['{"n": 1}'])
    assert await ask(client, MESSAGES, reply_model=Reply, model=None, timeout_s=60) == Reply(n=1)
    with pytest.raises(UnexpectedCallError, match="call 2 has no reply"):
        await ask(client, MESSAGES, reply_model=Reply, model=None, timeout_s=60)
    assert not issubclass(UnexpectedCallError, Exception)
