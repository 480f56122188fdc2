"""Answers that are read while the endpoint writes them."""

import asyncio
import json
import time
from contextlib import aclosing, suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.core import LLMResponse, OpenAICompatibleClient
from llm_common.core.http.streaming import EventReader
from llm_common.errors import (
    CostLimitError,
    LLMConnectionError,
    LLMError,
    LLMRateLimitError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
)
from tests.core.loopback import (
    DONE,
    HEAD,
    KEY,
    MESSAGES,
    answer,
    delta,
    dripping,
    event,
    loopback,
    ok,
    raw,
    response,
)

USAGE = event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 2, "cost": 0.5})


async def told(client: OpenAICompatibleClient, **options: Any) -> tuple[list[str], LLMResponse]:
    deltas = [one async for one in client.stream(MESSAGES, **options)]
    assert [one.response is None for one in deltas] == [True] * (len(deltas) - 1) + [False]
    last = deltas[-1].response
    assert last is not None
    return [one.text for one in deltas[:-1]], last


async def streamed(*body: bytes) -> tuple[list[str], LLMResponse]:
    """Return what a client makes of a stream with this body."""
    async with (
        loopback(raw(HEAD, *body)) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        return await told(client)


async def test_texts_come_first_then_the_whole_response() -> None:
    body = [
        delta(role="assistant"),
        delta("Hel"),
        b": comment\n\n",
        delta("lo", "stop"),
        USAGE,
        DONE,
    ]
    async with (
        loopback(raw(HEAD, *body)) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        texts, whole = await told(client)
    assert texts == ["Hel", "lo"]
    assert (whole.content, whole.finish_reason, whole.model, whole.cost_usd) == (
        "Hello",
        "stop",
        "served",
        0.5,
    )
    assert (whole.usage.prompt_tokens, client.usage.cost_usd, client.usage.calls) == (7, 0.5, 1)
    sent = server.requests[0].body
    assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})


def call(arguments: str, **more: Any) -> bytes:
    """Return a piece of the first call, whose `more` are fields of the piece."""
    function = {"arguments": arguments} | more.pop("function", {})
    return delta(tool_calls=[{"index": 0, "function": function} | more])


async def test_pieces_of_calls_are_joined_without_thinking() -> None:
    texts, whole = await streamed(
        delta(reasoning_content="hm"),
        call("", id="a", function={"name": "look"}),
        call('{"at"'),
        call(": 1}"),
        delta("", "tool_calls"),
        DONE,
    )
    assert texts == []
    assert whole.tool_calls == [
        {"type": "function", "id": "a", "function": {"name": "look", "arguments": '{"at": 1}'}}
    ]


