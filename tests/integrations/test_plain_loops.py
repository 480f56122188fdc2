"""Test the documented loop with OpenAI's client."""

import pytest
from openai import AsyncOpenAI

from tests.integrations.loop_promises import LoopPromises

pytestmark = pytest.mark.integrations


class TestLoop(LoopPromises):
    page = "plain_loops"
    client = AsyncOpenAI
    variables = ("OPENAI_BASE_URL", "OPENAI_API_KEY")
