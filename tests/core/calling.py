"""Single calls of a client."""

from typing import Any

import pytest

from llm_common.core import LLMConfig, LLMMessage, LLMResponse, MessageRole, OpenAICompatibleClient
from llm_common.errors import LLMError
from tests.core.loopback import KEY

__all__ = ["JSON_MODE", "MESSAGES", "ask_once", "failure"]

MESSAGES = [LLMMessage(role=MessageRole.USER, content="which of these?")]
JSON_MODE = {"type": "json_object"}


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