async def test_an_endpoint_that_does_not_stream_gives_one_delta() -> None:
    async with (
        loopback(answer(200, ok("whole"))) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        texts, whole = await told(client)
    assert (texts, whole.content) == (["whole"], "whole")


FAULTS: dict[str, tuple[list[bytes], type[LLMError], str]] = {
    "cut before the end": ([HEAD, delta("Hel")], LLMConnectionError, "ended before"),
    "cut inside an event": ([HEAD, delta("Hel"), DONE[:9]], LLMConnectionError, "ended before"),
    "an error in the stream": (
        [HEAD, delta("Hel"), event(error={"code": 429, "message": f"slow down {KEY}"})],
        LLMRateLimitError,
        "429",
    ),
    "no JSON": ([HEAD, b"data: {oops\n\n"], MalformedReplyError, "not JSON"),
    "no object": ([HEAD, b"data: 5\n\n"], MalformedReplyError, "not a JSON object"),
    "calls that are no list": (
        [HEAD, delta(tool_calls=5)],
        MalformedReplyError,
        "tool calls that are not a list",
    ),
    "garbage": ([HEAD, b"\xff\xfe" * 50], LLMConnectionError, "ended before"),
    "too long": ([HEAD, b"data: " + b"x" * 2_000_000], MalformedReplyError, "longer than"),
    "another encoding": (
        [HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n"), b"x"],
        MalformedReplyError,
        "not requested",
    ),
    "a refusal": ([response(400, KEY.encode())], LLMStatusError, "400"),
    "another type": (
        [response(200, b"<html>", {"Content-Type": "text/html"})],
        MalformedReplyError,
        "not declared",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_fault_of_a_stream_has_its_error(fault: str, no_waits: None) -> None:
    chunks, kind, text = FAULTS[fault]
    async with (
        loopback(raw(*chunks)) as server,
        OpenAICompatibleClient(server.config(max_response_bytes=1_000_000)) as client,
    ):
        with pytest.raises(kind, match=text) as caught:
            await told(client)
        assert len(server.requests) == 1
    assert KEY not in f"{caught.value}{getattr(caught.value, 'body', '')}"


@pytest.mark.parametrize(
    "pieces",
    [
        [
            {"id": "a", "function": {"name": "f", "arguments": '{"x":'}},
            {"function": {"arguments": "1}"}},
        ],
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}],
        [{"function": {"name": "f", "arguments": '{"x":1}'}}],
    ],
    ids=["no index", "the same index", "neither index nor id"],
)
async def test_calls_without_an_index_are_not_merged(
    pieces: list[dict[str, Any]],
) -> None:
    renamed = [piece | ({"id": "b"} if "id" in piece else {}) for piece in pieces]
    deltas = (delta(tool_calls=[piece]) for piece in (*pieces, *renamed))
    _, whole = await streamed(*deltas, delta(finish="tool_calls"), DONE)
    calls = [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in whole.tool_calls or ()
    ]
    assert calls == [("f", {"x": 1})] * 2
    assert len({call.get("id") for call in whole.tool_calls or ()}) == 1 + ("id" in pieces[0])


@pytest.mark.parametrize("second_id", [["x"], {}, 7, None, ""])
async def test_a_piece_without_a_usable_id_belongs_to_the_call_of_its_index(
    second_id: object,
) -> None:
    first = call('{"x":', id="a", function={"name": "f"})
    _, whole = await streamed(first, call("1}", id=second_id), DONE)
    assert whole.tool_calls == [
        {"type": "function", "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}
    ]


@pytest.mark.parametrize(
    ("before", "text"), [(b"\xef\xbb\xbf", "Hel"), (b"", "x" * 1_000_000)], ids=["mark", "megabyte"]
)
async def test_a_byte_order_mark_and_a_long_line_hide_no_text(before: bytes, text: str) -> None:
    texts, whole = await streamed(before, delta(text), delta("lo", "stop"), DONE)
    assert (texts, whole.content) == ([text, "lo"], f"{text}lo")


async def test_a_request_is_repeated_only_before_the_answer_begins(no_waits: None) -> None:
    good = raw(HEAD, delta("yes", "stop"), DONE)
    async with (
        loopback(raw(response(503)), good) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        assert (await told(client))[0] == ["yes"]
        assert len(server.requests) == 2


async def test_an_endpoint_that_refuses_stream_options_is_asked_without() -> None:
    good = raw(HEAD, delta("yes", "stop"), DONE)
    async with (
        loopback(raw(response(400, b"stream_options is unknown")), good) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        texts, whole = await told(client)
        assert [("stream_options" in one.body) for one in server.requests] == [True, False]
    assert (texts, whole.metadata) == (["yes"], {"dropped_options": ["stream_options"]})


async def test_one_deadline_spans_a_slow_stream() -> None:
    async with (
        loopback(dripping(pause_s=0.05)) as server,
        OpenAICompatibleClient(server.config(timeout_s=0.4)) as client,
    ):
        started = time.monotonic()
        with pytest.raises(LLMTimeoutError):
            await told(client)
    assert 0.3 < time.monotonic() - started < 25


async def first_of(client: OpenAICompatibleClient) -> str:
    async with aclosing(client.stream(MESSAGES)) as deltas:
        async for one in deltas:
            return one.text
    return ""


async def test_text_arrives_early_and_closing_ends_the_connection() -> None:
    ended = asyncio.Event()
    async with (
        loopback(dripping(pause_s=0.02, ended=ended)) as server,
        OpenAICompatibleClient(server.config(timeout_s=60)) as client,
    ):
        assert await first_of(client) == "0 "
        await asyncio.wait_for(ended.wait(), timeout=60)
        assert (client.usage.calls, client.usage.unpriced_calls) == (1, 1)


async def test_cancelling_ends_the_connection() -> None:
    ended = asyncio.Event()
    async with (
        loopback(dripping(pause_s=0.02, ended=ended)) as server,
        OpenAICompatibleClient(server.config(timeout_s=60)) as client,
    ):
        task = asyncio.create_task(told(client))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), timeout=60)


# $0.01 for the answer of a request, and nothing for its prompt.
DEAR = {"cost_limit_usd": 0.025, "prices": {"test-model": {"prompt": 0, "completion": 10}}}


@pytest.mark.parametrize(
    "body",
    [[delta("yes"), delta("", "stop"), USAGE, DONE], [delta("yes")]],
    ids=["left after its first text", "broken"],
)
async def test_a_stream_without_its_end_counts_towards_the_limit(body: list[bytes]) -> None:
    async with (
        loopback(raw(HEAD, *body)) as server,
        OpenAICompatibleClient(server.config(max_tokens=1_000, **DEAR)) as client,
    ):
        for _ in range(2):
            with suppress(LLMConnectionError):
                await first_of(client)
        with pytest.raises(CostLimitError) as caught:
            await first_of(client)
        assert len(server.requests) == 2
        assert (client.usage.calls, client.usage.unpriced_calls) == (2, 2)
    assert caught.value.spent_usd == pytest.approx(0.02)


@pytest.mark.parametrize("is_written", [False, True])
async def test_an_error_in_a_stream_counts_only_after_a_part_of_the_answer(
    is_written: bool,
) -> None:
    body = [delta("yes")] * is_written + [event(error={"code": 400})]
    async with (
        loopback(raw(HEAD, *body)) as server,
        OpenAICompatibleClient(server.config(max_tokens=1_000, **DEAR)) as client,
    ):
        with pytest.raises(LLMStatusError):
            await told(client)
        assert client.usage.calls == is_written


PIECES = st.sampled_from(
    [b"data: a", b"data:b", b"data", b": c", b"event: x", b"data:  two", b"\n", b"\r", b"\r\n"]
)


@given(st.lists(PIECES, max_size=16).map(b"".join), st.integers(1, 5))
def test_events_do_not_depend_on_the_borders_of_chunks(body: bytes, size: int) -> None:
    reader = EventReader(max_bytes=10_000)
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    assert events == EventReader(max_bytes=10_000).feed(body)


@pytest.mark.parametrize(
    ("chunks", "events"),
    [
        ([b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n"], [b"a\nb"]),
        ([b"data: a\r", b"\r"], [b"a"]),
        ([b"data: a\r", b"", b"\ndata: b\r", b"\r"], [b"a\nb"]),
        ([b"data: a\n", b"\ndata: b\n\n"], [b"a", b"b"]),
        ([b"data:a\ndata:  b\n\n"], [b"a\n b"]),
        ([b": comment\nevent: x\ndata\n\n"], [b""]),
        ([b"\n\n", b"data: a"], []),
    ],
)
def test_lines_end_with_any_break_also_between_chunks(
    chunks: list[bytes], events: list[bytes]
) -> None:
    reader = EventReader(max_bytes=1_000)
    assert [event for chunk in chunks for event in reader.feed(chunk)] == events


def test_a_stream_of_exactly_the_most_bytes_is_read() -> None:
    body = b"data: a\n\n"
    assert EventReader(max_bytes=len(body)).feed(body) == [b"a"]
    reader = EventReader(max_bytes=len(body) - 1)
    reader.feed(body[:-1])
    with pytest.raises(MalformedReplyError) as caught:
        reader.feed(body[-1:])
    assert caught.value.reason == "too_large"
