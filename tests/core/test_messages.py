"""What is accepted as the messages of a call, and what is refused with a remedy."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from llm_common.agents import ToolCall
from llm_common.core import (
    LLMMessage,
    MessageRole,
    OpenAICompatibleClient,
    answer_text,
    ask,
    config_for_provider,
)
from llm_common.core.models import as_messages
from llm_common.testing import ScriptedClient
from tests.core.loopback import answer, ask_once, loopback, ok

SECRET = "my-diagnosis-3f9a"
USER = LLMMessage(role=MessageRole.USER, content="hi")
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CLEAR: dict[str, tuple[Any, LLMMessage]] = {
    "message": (USER, USER),
    "dict": ({"role": "user", "content": "hi"}, USER),
    "nulls": (
        {"role": "user", "content": "hi", "name": None, "tool_calls": None, "refusal": None},
        USER,
    ),
    "parts": (
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        LLMMessage(role=MessageRole.USER, content=[{"type": "text", "text": "hi"}]),
    ),
    "calls": (
        {"role": "assistant", "content": None, "tool_calls": [CALL], "annotations": []},
        LLMMessage(role=MessageRole.ASSISTANT, tool_calls=[CALL]),
    ),
    "tool": (
        {"role": "tool", "content": "42", "tool_call_id": "1"},
        LLMMessage(role=MessageRole.TOOL, content="42", tool_call_id="1"),
    ),
    "empty": ({"role": "user", "content": ""}, LLMMessage(role=MessageRole.USER, content="")),
}
WRONG: dict[str, tuple[Any, str]] = {
    "text": (SECRET, "messages must be a list, got str; pass a list"),
    "one dict": (
        {"role": "user", "content": SECRET},
        "messages must be a list, got dict; pass a list",
    ),
    "one message": (USER, "messages must be a list, got LLMMessage; pass a list"),
    "none": (None, "messages must be a list, got NoneType; pass a list"),
    "texts": (
        [USER, SECRET],
        r"messages\[1\] is a str; pass an LLMMessage, or a dict with `content` and a `role`",
    ),
    "pair": ([("user", SECRET)], r"messages\[0\] is a tuple"),
    "no role": ([{"content": SECRET}], r"messages\[0\] has no usable role"),
    "odd role": (
        [{"role": "bot", "content": SECRET}],
        r"no usable role; .* system, user, assistant",
    ),
    "no content": ([{"role": "user"}], r"messages\[0\] has no content"),
    "number": ([{"role": "user", "content": 5}], r"messages\[0\] has no usable content"),
    "odd key": (
        [{"role": "user", "content": SECRET, "image": "x"}],
        r"an unknown key, 'image'",
    ),
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "ask": lambda messages: ask(
        ScriptedClient([]), messages, reply_model=ToolCall, model=None, timeout_s=1
    ),
    "answer_text": lambda messages: answer_text(
        ScriptedClient([]), messages, model=None, timeout_s=1
    ),
    "client": lambda messages: OpenAICompatibleClient(config_for_provider("local")).chat_completion(
        messages
    ),
}


@pytest.mark.parametrize("name", CLEAR)
def test_messages_and_their_dicts_are_accepted(name: str) -> None:
    message, meant = CLEAR[name]
    assert as_messages([message]) == as_messages(item for item in [message]) == [meant]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", WRONG)
async def test_anything_else_is_a_type_error_with_the_remedy(name: str, way: str) -> None:
    wrong, text = WRONG[name]
    with pytest.raises(TypeError, match=text) as caught:
        await WAYS[way](wrong)
    assert SECRET not in f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"


async def test_a_dict_is_sent_as_a_message() -> None:
    async with (
        loopback(answer(200, ok())) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        await client.chat_completion([CLEAR["dict"][0]])
        assert server.requests[0].body["messages"] == [{"role": "user", "content": "hi"}]


async def test_a_client_behind_ask_gets_messages_also_for_dicts() -> None:
    client = ScriptedClient([json.dumps({"tool": "t", "args": {}}), "text"])
    await ask(client, [CLEAR["dict"][0]], reply_model=ToolCall, model=None, timeout_s=60)
    await answer_text(client, [CLEAR["dict"][0]], model=None, timeout_s=60)
    assert [call.messages for call in client.calls] == [(USER,), (USER,)]


async def test_a_model_that_is_not_a_str_is_a_type_error() -> None:
    async with loopback(answer(200, ok())) as server:
        with pytest.raises(TypeError, match="model must be a str, got int; pass its name"):
            await ask_once(server.config(), model=5)
        assert not server.requests
