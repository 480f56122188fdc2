"""Objects that are not clients are refused with the name of their adapter."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from llm_common.core import LLMConfig
from llm_common.core.models import check_client
from llm_common.testing import ScriptedClient


async def answer(**_: Any) -> None:
    """Answer as a method of a third-party client."""


async def acompletion(**_: Any) -> None:
    """Answer as LiteLLM's function."""


def blocking(**_: Any) -> None:
    """Answer as a method of a synchronous client."""


def at(path: str, method: object = answer) -> Any:
    """Return an object with a method at a dotted path."""
    for name in reversed(path.split(".")):
        method = SimpleNamespace(**{name: method})
    return method


class Stub:
    async def chat_completion(self, **_: Any) -> None:
        """Answer as an application's own class."""


class Static:
    @staticmethod
    async def chat_completion(**_: Any) -> None:
        """Answer when called on the class."""


WRONG: dict[str, tuple[object, str]] = {
    "AsyncOpenAI": (
        at("chat.completions.create"),
        'wrap it: llm_common.clients.OpenAISDKClient(client, model="...")',
    ),
    "OpenAI": (
        at("chat.completions.create", blocking),
        "wrap the async client instead: .*OpenAISDKClient",
    ),
    "Anthropic": (at("messages.create"), "LiteLLMClient.*anthropic/"),
    "LangChain": (at("ainvoke"), "OpenAICompatibleClient.from_env"),
    "LiteLLM router": (
        SimpleNamespace(acompletion=answer, chat=at("completions.create")),
        r"LiteLLMClient\(client.acompletion",
    ),
    "acompletion": (acompletion, r"LiteLLMClient\(acompletion"),
    "a class": (Stub, "pass an instance of Stub"),
    "an adapter's class": (ScriptedClient, "pass an instance of ScriptedClient"),
    "a configuration": (
        LLMConfig(base_url="http://box/v1", default_model="m", api_key=SecretStr("sk-secret")),
        r"pass OpenAICompatibleClient\(config\)",
    ),
    "a model's name": ("gpt-4.1-mini", "str is not a client.*OpenAICompatibleClient.from_env"),
    "None": (None, "NoneType is not a client"),
    "a value as the method": (
        SimpleNamespace(chat_completion="x"),
        "no callable chat_completion",
    ),
}


@pytest.mark.parametrize("name", [pytest.param(name, id=f"f_178 {name}") for name in WRONG])
def test_other_objects_are_refused_with_their_adapter(name: str) -> None:
    client, text = WRONG[name]
    with pytest.raises(
        TypeError, match=text.replace('(client, model="...")', ".*model=")
    ) as caught:
        check_client(client)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "client",
    [Stub(), Static, Static(), ScriptedClient([]), SimpleNamespace(chat_completion=answer)],
)
def test_any_object_with_the_method_is_a_client(client: object) -> None:
    check_client(client)
