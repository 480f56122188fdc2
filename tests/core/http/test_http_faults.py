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
    LLMStatusError,
    MalformedReplyError,
    ModelNotFoundError,
)
from tests.core.loopback import answer, ask_once, failure_at, loopback, ok, raw, response
from tests.core.misbehaving_server import bomb


@pytest.mark.parametrize("encoding", ["gzip", "deflate"], ids=["F-124-gzip", "F-124-deflate"])
async def test_a_decompression_bomb_is_refused_in_little_memory(encoding: str) -> None:
    packed = response(200, bomb(encoding, megabytes=1_000), {"Content-Encoding": encoding})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    error, _ = await failure_at(MalformedReplyError, raw(packed))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert error.reason == "too_large"
    assert peak < 32_000_000
    assert grown_kb < 64_000


async def test_a_reply_can_be_as_long_as_the_limit() -> None:
    async with loopback(answer(200, ok())) as server:
        assert (await ask_once(server.config(max_response_bytes=len(ok())))).content


@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        (b" " + ok(), {}, "too_large"),
        (gzip.compress(ok()) + bytes(2_000), {"Content-Encoding": "gzip"}, "too_large"),
        (b"", {"Content-Encoding": "gzip"}, "empty"),
    ],
    ids=["a byte more", "padded", "empty"],
)
async def test_a_longer_reply_is_refused_by_its_compressed_size_too(
    body: bytes, headers: dict[str, str], reason: str
) -> None:
    script = answer(200, body, headers)
    error, _ = await failure_at(MalformedReplyError, script, max_response_bytes=len(ok()))
    assert error.reason == reason


@pytest.mark.parametrize("status", [301, 302, 307, 308], ids=lambda status: f"F-127-{status}")
async def test_a_redirect_is_not_followed_and_not_repeated(status: int) -> None:
    async with loopback(answer(200, ok())) as elsewhere:
        target = f"http://user:pw@127.0.0.1:{elsewhere.port}/v1/chat/completions"
        script = answer(status, target.encode(), {"Location": target})
        error, server = await failure_at(LLMStatusError, script)
        assert len(server.requests) == 1
        assert elsewhere.connections == 0
    assert error.status == status
    assert str(elsewhere.port) not in f"{error}{vars(error)}"


ODD_CODES = ("5" * 5_000, "٥٠٠", "5" * 5_000 + "x", "-429", "4_9", " 429")


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        *(
            pytest.param({field: code}, 200, LLMStatusError, id=f"{field}-{code[:9]}")
            for field in ("code", "status", "type")
            for code in ODD_CODES
        ),
        ({"code": "400"}, 400, LLMStatusError),
        ({"code": "401"}, 401, LLMAuthError),
        ({"code": 404}, 404, ModelNotFoundError),
        ({"code": "599"}, 599, LLMStatusError),
    ],
)
async def test_an_error_code_is_a_status_only_if_it_is_one_f_170(
    error: dict[str, object], status: int, kind: type[LLMStatusError]
) -> None:
    script = answer(200, json.dumps({"error": error}).encode())
    raised, _ = await failure_at(kind, script)
    assert raised.status == status


async def test_an_error_code_of_thousands_of_digits_is_an_llm_error_f_170() -> None:
    body = b'{"error": {"code": ' + b"4" * 5_000 + b', "status": "400"}}'
    await failure_at(LLMError, answer(200, body))


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
