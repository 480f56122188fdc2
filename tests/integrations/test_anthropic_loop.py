"""Test the documented loop with Anthropic's client."""

import pytest
from anthropic import AsyncAnthropic

from tests.integrations.loop_promises import LoopPromises
from tests.integrations.scripted_endpoint import served_without_path

pytestmark = pytest.mark.integrations


class TestLoop(LoopPromises):
    page = "anthropic_loop"
    client = AsyncAnthropic
    variables = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
    serve = staticmethod(served_without_path)
