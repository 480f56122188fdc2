"""The client against every fault of the misbehaving server, over real sockets."""

import gzip
import json
import resource
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from llm_common.core.http.wire import read_payload, read_response
from llm_common.errors import (
    LLMAuthError,
    LLMError,
    LLMRateLimitError,
    LLMStatusError,
    MalformedReplyError,
    ModelNotFoundError,
)
from tests.core.calling import ask_once, failure
from tests.core.loopback import answer, loopback, ok, raw, response
from tests.core.misbehaving_server import bomb


@pytest.mark.parametrize("encoding", ["gzip", "deflate"], ids=["F-124-gzip", "F-124-deflate"])
async def test_a_decompression_bomb_is_refused_in_little_memory(encoding: str) -> None:
    packed = response(200, bomb(encoding, megabytes=1_000), {"Content-Encoding": encoding})
    async with loopback(raw(packed)) as server:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        tracemalloc.start()
        error = await failure(server.config())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert isinstance(error, MalformedReplyError)
    assert error.reason == "too_large"
    assert peak < 32_000_000
    assert grown_kb < 64_000


async def test_a_reply_can_be_as_long_as_the_limit() -> None:
    async with loopback(answer(200, ok())) as server:
        assert (await ask_once(server.config(max_response_bytes=len(ok())))).content
        error = await failure(server.config(max_response_bytes=len(ok()) - 1))
    assert isinstance(error, MalformedReplyError)
    assert error.reason == "too_large"


@pytest.mark.parametrize(
    ("packed", "reason"),
    [(gzip.compress(ok()) + bytes(2_000), "too_large"), (b"", "empty")],
    ids=["padded", "empty"],
)
async def test_the_compressed_size_is_limited_too(packed: bytes, reason: str) -> None:
    async with loopback(answer(200, packed, {"Content-Encoding": "gzip"})) as server:
        error = await failure(server.config(max_response_bytes=1_000))
    assert isinstance(error, MalformedReplyError)
    assert error.reason == reason


@pytest.mark.parametrize("status", [301, 302, 307, 308], ids=lambda status: f"F-127-{status}")
async def test_a_redirect_is_not_followed_and_not_repeated(status: int) -> None:
    async with loopback(answer(200, ok())) as elsewhere:
        target = f"http://user:pw@127.0.0.1:{elsewhere.port}/v1/chat/completions"
        async with loopback(answer(status, target.encode(), {"Location": target})) as server:
            error = await failure(server.config())
            assert len(server.requests) == 1
        assert elsewhere.connections == 0
    assert isinstance(error, LLMStatusError)
    assert error.status == status
    assert str(elsewhere.port) not in f"{error}{vars(error)}"


@pytest.mark.parametrize("code", ["5" * 5_000, "٥٠٠", "5" * 5_000 + "x", "-429", "4_9", " 429"])
async def test_an_odd_error_code_is_an_error_without_a_status_f_170(code: str) -> None:
    errors: list[dict[str, object]] = [
        {"code": code},
        {"status": code},
        {"type": code},
        {"code": None, "status": [code], "type": {}},
    ]
    for error in errors:
        async with loopback(answer(200, json.dumps({"error": error}).encode())) as server:
            caught = await failure(server.config())
        assert isinstance(caught, LLMStatusError)
        assert caught.status == 200


async def test_an_error_code_of_digits_is_a_status_f_170(
    no_waits: None,
) -> None:
    body = b'{"error": {"code": ' + b"4" * 5_000 + b', "status": "429"}}'
    async with loopback(answer(200, body)) as server:
        assert isinstance(await failure(server.config()), MalformedReplyError | LLMRateLimitError)
    for code, kind in (
        ("400", LLMStatusError),
        ("401", LLMAuthError),
        (404, ModelNotFoundError),
        ("599", LLMStatusError),
    ):
        async with loopback(answer(200, json.dumps({"error": {"code": code}}).encode())) as server:
            error = await failure(server.config())
        assert isinstance(error, kind)
        assert error.status == int(code)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(
    where=st.sampled_from(
        ["id", "model", "choices", "usage", "error", "choice", "message", "finish_reason"]
    ),
    value=JSON,
)
async def test_a_wrong_value_in_a_reply_is_an_llm_error_f_121(where: str, value: object) -> None:
    payload = json.loads(ok())
    choice = payload["choices"][0]
    {"choice": payload["choices"], "message": choice, "finish_reason": choice}.get(where, payload)[
        0 if where == "choice" else where
    ] = value
    try:
        received = read_payload(json.dumps(payload).encode(), content_type="application/json")
        reply = read_response(received, model="m")
    except LLMError as error:
        assert isinstance(error, MalformedReplyError)  # noqa: PT017 - raising nothing is as good
    else:
        assert isinstance(reply.model, str)


async def test_an_answer_whose_model_is_not_a_str_is_read() -> None:
    async with loopback(answer(200, ok(model=5, id=None))) as server:
        reply = await ask_once(server.config())
    assert (reply.model, reply.id) == ("test-model", "")
