"""Single calls of a client."""

from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from llm_common.core import LLMConfig, LLMMessage, LLMResponse, MessageRole, OpenAICompatibleClient
from llm_common.errors import LLMError
from tests.core.loopback import KEY, Loopback, Script, loopback

MESSAGES = [LLMMessage(role=MessageRole.USER, content="which of these?")]
JSON_MODE = {"type": "json_object"}
Error = TypeVar("Error", bound=LLMError)


async def ask_once(config: LLMConfig, **options: Any) -> LLMResponse:
    async with OpenAICompatibleClient(config) as client:
        return await client.chat_completion(messages=MESSAGES, **options)


async def failure(config: LLMConfig, **options: Any) -> LLMError:
    """Return the error of a call, after a check that its text contains no key."""
    with pytest.raises(LLMError) as caught:
        await ask_once(config, **options)
    error = caught.value
    assert KEY not in f"{error}{error!r}{vars(error)}"
    return error


async def failure_at(
    kind: type[Error], *scripts: Script, options: Mapping[str, Any] | None = None, **config: Any
) -> tuple[Error, Loopback]:
    """Return the error of one call of an endpoint with these scripts, and the endpoint."""
    async with loopback(*scripts) as server:
        error = await failure(server.config(**config), **(options or {}))
    assert isinstance(error, kind)
    return error, server
