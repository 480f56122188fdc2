"""Tests that both selectors choose nothing and raise nothing if the endpoint fails."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from llm_common.core import OpenAICompatibleClient
from llm_common.errors import (
    ContextTooLongError,
    LLMAuthError,
    LLMConnectionError,
    LLMError,
    LLMRateLimitError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
    ModelNotFoundError,
)
from tests.core.loopback import Wire, answer, loopback, ok
from tests.core.misbehaving_server import FAULTS, WORKING, misbehaving
from tests.core.unreachable import UNREACHABLE
from tests.selection.choosers import CHOOSERS, SOUND_CHOICE
from tests.selection.odd_replies import OTHER, SOUND, SOUND_ID

KINDS = sorted(CHOOSERS)
CODES: dict[type[LLMError], str] = {
    ContextTooLongError: "too_long",
    LLMAuthError: "auth",
    LLMConnectionError: "connection",
    LLMRateLimitError: "rate_limit",
    LLMStatusError: "status",
    LLMTimeoutError: "timeout",
    MalformedReplyError: "malformed",
    ModelNotFoundError: "model_not_found",
}
STATUSES = {"timeout": "timeout", "malformed": "invalid"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", FAULTS)
async def test_a_permanent_fault_selects_nothing(row: str, kind: str, no_waits: None) -> None:
    fault = FAULTS[row]
    code = CODES[fault.error]
    # Enough for the request to arrive on a busy machine.
    timeout_s = 1.0 if code == "timeout" else 10.0
    async with loopback(misbehaving(fault.act, content=SOUND)) as server:
        async with OpenAICompatibleClient(server.config()) as client:
            started = time.monotonic()
            outcome = await CHOOSERS[kind](client, timeout_s=timeout_s)
            took_s = time.monotonic() - started
        requests = len(server.requests)
    assert (outcome.chosen, outcome.status) == ([], STATUSES.get(code, "error"))
    [attempt] = outcome.attempts
    assert attempt.error == code
    assert fault.reason in {"", attempt.reason}
    assert requests == fault.requests <= 2
    assert took_s < timeout_s + 10  # seconds of patience on a busy machine


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", WORKING)
async def test_a_passing_fault_is_retried(row: str, kind: str, no_waits: None) -> None:
    async with loopback(misbehaving(WORKING[row], content=SOUND)) as server:
        async with OpenAICompatibleClient(server.config()) as client:
            outcome = await CHOOSERS[kind](client)
        assert (outcome.chosen, outcome.status) == (SOUND_CHOICE[kind], "ok")
        assert len(server.requests) <= 2
    [attempt] = outcome.attempts
    assert attempt.error is None
    assert bool(attempt.usage and attempt.usage.total_tokens) is (row != "F-122")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", UNREACHABLE)
async def test_an_unreachable_endpoint_selects_nothing(
    row: str, kind: str, no_waits: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        UNREACHABLE[row](tmp_path, monkeypatch) as config,
        OpenAICompatibleClient(config) as client,
    ):
        started = time.monotonic()
        outcome = await CHOOSERS[kind](client, fallback_model="second")
        assert time.monotonic() - started < 10  # long, for a busy machine
    assert (outcome.chosen, outcome.status) == ([], "error")
    assert {attempt.error for attempt in outcome.attempts} == {"connection"}
    assert len(outcome.attempts) == 2


@pytest.mark.parametrize("kind", KINDS, ids=[f"S0-31-{kind}" for kind in KINDS])
async def test_a_json_object_is_requested_unless_a_schema_is_preferred(kind: str) -> None:
    async with loopback(answer(200, ok(SOUND))) as server:
        for prefers in (False, True):
            async with OpenAICompatibleClient(server.config(prefers_json_schema=prefers)) as client:
                assert (await CHOOSERS[kind](client)).chosen == SOUND_CHOICE[kind]
        plain, by_schema = (request.body["response_format"] for request in server.requests)
    assert plain == {"type": "json_object"}
    assert by_schema["type"] == "json_schema"
    # Arguments of tools have schemas that strict endpoints refuse.
    assert by_schema["json_schema"]["strict"] is (kind == "pointers")
    names = {"pointers": [SOUND_ID, OTHER], "tools": ["get_weather", "search_web"]}[kind]
    assert f'"enum": {json.dumps(names)}' in json.dumps(by_schema)


@pytest.mark.parametrize("kind", KINDS, ids=[f"F-132 S0-38 S2-09 {kind}" for kind in KINDS])
async def test_a_cancelled_selection_asks_no_second_model(kind: str) -> None:
    requested, hung_up = asyncio.Event(), asyncio.Event()

    async def no_answer(wire: Wire) -> None:
        await wire.request()
        requested.set()
        try:
            await wire.request()
        finally:
            hung_up.set()

    async with loopback(no_answer) as server, OpenAICompatibleClient(server.config()) as client:
        selection = asyncio.ensure_future(CHOOSERS[kind](client, fallback_model="second"))
        await requested.wait()
        selection.cancel()
        with pytest.raises(asyncio.CancelledError):
            await selection
        await asyncio.wait_for(hung_up.wait(), 10)
        assert len(server.requests) == 1
