"""What the selectors say to weak models, and what they make of their replies."""

import json
from typing import Any

import pytest

from llm_common.agents import Planner, ToolSelectionConfig
from llm_common.testing import ScriptedClient
from llm_common.tools import ToolRegistry
from tests.selection.choosers import choose_pointers
from tests.selection.doubles import select_tools

LAST_LINES = {
    "tools": 'Answer with the JSON object {"calls": [...]} and nothing else.',
    "pointers": 'Answer with the JSON object {"pointer_ids": [...]} and nothing else.',
    "plan": 'Answer with the JSON object {"tasks": [...]} and nothing else.',
}
WITH_FALLBACK = ToolSelectionConfig(model="m", fallback_model="n")


async def air_quality(location: str, date: str = "") -> str:
    """Return the quality of the air."""
    return f"{location} {date}"


def registry() -> ToolRegistry:
    tools = ToolRegistry([air_quality])
    others = ["email.send_email", "email.search_emails", "calendar.create_event"]
    for name in (*others, *(f"plot_{number}.draw" for number in range(10))):
        tools.register(air_quality, name=name)
    return tools


async def prompts_of(kind: str) -> tuple[list[str], ScriptedClient]:
    if kind == "tools":
        client = ScriptedClient(['{"calls": [{"tool": "email", "args": {}}]}', '{"calls": []}'])
        await select_tools(client, registry(), WITH_FALLBACK)
    elif kind == "pointers":
        client = ScriptedClient(['{"pointer_ids": ["x"]}', '{"pointer_ids": []}'])
        await choose_pointers(client, fallback_model="n")
    else:
        client = ScriptedClient(['{"tasks": []}'])
        await Planner(client).plan("q", registry())
    return [str(call.messages[-1].content) for call in client.calls], client


@pytest.mark.parametrize("kind", LAST_LINES)
async def test_the_last_line_of_each_prompt_says_what_to_answer(kind: str) -> None:
    prompts, client = await prompts_of(kind)
    assert len(prompts) == (1 if kind == "plan" else 2)
    for prompt in prompts:
        assert prompt.splitlines()[-1] == LAST_LINES[kind]
    for call in client.calls:
        assert call.max_tokens is not None
        assert 2_500 < call.max_tokens <= 4_096


@pytest.mark.parametrize("kind", LAST_LINES)
async def test_no_placeholder_could_be_an_argument_s2_16(kind: str) -> None:
    _, client = await prompts_of(kind)
    system = str(client.calls[0].messages[0].content)
    example = next(line for line in system.splitlines() if "Answer with one JSON object" in line)
    values: list[object] = [json.JSONDecoder().raw_decode(example[example.index("{") :])[0]]
    for value in values:  # grows while it is read
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value
        else:
            assert str(value).startswith("<")
            assert str(value).endswith(">")


class PlainClient:
    """A client without `max_tokens`, as the protocol allows."""

    async def chat_completion(
        self, *, messages: Any, model: Any, temperature: float, response_format: Any
    ) -> Any:
        return '{"calls": []}'


async def test_a_client_that_returns_a_text_is_told_what_to_return() -> None:
    selection = await select_tools(PlainClient())
    assert "chat_completion returned a str; return an object with .content" in selection.problem


async def test_no_error_names_a_private_class() -> None:
    selection = await select_tools(ScriptedClient(['{"answer": 5}']))
    assert "does not fit the form that was asked for: calls (missing)" in selection.problem
    assert "_Reply" not in selection.problem


# Replies of a model of 0.5B, and what the correction has to name.
STUBS = {
    "a word": ("Mark", "contains no JSON object"),
    "our placeholder as an argument": (
        '{"calls": [{"tool": "air_quality", "args": {"name": "London", "date": "2024-01-01"}}]}',
        '"location" is a required property',
    ),
    "the namespace": (
        '{"calls": [{"tool": "email", "args": {"location": "x"}}]}',
        "use one of email.search_emails, email.send_email",
    ),
    "another namespace": (
        '{"calls": [{"tool": "calendar", "args": {"location": "x"}}]}',
        "use one of calendar.create_event",
    ),
    "a kind of thing": (
        '{"calls": [{"tool": "line_chart", "args": {"location": "x"}}]}',
        "Correct them, and answer again with calls",
    ),
    "a level too deep, and cut": (
        '{"calls": [{"tool": "air_quality", "args": {"properties": {"location": "London"}}]}',
        "ends in the middle|is not|not strict",
    ),
}


@pytest.mark.parametrize("stub", STUBS)
async def test_a_reply_of_a_weak_model_is_refused_with_the_way_out_s2_08(stub: str) -> None:
    reply, named = STUBS[stub]
    client = ScriptedClient([reply, '{"calls": []}'])
    client.host = "my.host"
    selection = await select_tools(client, registry(), WITH_FALLBACK)
    correction = str(client.calls[1].messages[-1].content)
    assert any(words in correction for words in named.split("|"))
    assert "model m" not in correction
    assert "my.host" not in correction
    # An empty list after calls is no answer.
    expected = "invalid" if "Correct them" in correction else "empty"
    assert (selection.calls, selection.status) == ((), expected)
