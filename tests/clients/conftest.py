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
        sdk: Any = double_clients.AsyncOpenAI(base_url, KEY, own_timeout_s)
        acompletion = double_clients.acompletion_of(sdk)
        async with httpx.AsyncClient(timeout=own_timeout_s) as http:
            if self.real:
                settings: dict[str, Any] = {"base_url": base_url, "api_key": KEY}
                settings |= {"timeout": own_timeout_s, "max_retries": 0}
                sdk = import_module("openai").AsyncOpenAI(http_client=http, **settings)
                acompletion = partial(import_module("litellm").acompletion, **settings)
            if self.name == "litellm":
                yield LiteLLMClient(acompletion, model="openai/test-model", timeout_s=timeout_s)
            else:
                yield OpenAISDKClient(sdk, model="test-model", timeout_s=timeout_s)


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
