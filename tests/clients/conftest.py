"""`adapter`: each adapter around a double of its third-party client, and around the real one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import httpx
import pytest

from llm_common.clients import LiteLLMClient, OpenAISDKClient
from llm_common.core import LLMClient
from tests.clients import double_clients
from tests.core.loopback import KEY


@dataclass(frozen=True)
class Adapter:
    """An adapter by name, around a double or the real client. Neither retries."""

    name: str
    real: bool

    @property
    def prefix(self) -> str:
        """Return the prefix that LiteLLM requires before a model's name."""
        return "openai/" if self.name == "litellm" else ""

    @asynccontextmanager
    async def client(
        self, base_url: str, *, timeout_s: float = 60.0, own_timeout_s: float = 60.0
    ) -> AsyncIterator[LLMClient]:
        """Yield a client of an address. `own_timeout_s` is the third-party client's timeout."""
        if not self.real:
            yield _around_double(
                self.name, double_clients.AsyncOpenAI(base_url, KEY, own_timeout_s), timeout_s
            )
            return
        settings = {
            "base_url": base_url,
            "api_key": KEY,
            "timeout": own_timeout_s,
            "max_retries": 0,
        }
        async with httpx.AsyncClient(timeout=own_timeout_s) as http:
            yield _around_real(self.name, settings, http, timeout_s)


def _around_double(name: str, sdk: double_clients.AsyncOpenAI, timeout_s: float) -> LLMClient:
    if name == "openai_sdk":
        return OpenAISDKClient(sdk, model="test-model", timeout_s=timeout_s)
    return LiteLLMClient(
        double_clients.acompletion_of(sdk), model="openai/test-model", timeout_s=timeout_s
    )


def _around_real(
    name: str, settings: dict[str, Any], http: httpx.AsyncClient, timeout_s: float
) -> LLMClient:
    if name == "litellm":
        acompletion = partial(import_module("litellm").acompletion, **settings)
        return LiteLLMClient(acompletion, model="openai/test-model", timeout_s=timeout_s)
    sdk = import_module("openai").AsyncOpenAI(http_client=http, **settings)
    return OpenAISDKClient(sdk, model="test-model", timeout_s=timeout_s)


_NAMES = ("openai_sdk", "litellm")
# Warnings of third-party packages are not errors of ours.
_REAL = (pytest.mark.adapters, pytest.mark.filterwarnings("default"))


@pytest.fixture(
    params=[
        *(pytest.param(Adapter(name, real=False), id=f"double-{name}") for name in _NAMES),
        *(pytest.param(Adapter(name, real=True), id=name, marks=_REAL) for name in _NAMES),
    ]
)
def adapter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Adapter:
    """Return an adapter around a double or, marked `adapters`, around the real client."""
    # LiteLLM would load the map from the network on import.
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    requested: Adapter = request.param
    return requested
