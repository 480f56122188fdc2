"""Requests and replies of `HttpDecisionClient` over real connections, in both wire formats."""

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from llm_common import __version__
from llm_common.decisions import (
    REFUSED,
    Choice,
    DecisionConfig,
    HttpDecisionClient,
    Predicate,
    Question,
    Score,
)
from llm_common.errors import (
    ConfigError,
    ContextTooLongError,
    CostLimitError,
    LLMAuthError,
    LLMConnectionError,
    LLMError,
    LLMRateLimitError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
)
from tests.core.loopback import KEY, Script, Wire, answer, loopback, raw, response
from tests.decisions.decision_server import WireName, changed, config, payload, served, telling

LATE, PAID = Predicate("It is late."), Predicate("It is paid.")
TEAM = Choice("Which team?", {"billing": "Money", "none of these": ""})
ANGER = Score("How angry?", ["calm", "furious"])
QUESTIONS: Mapping[str, Question] = {"late": LATE, "paid": PAID}
TOLD = {LATE.text: 0.9, PAID.text: 0.2}
SECRET_STATE = "my words 4711"

pytestmark = pytest.mark.parametrize("wire", ["systemone", "openai"])


async def failure(
    client: HttpDecisionClient, questions: Mapping[str, Question] = QUESTIONS
) -> LLMError:
    """Return the error of a call, after a check that its text contains neither key nor state."""
    with pytest.raises(LLMError) as caught:
        await client.decide(SECRET_STATE, questions)
    error = caught.value
    assert KEY not in f"{error}{error!r}{vars(error)}"
    assert SECRET_STATE not in f"{error}{error!r}"
    return error


async def test_a_request_contains_only_the_questions(wire: WireName) -> None:
    questions: dict[str, Question] = {"late": LATE, "team": TEAM, "anger": ANGER}
    async with served(wire, telling(wire, TOLD)) as (server, client):
        await client.decide({"text": "hello"}, questions)
        await client.decide({"text": "hello"}, questions, model="other")
    first, second = (request.body for request in server.requests)
    names = (
        list(first["questions"])
        if wire == "systemone"
        else [each.pop("name") for each in first["questions"]]
    )
    assert len({*names}) == 3
    assert not {*names} & {*questions}
    assert second["model"] == "other"
    team: dict[str, Any] = {"type": "choice", "instructions": "Which team?"}
    anger: dict[str, Any] = {"type": "score", "instructions": "How angry?"}
    if wire == "systemone":
        criteria = {"billing": "Money", "none of these": None}
        late = {"type": "noul", "instructions": "It is late."}
        asked = [late, team | {"criteria": criteria}, anger | {"criteria": ["calm", "furious"]}]
        wanted: dict[str, Any] = {
            "model": "test-model",
            "state": {"text": "hello"},
            "questions": dict(zip(names, asked, strict=True)),
        }
    else:
        choices = [{"value": "billing", "description": "Money"}, {"value": "none of these"}]
        levels = [{"label": "0", "description": "calm"}, {"label": "1", "description": "furious"}]
        late = {"type": "predicate", "instructions": "It is late."}
        rows = [late, team | {"choices": choices}, anger | {"levels": levels}]
        wanted = {"model": "test-model", "input": '{"text": "hello"}', "questions": rows}
    assert first == wanted


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/", "/api/v1"])
async def test_the_address_can_end_in_its_version(wire: WireName, tail: str) -> None:
    async with loopback(telling(wire, TOLD)) as server:
        url = f"http://127.0.0.1:{server.port}{tail}"
        async with HttpDecisionClient(config(server, wire, url=url)) as client:
            await client.decide("x", QUESTIONS)
    path = {"systemone": "/v1/systemone", "openai": "/v1/decisions"}[wire]
    head = server.requests[0].head
    assert head.startswith(f"POST {'/api' if 'api' in tail else ''}{path} ")
    assert server.requests[0].authorization == f"Bearer {KEY}"
    assert f"user-agent: llm-common/{__version__}\r\n" in head.lower()


async def test_connections_are_kept_alive_and_a_closed_one_replaced(wire: WireName) -> None:
    async def twice(connection: Wire) -> None:
        for _ in range(2):
            request = await connection.request()
            assert request is not None
            await connection.send(
                response(200, json.dumps(payload(wire, request.body, TOLD)).encode())
            )

    async with served(wire, twice, telling(wire, TOLD)) as (server, client):
        for connections in (1, 1, 2):
            assert (await client.decide("x", QUESTIONS)).yes("late") == 0.9
            assert server.connections == connections


