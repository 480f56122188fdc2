"""Every error of a call names the model, the host, the problem and the remedy.

It never contains a key or a whole address.
"""

import asyncio
import json
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from pydantic import SecretStr

from llm_common import _env
from llm_common.agents import ToolCall
from llm_common.clients import LiteLLMClient
from llm_common.core import OpenAICompatibleClient, ask
from llm_common.errors import LLMError, LLMStatusError, LLMTimeoutError, ModelNotFoundError
from llm_common.testing import ScriptedClient
from tests.core.loopback import (
    KEY,
    MESSAGES,
    Script,
    answer,
    failure,
    failure_at,
    loopback,
    ok,
    raw,
)
from tests.core.misbehaving_server import misbehaving, stay_silent
from tests.test_errors import says_what_to_do

OTHER = _env.CONTEXT_SELECTION_MODEL.name
# By error of a call: the endpoint's script, changes to the configuration, and a part of the text.
ERRORS: dict[str, tuple[Script, dict[str, Any], str]] = {
    "auth": (answer(401, f"no such key {KEY}".encode()), {}, "refused the key (401)"),
    "not_found": (answer(404, b"{}"), {}, "no such path or model; check"),
    "rate_limit": (answer(429, b"{}"), {"max_attempts": 1}, "rate limit is reached (429)"),
    "too_long": (answer(413, b"{}"), {}, "does not fit the model (413)"),
    "status": (answer(418, b"{}"), {}, "an error (status 418)"),
    "stated": (answer(200, b'{"error": {"code": "invalid_api_key"}}'), {}, "refused the key (401)"),
    "redirect": (answer(302, b"", {"Location": "http://user:pw@elsewhere"}), {}, "redirects (302)"),
    "connection": (raw(b""), {"max_attempts": 1}, "closed the connection"),
    "timeout": (misbehaving(stay_silent), {"timeout_s": 0.2}, "no answer within 0.2 s"),
    "malformed": (answer(200, b"<html>"), {}, "is not JSON"),
    "no_choices": (answer(200, ok(choices=[])), {}, "contains no choice"),
    "too_large": (answer(200, ok()), {"max_response_bytes": 9}, "longer than 9 bytes"),
    "encoding": (answer(200, ok(), {"Content-Encoding": "br"}), {}, "content encoding"),
    "cost_limit": (answer(200, ok()), {"cost_limit_usd": 0.01}, "cost_limit_usd is $0.01"),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_names_model_host_and_remedy(name: str) -> None:
    script, changes, text = ERRORS[name]
    error, server = await failure_at(LLMError, script, **changes)
    host = f"127.0.0.1:{server.port}"
    assert str(error).startswith(f"model test-model at {host}: ")
    assert text in str(error)
    assert text in error.message
    assert says_what_to_do(str(error))
    assert (error.model, error.host) == ("test-model", host)
    assert "http" not in str(error).lower().replace("does not speak http", "")


@pytest.mark.parametrize(
    ("model", "chosen_by"),
    [
        (None, "LLM_COMMON_MODEL or default_model"),
        (
            "glm-4.5-air",
            f"the call's `model`, a selector's from {_env.TOOL_SELECTION_MODEL.name} or {OTHER}",
        ),
    ],
    ids=["default", "call"],
)
async def test_an_unknown_model_is_named_with_its_source(model: str | None, chosen_by: str) -> None:
    missing = answer(404, b'{"error": {"message": "no such model"}}')
    error, server = await failure_at(ModelNotFoundError, missing, options={"model": model})
    assert error.chosen_by == chosen_by
    assert str(error) == (
        f"model {model or 'test-model'} at 127.0.0.1:{server.port}: the endpoint has no such "
        f"model or path (404); "
        f"check model and base_url. The model was named by {chosen_by}. "
        f"The endpoint wrote: no such model"
    )


LONG = "maximum context length is 8192 tokens. However, you requested 9000"
# By error: status, body, and what a user reads of it.
WORDS: dict[str, tuple[int, object, str]] = {
    "too_long": (400, {"error": {"message": LONG, "code": "context_length_exceeded"}}, LONG),
    "overload": (500, {"error": "model is loading"}, "model is loading"),  # Ollama
    "refused": (422, {"detail": "seed is not supported"}, "seed is not supported"),  # FastAPI
    "key": (401, {"message": f"no such key {KEY}, nor ghp_{'a1B2' * 9}"}, "[api key], nor [redac"),
    "lines": (400, {"message": "first\n\x1b[31msecond\u202e" + "x" * 900}, "first [31msecond x"),
}


@pytest.mark.parametrize("name", WORDS)
async def test_an_error_ends_with_what_the_endpoint_wrote(name: str) -> None:
    status, body, words = WORDS[name]
    refusal = answer(status, json.dumps(body).encode())
    error, _ = await failure_at(LLMStatusError, refusal, max_attempts=1)
    assert words in error.endpoint_message
    assert str(error).endswith(f". The endpoint wrote: {error.endpoint_message}")
    assert error.endpoint_message not in error.message
    assert len(error.endpoint_message) <= 300
    assert str(error).isprintable()


# As a key in Base64, which has slashes and ends with `=`. PHP escapes the one and Gson the other.
PADDED = "k8Fz/9qLm2.="
ESCAPED = {
    "PHP": r'{"error":{"message":"bad value for k8Fz\/9qLm2.= given"}}',
    "Gson": r'{"error":{"message":"bad value for k8Fz/9qLm2.\u003D given"}}',
    "JSON in JSON": r'{"error":{"message":"bad value for {\"key\": \"k8Fz\\\/9qLm2.=\"}"}}',
    "not whole": r'{"error":{"message":"bad value for k8Fz\/9qLm2.= gi',
}


@pytest.mark.parametrize("name", ESCAPED)
async def test_a_key_that_is_escaped_in_a_body_is_removed(name: str) -> None:
    refusal = answer(401, ESCAPED[name].encode())
    error, _ = await failure_at(LLMStatusError, refusal, api_key=SecretStr(PADDED))
    texts = f"{error} {error.body}"
    assert "[api key]" in texts
    assert "9qLm" not in texts
    if name != "not whole":
        assert error.endpoint_message.startswith("bad value for ")


@pytest.mark.parametrize(
    "body", [b"oops", b"<html>oops</html>", b'{"detail": [{"input": "oops"}]}']
)
async def test_a_body_without_an_error_message_is_not_in_the_text(body: bytes) -> None:
    error, _ = await failure_at(LLMStatusError, answer(400, body))
    assert "oops" in error.body
    assert "oops" not in str(error)


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (429, {"code": "insufficient_quota"}),
        (429, {"type": "insufficient_quota", "code": "project_spend_limit_exceeded"}),
        (429, {"code": "1113"}),
        (402, {}),
    ],
    ids=["openai", "openai-project", "zai", "openrouter"],
)
async def test_a_call_without_credit_is_not_repeated(status: int, fields: dict[str, str]) -> None:
    body = json.dumps({"error": {"message": "check your plan", **fields}}).encode()
    error, server = await failure_at(LLMStatusError, answer(status, body), max_attempts=3)
    assert len(server.requests) == 1
    assert type(error) is LLMStatusError
    assert f"no credit left, or reached its spending limit ({status})" in error.message
    assert "wait" not in str(error)


