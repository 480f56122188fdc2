"""Answers that are shown while the model writes them."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.agents import (
    Answer,
    Answering,
    ContextRelevanceSelector,
    TokenBudget,
    ToolContextManager,
)
from llm_common.core import LLMDelta, LLMMessage, LLMResponse, OpenAICompatibleClient
from llm_common.core.extraction import AnswerFilter, without_thinking
from llm_common.errors import LLMConnectionError, MalformedReplyError
from llm_common.testing import ScriptedClient
from tests.agents.runs import WEATHER, events_of, forecaster, session, text_of
from tests.core.loopback import (
    DONE,
    HEAD,
    Script,
    answer as always,
    delta,
    dripping,
    loopback,
    ok,
    raw,
)

ROWS = [{"order": number, "euros": 90_001 if number == 1_500 else 7} for number in range(4_000)]
SMALL = Answering(budget=TokenBudget(max_input_tokens=4_000, max_output_tokens=200))


def stream(*texts: str, **more: Any) -> Script:
    return raw(HEAD, *(delta(text) for text in texts), delta("", "stop", **more), DONE)


def read(call_id: str, **args: Any) -> dict[str, Any]:
    call = {
        "index": 0,
        "id": call_id,
        "function": {"name": "read_context", "arguments": json.dumps(args)},
    }
    return {"tool_calls": [call]}


async def told(
    client: Any, manager: ToolContextManager, answering: Answering = SMALL, **options: Any
) -> tuple[list[str], Answer]:
    async with aclosing(
        answering.stream(client, manager, query="What did it cost?", **options)
    ) as parts:
        *texts, answer = [part async for part in parts]
    assert isinstance(answer, Answer)
    return [str(text) for text in texts], answer


async def test_deltas_come_before_the_answer_and_make_it_up(tmp_path: Path) -> None:
    whole = always(200, ok("It snows."))
    async with (
        loopback(stream("It ", "snows."), whole) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        runner = forecaster(client, tmp_path)
        found = await events_of(runner.answer_stream(WEATHER[0]))
        again = await runner.run(WEATHER[0])
    assert [event.type for event in found][3:] == ["answer_delta", "answer_delta", "answer"]
    assert (
        "".join(event.data for event in found[3:-1])
        == found[-1].data.text
        == again.text
        == "It snows."
    )
    assert ["stream" in request.body for request in server.requests] == [True, False]


async def test_thinking_is_not_shown() -> None:
    texts = ["<th", "ink>It is Os", "lo", "</think>\n\n", "Snow", " <think> ", "so.  "]
    async with (
        loopback(stream(*texts)) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        shown, answer = await told(client, await session())
    assert "".join(shown) == answer.text == "Snow <think> so."


PIECES = (
    *(
        "<think>",
        "</think>",
        "<",
        "thi",
        "nk>",
        " ",
        "\n",
        "a",
        "[THINK]",
        "[/THINK]",
        "</",
        "<Reasoning x>",
        "◁",
    ),
    *("<think ", "x" * 150, ">"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_a_text_in_pieces_is_shown_as_the_whole_without_thinking(pieces: list[str]) -> None:
    shown = AnswerFilter()
    text = "".join([*(shown.feed(piece) for piece in pieces), shown.end()])
    try:
        assert text == without_thinking("".join(pieces))
    except MalformedReplyError:
        assert text == ""


def test_thinking_is_not_held_while_it_goes_on() -> None:
    shown = AnswerFilter()
    shown.feed("<think>")
    tracemalloc.start()
    try:
        assert "".join(shown.feed("so it goes on " * 100) for _ in range(300)) == ""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert shown.feed("</think> Snow") + shown.end() == "Snow"


LONG = "What I know so far. " * 20
READ = [stream("Let me look. ", **read("c1", id="none")), stream("", **read("c2", id="none"))]
JSON_READ = stream(' {"tool": "read_', 'context", "args": {"id": "x"}}')


@pytest.mark.parametrize(
    ("turns", "native_tools", "shown"),
    [
        ([*READ, stream("90001 ", "euros.")], True, "90001 euros."),
        ([stream(LONG, **read("c1", id="x")), stream("Done.")], True, f"{LONG.strip()}\n\nDone."),
        ([JSON_READ, stream("``", "no` ", "answer.")], False, "``no` answer."),
    ],
    ids=["remarks", "long-text", "call-by-json"],
)
async def test_only_the_answer_and_a_long_text_before_a_read_are_shown(
    turns: list[Script], native_tools: bool, shown: str
) -> None:
    answering = SMALL.model_copy(update={"native_tools": native_tools})
    async with loopback(*turns) as server, OpenAICompatibleClient(server.config()) as client:
        texts, answer = await told(client, await session(ROWS), answering)
    assert "".join(texts) == answer.text == shown
    assert len(answer.reads) == len(turns) - 1


@pytest.mark.parametrize(
    ("chunks", "status"),
    [
        ([HEAD, delta("It sn")], "error"),
        ([HEAD, delta("It sn", "length"), DONE], "invalid"),
        ([HEAD, delta("It sn"), b"data: {oops\n\n"], "invalid"),
        ([HEAD, delta("It sn"), b'data: {"error": {"code": 500, "message": "x"}}\n\n'], "error"),
    ],
    ids=["cut", "too-long", "garbage", "error"],
)
async def test_a_stream_that_breaks_off_is_no_answer(chunks: Sequence[bytes], status: str) -> None:
    async with (
        loopback(raw(*chunks)) as server,
        OpenAICompatibleClient(server.config(max_attempts=1)) as client,
    ):
        texts, answer = await told(client, await session())
    assert (texts, answer.status, answer.text) == (["It sn"], status, None)
    assert answer.problem


class Pieces(ScriptedClient):
    """Streams, without a response at the end."""

    async def stream(self, **options: Any) -> AsyncGenerator[LLMDelta, None]:
        yield LLMDelta(text="It sn")


async def test_a_stream_without_an_end_is_no_answer() -> None:
    texts, answer = await told(Pieces([]), await session())
    assert (texts, answer.status, answer.text) == (["It sn"], "error", None)


async def test_a_client_without_streaming_yields_no_deltas() -> None:
    texts, answer = await told(ScriptedClient(["Snow."]), await session())
    assert (texts, answer.text) == ([], "Snow.")


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_leaving_a_stream_closes_the_connection(how: str) -> None:
    ended, begun = asyncio.Event(), asyncio.Event()

    async def leave(client: OpenAICompatibleClient) -> None:
        async with aclosing(Answering().stream(client, await session(), query="Why?")) as parts:
            async for _ in parts:
                begun.set()
                if how == "closed":
                    return

    async with (
        loopback(dripping(pause_s=0.01, ended=ended)) as server,
        OpenAICompatibleClient(server.config(timeout_s=60)) as client,
    ):
        task = asyncio.create_task(leave(client))
        await asyncio.wait_for(begun.wait(), timeout=60)
        if how == "cancelled":
            task.cancel()
        await asyncio.wait([task])
        await asyncio.wait_for(ended.wait(), timeout=60)
        assert (client.usage.calls, client.usage.unpriced_calls) == (1, 1)


CHOOSES_TEA = json.dumps({"pointer_ids": ["{tea}"]})
CHOOSES_NOTHING = json.dumps({"pointer_ids": []})


@pytest.mark.parametrize(
    ("reply", "fail_closed", "status", "shown", "attempts"),
    [
        (CHOOSES_TEA, True, "ok", {"tea: 12"}, 2),
        (CHOOSES_NOTHING, True, "ok", set(), 2),
        ("no JSON", False, "ok", {"tea: 12"}, 2),
        ("no JSON", True, "invalid", None, 1),
        (LLMConnectionError("down"), True, "error", None, 1),
    ],
    ids=["chosen", "none-chosen", "by-words", "unreadable", "down"],
)
async def test_a_model_may_choose_the_outputs_that_are_shown(
    reply: Any, fail_closed: bool, status: str, shown: set[str] | None, attempts: int
) -> None:
    texts = ("tea: 12", "coal: 90")
    manager = await session(*texts)
    if reply == CHOOSES_TEA:
        reply = reply.replace("{tea}", manager.get_all_pointers()[0].pointer_id)
    chooser = ContextRelevanceSelector(ScriptedClient([reply]), fail_closed=fail_closed)
    client = ScriptedClient(["Twelve."])
    answering = Answering(selector=chooser, max_reads=0)
    answer = await answering.answer(client, manager, query="What does tea cost?")
    assert (answer.status, len(answer.attempts)) == (status, attempts)
    assert len(client.calls) == (shown is not None)
    for request in client.calls:
        assert {text for text in texts if text in text_of(request.messages)} == shown
    has_failed = reply == "no JSON" or isinstance(reply, LLMConnectionError)
    assert ["could not be chosen" in failure for failure in answer.failures] == [True] * has_failed


async def test_a_call_that_is_not_allowed_is_not_shown_either() -> None:
    answering = SMALL.model_copy(update={"native_tools": False, "max_reads": 1})
    turns = stream('{"tool": "read_context", ', '"args": {}}')
    async with loopback(turns) as server, OpenAICompatibleClient(server.config()) as client:
        texts, answer = await told(client, await session(ROWS), answering)
    assert (texts, answer.status, len(server.requests)) == ([], "invalid", 3)


async def test_thinking_before_a_call_is_no_remark() -> None:
    manager = await session(ROWS)
    call = {"id": "c", "type": "function", "function": {"name": "read_context", "arguments": "{}"}}
    reply = LLMResponse(
        id="1",
        model="m",
        content="<think>hm</think>",
        tool_calls=[call],
        finish_reason="tool_calls",
    )

    def answer_after(messages: list[LLMMessage]) -> str:
        return f"{messages[-2].content}"

    answer = await SMALL.answer(
        ScriptedClient([reply, answer_after]), manager, query="What did it cost?"
    )
    assert (answer.text, len(answer.reads)) == ("None", 1)