async def test_a_connection_with_a_second_reply_is_closed(wire: WireName) -> None:
    async def twice(connection: Wire) -> None:
        request = await connection.request()
        assert request is not None
        reply = response(200, json.dumps(payload(wire, request.body, TOLD)).encode())
        await connection.send(reply + reply)
        await connection.request()

    async with served(wire, twice) as (server, client):
        for state in ("first", "second"):
            assert (await client.decide(state, QUESTIONS)).yes("late") == 0.9
        assert server.connections == 2


async def test_a_reply_to_another_call_is_never_used(wire: WireName) -> None:
    async def behind(connection: Wire) -> None:
        request = await connection.request()
        assert request is not None
        reply = response(200, json.dumps(payload(wire, request.body, TOLD)).encode())
        await connection.send(reply)
        await connection.request()
        await connection.send(reply)

    async with served(wire, behind) as (_, client):
        assert (await client.decide("first", QUESTIONS)).yes("late") == 0.9
        error = await failure(client)
    assert isinstance(error, MalformedReplyError)
    assert error.reason == "wrong_question"


async def test_a_refused_question_does_not_affect_the_others(wire: WireName) -> None:
    async with served(wire, telling(wire, TOLD | {PAID.text: REFUSED})) as (_, client):
        decisions = await client.decide("x", QUESTIONS)
        assert decisions.answers == {"late": 0.9}
        assert decisions.unanswered == {"paid": "refused"}
        assert decisions.yes("paid") == 0.0


async def test_a_reply_that_refuses_every_question_is_an_answer(wire: WireName) -> None:
    async with served(wire, telling(wire, dict.fromkeys(TOLD, REFUSED))) as (_, client):
        decisions = await client.decide("x", QUESTIONS)
    assert decisions.unanswered == dict.fromkeys(QUESTIONS, "refused")


@pytest.mark.parametrize("name", ["late", "paid", "unheard", ""])
async def test_an_answer_to_an_unasked_question_is_an_error(wire: WireName, name: str) -> None:
    """Check this also for the caller's id, which the endpoint never saw."""

    def renamed(reply: dict[str, Any], _: dict[str, Any]) -> bytes:
        if wire == "systemone":
            reply["answers"][name] = reply["answers"].popitem()[1]
        else:
            reply["answers"][0]["name"] = name
        return json.dumps(reply).encode()

    async with served(wire, changed(wire, TOLD, renamed), max_attempts=2) as (server, client):
        error = await failure(client)
    assert isinstance(error, MalformedReplyError)
    assert error.reason == "wrong_question"
    assert error.usage is not None
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("question", "given", "reason"),
    [
        (PAID, -0.1, "out_of_range"),
        (PAID, 1e400, "out_of_range"),
        (PAID, True, "wrong_type"),
        (PAID, "0.5", "wrong_type"),
        (PAID, None, "wrong_type"),
        (PAID, {"billing": 1.0}, "wrong_type"),
        (TEAM, 0.5, "wrong_type"),
        (TEAM, {"billing": 0.5, "none of these": 0.9}, "not_a_distribution"),
        (TEAM, {"billing": 0.1, "none of these": 0.1}, "not_a_distribution"),
        (TEAM, {"billing": 1.0}, "wrong_options"),
        (TEAM, {"billing": 0.5, "none of these": 0.5, "more": 0.0}, "wrong_options"),
        (TEAM, {"billing": "0.5", "none of these": 0.5}, "wrong_type"),
        (ANGER, [0.5, 0.4, 0.1], "wrong_options"),
        (ANGER, [0.5], "wrong_options"),
    ],
)
async def test_an_unusable_answer_is_left_out_with_its_reason(
    wire: WireName, question: Question, given: object, reason: str
) -> None:
    def with_infinity(reply: dict[str, Any], _: dict[str, Any]) -> bytes:
        return json.dumps(reply).replace("Infinity", "1e308").encode()

    told = {LATE.text: 0.9, question.text: given}
    async with served(wire, changed(wire, told, with_infinity)) as (_, client):
        decisions = await client.decide("x", {"late": LATE, "odd": question})
    assert decisions.answers == {"late": 0.9}
    assert decisions.unanswered == {"odd": reason}


async def test_shares_rounded_to_two_decimals_are_accepted(wire: WireName) -> None:
    options = {str(n): "" for n in range(30)}
    async with served(wire, telling(wire, {"Which?": dict.fromkeys(options, 0.03)})) as (_, client):
        assert (await client.decide("x", {"which": Choice("Which?", options)})).options("which")[
            "7"
        ] == 0.03


