"""Behaviour in which the adapters differ."""

from types import SimpleNamespace
from typing import Any

import pytest

from llm_common.clients import LiteLLMClient, OpenAISDKClient
from llm_common.core import LLMMessage, MessageRole
from llm_common.errors import (
    LLMError,
    LLMRateLimitError,
    MalformedReplyError,
)
from tests.clients import double_clients
from tests.clients.test_adapters import USAGE

ASKED = [LLMMessage(role=MessageRole.USER, content="Which?")]
JSON_OBJECT = {"type": "json_object"}


def payload(content: Any = "{}", *, usage: Any = None, **message: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "model": "test-model",
        "choices": [{"finish_reason": "stop", "message": {"content": content, **message}}],
        "usage": usage or {name: count for name, count in USAGE.items() if name != "cost"},
    }


class Recorder:
    """A client of an SDK that records the arguments of its calls."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.sent: dict[str, Any] = {}
        self.chat = SimpleNamespace(completions=self)

    async def create(self, **arguments: Any) -> Any:
        self.sent = arguments
        return self.answer


# --- OpenAI's SDK


async def test_options_unknown_to_openai_are_in_the_extra_body() -> None:
    sdk = Recorder(payload())
    client = OpenAISDKClient(sdk, model="glm-4.5-air", provider="zai")
    got = await client.chat_completion(ASKED, response_format=JSON_OBJECT, extra_body={"top_k": 1})
    assert sdk.sent["response_format"] == JSON_OBJECT
    assert sdk.sent["extra_body"] == {"thinking": {"type": "disabled"}, "top_k": 1}
    # 46 fresh, 64 cached and 7 completion tokens at the prices of the profile.
    assert got.cost_usd == pytest.approx((46 * 0.20 + 64 * 0.03 + 7 * 1.10) / 1_000_000)
    assert got.provider == "zai"


async def test_a_reported_cost_wins_over_a_calculated_one() -> None:
    client = OpenAISDKClient(Recorder(payload(usage=USAGE)), model="glm-4.5-air", provider="zai")
    assert (await client.chat_completion(ASKED)).cost_usd == 0.0125


@pytest.mark.parametrize("also", [{}, payload()], ids=["alone", "beside-an-answer"])
async def test_an_error_object_in_an_answer_is_raised_f_120(also: dict[str, Any]) -> None:
    client = OpenAISDKClient(
        Recorder(also | {"error": {"code": 429, "message": "slow down"}}), model="test-model"
    )
    with pytest.raises(LLMRateLimitError):
        await client.chat_completion(ASKED)


async def test_the_error_for_an_unusable_answer_has_its_cost() -> None:
    broken = {"usage": USAGE, "choices": []}
    with pytest.raises(MalformedReplyError) as caught:
        await OpenAISDKClient(Recorder(broken), model="m").chat_completion(ASKED)
    assert caught.value.cost_usd == 0.0125


async def test_a_client_that_is_not_async_is_an_llm_error() -> None:
    sdk = SimpleNamespace(
        chat=SimpleNamespace(completions=SimpleNamespace(create=lambda **_: payload()))
    )
    with pytest.raises(LLMError, match="OpenAISDKClient raised TypeError"):
        await OpenAISDKClient(sdk, model="m").chat_completion(ASKED)


async def test_closing_an_adapter_does_not_close_the_wrapped_client() -> None:
    sdk = Recorder(payload())
    async with OpenAISDKClient(sdk, model="m") as client:
        await client.aclose()
    assert (await client.chat_completion(ASKED)).content == "{}"


# --- LiteLLM


@pytest.mark.parametrize(
    ("usage", "hidden", "cost_usd"),
    [
        pytest.param(USAGE, {"response_cost": 0.5}, 0.0125, id="the endpoint's"),
        pytest.param(None, {"response_cost": 0.5}, 0.5, id="LiteLLM's"),
        pytest.param(None, {"response_cost": None}, None, id="unknown"),
        pytest.param(None, None, None, id="none"),
    ],
)
async def test_the_cost_is_the_endpoints_or_litellms(
    usage: Any, hidden: Any, cost_usd: float | None
) -> None:
    async def acompletion(**arguments: Any) -> Any:
        return SimpleNamespace(model_dump=lambda **_: payload(usage=usage), _hidden_params=hidden)

    got = await LiteLLMClient(acompletion, model="openai/m").chat_completion(ASKED)
    assert got.cost_usd == cost_usd
    assert got.usage.prompt_tokens == 110


# --- all adapters


async def test_a_model_that_always_reasons_gets_a_limit_and_no_temperature() -> None:
    sdk: Any = Recorder(double_clients.Completion(payload()))
    for client in (
        OpenAISDKClient(sdk, model="gpt-5", prefers_json_schema=True),
        LiteLLMClient(sdk.create, model="openai/gpt-5", prefers_json_schema=True),
    ):
        assert client.prefers_json_schema
        await client.chat_completion(ASKED, temperature=0.0, max_tokens=9)
        assert sdk.sent["max_completion_tokens"] == 9
        assert not {"temperature", "max_tokens"} & set(sdk.sent)