@pytest.mark.parametrize(
    ("path", "start", "address"),
    [
        ("", "/", "base_url, which has no version such as /v1,"),
        ("/team-7/api", "…/", "base_url, which has no version such as /v1,"),
        ("/team-7/v1", "…/", "base_url"),
    ],
)
async def test_an_unknown_path_is_named_without_its_beginning(
    path: str, start: str, address: str
) -> None:
    async with loopback(answer(404, b"404 page not found")) as server:
        error = await failure(server.config(base_url=f"http://127.0.0.1:{server.port}{path}"))
    assert isinstance(error, ModelNotFoundError)
    assert error.message == (
        f"POST {start}chat/completions: 404, the endpoint has no such path or model; "
        f"check {address} and model"
    )


async def test_the_host_is_read_from_the_exceptions_request() -> None:
    class RequestError(Exception):
        def __init__(self, url: object) -> None:
            self.status_code = 401
            self.request = type("Request", (), {"url": url, "headers": {}})

    async def acompletion(**_: Any) -> Any:
        raise RequestError("https://user:pw@api.example.test:8443/v1?key=1")

    with pytest.raises(LLMError) as caught:
        await LiteLLMClient(acompletion, model="m").chat_completion(MESSAGES)
    assert str(caught.value).startswith(
        "model m at api.example.test:8443: the endpoint refused the key"
    )


async def test_ask_names_model_and_host_for_its_own_errors_too() -> None:
    async with (
        loopback(answer(200, ok("{}"))) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        with pytest.raises(LLMError) as caught:
            await ask(client, MESSAGES, reply_model=ToolCall, model=None, timeout_s=60)
        assert str(caught.value).startswith(
            f"model test-model at 127.0.0.1:{server.port}: The reply does not fit"
        )
    silent = ScriptedClient([lambda _: asyncio.sleep(5, "")])
    silent.default_model, silent.host = "mine", "my.host"
    with pytest.raises(LLMTimeoutError, match=r"model mine at my\.host: No answer within"):
        await ask(silent, MESSAGES, reply_model=ToolCall, model=None, timeout_s=0.05)


class Trap:
    """A client whose attributes raise, except its method."""

    async def chat_completion(self, **_: object) -> object:
        raise ValueError("x")

    @property
    def default_model(self) -> str:
        raise AssertionError

    host = default_model


async def test_no_property_of_a_third_party_client_is_run() -> None:
    with pytest.raises(LLMError, match=r"^Trap raised ValueError"):
        await ask(Trap(), MESSAGES, reply_model=ToolCall, model=None, timeout_s=60)


@pytest.mark.parametrize("name", ["line\nbreak", "\x1b[31mred", "\u202eright", "x" * 5_000])
def test_a_hostile_name_is_short_and_escaped_in_the_text(name: str) -> None:
    error = LLMError("what happened")
    error.locate(model=name, host=None)
    assert error.model == name
    assert str(error).isprintable()
    assert len(str(error)) < 150


def test_the_first_names_of_an_error_are_kept() -> None:
    error = ModelNotFoundError("what happened", status=404)
    error.locate(model="inner", host=None, chosen_by="inner")
    error.locate(model="outer", host="outer", chosen_by="outer")
    assert (error.model, error.host, error.chosen_by) == ("inner", "outer", "inner")


async def test_the_spans_of_a_failed_call_are_errors(exported: InMemorySpanExporter) -> None:
    async with (
        loopback(answer(401, b"{}")) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        with pytest.raises(LLMError):
            await ask(client, MESSAGES, reply_model=ToolCall, model=None, timeout_s=60)
    spans = exported.get_finished_spans()
    assert {span.name for span in spans} == {"chat test-model", "llm_common.ask"}
    assert {span.status.status_code for span in spans} == {StatusCode.ERROR}
    assert {name for span in spans for event in span.events for name in event.attributes or {}} <= {
        "exception.type"
    }