@pytest.mark.parametrize(
    ("status", "header"),
    [(429, {"Retry-After": "0.2"}), (503, {"Retry-After": "60", "Retry-After-Ms": "200"})],
)
async def test_retry_after_is_honoured(wire: WireName, status: int, header: dict[str, str]) -> None:
    async with served(
        wire, raw(response(status, b"{}", header)), telling(wire, TOLD), max_attempts=2
    ) as (
        server,
        client,
    ):
        started = time.monotonic()
        assert (await client.decide("x", QUESTIONS)).yes("late") == 0.9
        assert 0.2 <= time.monotonic() - started < 10  # seconds of patience on a busy machine
        assert len(server.requests) == 2


async def test_a_delay_beyond_the_deadline_is_not_begun(wire: WireName) -> None:
    async with served(wire, answer(429, b"{}", {"Retry-After": "3600"}), max_attempts=2) as (
        server,
        client,
    ):
        started = time.monotonic()
        error = await failure(client)
        assert time.monotonic() - started < 10  # seconds of patience on a busy machine
        assert len(server.requests) == 1
    assert isinstance(error, LLMRateLimitError)
    assert error.retry_after_s == 3600


async def test_errors_are_retried_at_most_as_configured(wire: WireName) -> None:
    async with served(wire, answer(500, b"down"), max_attempts=2) as (server, client):
        assert isinstance(await failure(client), LLMStatusError)
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, LLMStatusError), (401, LLMAuthError), (403, LLMAuthError), (413, ContextTooLongError)],
)
async def test_permanent_errors_are_not_retried(
    wire: WireName, status: int, kind: type[LLMError]
) -> None:
    body = json.dumps(
        {"detail": [{"loc": ["body"], "msg": f"bad {KEY}", "type": "missing"}]}
    ).encode()
    async with served(wire, answer(status, body), max_attempts=2) as (server, client):
        error = await failure(client)
        assert len(server.requests) == 1
    assert isinstance(error, kind)
    assert isinstance(error, LLMStatusError)
    assert "[api key]" in error.body


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (
            (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
                b'500\r\n\r\n{"answers"'
            ),
            LLMConnectionError,
        ),
        (response(200, b'{"answers": '), MalformedReplyError),
        (response(200, b""), MalformedReplyError),
        (response(200, b"[]"), MalformedReplyError),
        (response(200, b"{}"), MalformedReplyError),
        (response(200, b'{"answers": 7}'), MalformedReplyError),
        (response(200, b'{"answers": [7]}'), MalformedReplyError),
        (response(200, b"<p>hello</p>", {"Content-Type": "text/html"}), MalformedReplyError),
        (response(200, b'{"error": {"code": 401, "message": "no"}}'), LLMAuthError),
        (response(302, b"", {"Location": "http://127.0.0.1:9/"}), LLMStatusError),
        (b"", LLMConnectionError),
    ],
    ids=[
        "cut",
        "cut-json",
        "empty",
        "list",
        "no-answers",
        "number",
        "numbers",
        "html",
        "error",
        "redirect",
        "hung-up",
    ],
)
async def test_an_unusable_reply_raises(wire: WireName, reply: bytes, kind: type[LLMError]) -> None:
    async with served(wire, raw(reply)) as (_, client):
        assert isinstance(await failure(client), kind)


async def test_a_broken_connection_is_retried(wire: WireName) -> None:
    async with served(wire, raw(b"HTTP/1.1 200 OK\r\n"), telling(wire, TOLD), max_attempts=2) as (
        _,
        client,
    ):
        assert (await client.decide("x", QUESTIONS)).yes("late") == 0.9


async def test_a_reply_is_limited_while_it_arrives(wire: WireName) -> None:
    async def endless(connection: Wire) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while True:
            await connection.send(b" " * 65_536)

    async with served(wire, endless, max_response_bytes=100_000) as (_, client):
        error = await failure(client)
    assert isinstance(error, MalformedReplyError)
    assert error.reason == "too_large"


async def test_one_deadline_spans_the_call(wire: WireName) -> None:
    async def silent(connection: Wire) -> None:
        await connection.request()
        await asyncio.sleep(60)

    async with served(wire, silent, timeout_s=0.2) as (_, client):
        started = time.monotonic()
        error = await failure(client)
        assert time.monotonic() - started < 5  # seconds of patience on a busy machine
        with pytest.raises(LLMTimeoutError, match=r"0\.1 s"):
            await client.decide("x", QUESTIONS, timeout_s=0.1)
    assert isinstance(error, LLMTimeoutError)


