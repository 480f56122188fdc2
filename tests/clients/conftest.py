"""`adapter`: makes an adapter around a double of each third-party client, and around the real one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import httpx
import pytest

from llm_common.clients import LangChainClient, LiteLLMClient, OpenAISDKClient, PydanticAIClient
from llm_common.core import LLMClient
from tests.clients import double_clients
from tests.core.loopback import KEY


@dataclass(frozen=True)
class Adapter:
    """The adapter of that name, around a double or around the real client, neither of which retries."""

    name: str
    real: bool

    @property
    def prefix(self) -> str:
        """What LiteLLM wants before a model's name."""
        return "openai/" if self.name == "litellm" else ""

    @asynccontextmanager
    async def client(
        self, base_url: str, *, timeout_s: float = 5.0, own_timeout_s: float = 5.0
    ) -> AsyncIterator[LLMClient]:
        """One that talks to an address; `own_timeout_s` is that of the third-party client."""
        if not self.real:
            yield _around_double(
                self.name, double_clients.AsyncOpenAI(base_url, KEY, own_timeout_s), timeout_s
            )
            return
        facts = {"base_url": base_url, "api_key": KEY, "timeout": own_timeout_s, "max_retries": 0}
        async with httpx.AsyncClient(timeout=own_timeout_s) as http:
            yield _around_real(self.name, facts, http, timeout_s)


def _around_double(name: str, sdk: double_clients.AsyncOpenAI, timeout_s: float) -> LLMClient:
    if name == "openai_sdk":
        return OpenAISDKClient(sdk, model="test-model", timeout_s=timeout_s)
    if name == "litellm":
        return LiteLLMClient(
            double_clients.acompletion_of(sdk), model="openai/test-model", timeout_s=timeout_s
        )
    if name == "langchain":
        return LangChainClient(double_clients.ChatModel(sdk=sdk), timeout_s=timeout_s)
    model_for = partial(double_clients.Model, sdk, formats=True)
    return PydanticAIClient(model_for("test-model"), model_for=model_for, timeout_s=timeout_s)


def _around_real(
    name: str, facts: dict[str, Any], http: httpx.AsyncClient, timeout_s: float
) -> LLMClient:
    if name == "litellm":
        acompletion = partial(import_module("litellm").acompletion, **facts)
        return LiteLLMClient(acompletion, model="openai/test-model", timeout_s=timeout_s)
    if name == "langchain":
        chat_openai = import_module("langchain_openai").ChatOpenAI
        return LangChainClient(
            chat_openai(model="test-model", http_async_client=http, **facts), timeout_s=timeout_s
        )
    sdk = import_module("openai").AsyncOpenAI(http_client=http, **facts)
    if name == "openai_sdk":
        return OpenAISDKClient(sdk, model="test-model", timeout_s=timeout_s)
    provider = import_module("pydantic_ai.providers.openai").OpenAIProvider(openai_client=sdk)
    model_for = partial(
        import_module("pydantic_ai.models.openai").OpenAIChatModel, provider=provider
    )
    return PydanticAIClient(model_for("test-model"), model_for=model_for, timeout_s=timeout_s)


_NAMES = ("openai_sdk", "litellm", "pydantic_ai", "langchain")
# what third-party packages warn of is theirs
_REAL = (pytest.mark.adapters, pytest.mark.filterwarnings("default"))


@pytest.fixture(
    params=[
        *(pytest.param(Adapter(name, real=False), id=f"double-{name}") for name in _NAMES),
        *(pytest.param(Adapter(name, real=True), id=name, marks=_REAL) for name in _NAMES),
    ]
)
def adapter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Adapter:
    """An adapter around a double, or, marked `adapters`, around the real client."""
    # else LiteLLM loads it from the network on import
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    made: Adapter = request.param
    return made