async def test_costs_are_reported_and_limited(wire: WireName) -> None:
    scripts: list[Script] = [telling(wire, TOLD)]
    async with served(wire, *scripts, input_usd_per_million=10.0, cost_limit_usd=0.01) as (
        server,
        client,
    ):
        decisions = await client.decide("x", QUESTIONS)
        assert decisions.cost_usd == pytest.approx(120 * 10 / 1e6)
        assert (decisions.usage.prompt_tokens, decisions.usage.total_tokens) == (120, 132)
        assert decisions.model == "served-model"
        assert client.usage.cost_usd == decisions.cost_usd
        with pytest.raises(CostLimitError):
            await client.decide("x" * 1_000, QUESTIONS)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reported", "cost"),
    [
        ({"input_tokens": 9, "cost": 0.5}, 0.5),
        ({"input_tokens": 9}, None),
        ({"cost": -1}, None),
        (7, None),
    ],
)
async def test_the_cost_is_reported_or_unknown(
    wire: WireName, reported: object, cost: float | None
) -> None:
    async with served(wire, telling(wire, TOLD, usage=reported)) as (_, client):
        assert (await client.decide("x", QUESTIONS)).cost_usd == cost


async def test_a_limit_needs_a_price(wire: WireName) -> None:
    known = {
        "systemone": ("https://api.typesafe.ai", "jev-latest"),
        "openai": ("https://api.openai.com/v1", "gpt-6-luna"),
    }
    url, model = known[wire]
    HttpDecisionClient(DecisionConfig(url=url, model=model, wire=wire, cost_limit_usd=1.0))
    with pytest.raises(ConfigError, match="input_usd_per_million"):
        HttpDecisionClient(
            DecisionConfig(url="http://127.0.0.1:1", model=model, wire=wire, cost_limit_usd=1.0)
        )


async def test_no_key_and_no_text_reaches_a_log_or_span(
    wire: WireName, caplog: pytest.LogCaptureFixture, exported: InMemorySpanExporter
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = answer(500, f"{KEY} {SECRET_STATE}".encode())
    async with served(wire, echo) as (_, client):
        await failure(client)
        assert KEY not in f"{client!r}{client.config!r}{vars(client)}"
    async with served(wire, telling(wire, TOLD)) as (_, client):
        await client.decide(SECRET_STATE, QUESTIONS)
    failed, done = exported.get_finished_spans()
    assert dict(failed.attributes or {})["error.type"] == "LLMStatusError"
    facts = dict(done.attributes or {})
    assert isinstance(facts.pop("server.port"), int)
    assert (done.name, facts) == (
        "decide test-model",
        {
            "gen_ai.operation.name": "decide",
            "gen_ai.provider.name": wire,
            "gen_ai.request.model": "test-model",
            "gen_ai.response.model": "served-model",
            "gen_ai.usage.cache_read.input_tokens": 0,
            "gen_ai.usage.input_tokens": 120,
            "gen_ai.usage.output_tokens": facts["gen_ai.usage.output_tokens"],
            "llm_common.questions": 2,
            "llm_common.unanswered": 0,
            "server.address": "127.0.0.1",
        },
    )
    seen = caplog.text + failed.to_json() + done.to_json()
    assert not [word for word in (KEY, SECRET_STATE, "It is late") if word in seen]


async def test_a_closed_client_raises(wire: WireName) -> None:
    async with served(wire, telling(wire, TOLD), max_attempts=10) as (_, client):
        await client.aclose()
        await client.aclose()
        assert isinstance(await failure(client), LLMConnectionError)


MANY: dict[str, Question] = {str(n): Predicate(f"It is {n}.") for n in range(401)}
LARGE: dict[str, Question] = {"which": Choice("Which?", {str(n): "" for n in range(256)})}


@pytest.mark.parametrize("questions", [MANY, LARGE], ids=["questions", "options"])
async def test_more_than_the_endpoint_accepts_is_not_sent(
    wire: WireName, questions: dict[str, Question]
) -> None:
    """Check the limits of `openai`. A `systemone` endpoint reports its model's limits itself."""
    async with served(wire, telling(wire, {})) as (server, client):
        if wire == "openai":
            with pytest.raises(ValueError, match="the endpoint accepts"):
                await client.decide("x", questions)
        else:
            assert isinstance(await failure(client, questions), MalformedReplyError)
        assert len(server.requests) == (wire == "systemone")
