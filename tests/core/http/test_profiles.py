"""The profiles of models by name."""

import pytest

from llm_common.core import LLMUsage
from llm_common.core.http.providers import profile_of

THINKING_OFF = {"thinking": {"type": "disabled"}}
TEMPLATE_OFF = {"chat_template_kwargs": {"enable_thinking": False}}
USAGE = LLMUsage(prompt_tokens=1_000_000, completion_tokens=1_000_000, cached_tokens=400_000)


@pytest.mark.parametrize(
    ("model", "provider", "options"),
    [
        ("glm-4.5-air", "zai", THINKING_OFF),
        ("GLM-4.6", "zai", THINKING_OFF),
        ("glm-5.1", "custom", THINKING_OFF),
        ("z-ai/glm-4.5-air:free", "openrouter", {"reasoning": {"enabled": False}}),
        ("glm-4-plus", "zai", {}),
        ("Qwen/Qwen3-8B", "local", TEMPLATE_OFF),
        ("qwen3-30b-a3b-instruct-2507", "local", {}),
        ("deepseek-v4-flash", "custom", THINKING_OFF),
        ("deepseek-reasoner", "custom", {}),
        ("gpt-5-mini", "openai", {"reasoning_effort": "minimal"}),
        ("gpt-5.1", "openai", {"reasoning_effort": "none"}),
        ("gpt-5-chat-latest", "openai", {}),
        ("gpt-4.1-mini", "openai", {}),
        ("some-model", "local", {}),
    ],
)
def test_structured_options_fit_model_and_provider(
    model: str, provider: str, options: dict[str, object]
) -> None:
    assert profile_of(model).structured_options.get(provider, {}) == options


@pytest.mark.parametrize(
    ("model", "provider", "dollars"),
    [
        ("glm-4.5-air", "zai", 0.6 * 0.20 + 0.4 * 0.03 + 1.10),
        ("gpt-4o-mini", "openai", 0.6 * 0.15 + 0.4 * 0.075 + 0.60),
        ("glm-4.5-air", "local", None),
        ("glm-9", "zai", None),
        ("some-model", "zai", None),
    ],
)
def test_a_price_is_known_only_at_its_provider(
    model: str, provider: str, dollars: float | None
) -> None:
    prices = profile_of(model).prices.get(provider)
    assert (prices and prices.cost_usd(USAGE)) == (dollars and pytest.approx(dollars))


def test_more_cached_than_sent_never_gives_a_discount_below_zero() -> None:
    usage = LLMUsage(prompt_tokens=10, cached_tokens=1_000)
    cost = profile_of("glm-4.5-air").prices["zai"].cost_usd(usage)
    assert cost == pytest.approx(10 * 0.03 / 1e6)


@pytest.mark.parametrize(
    ("model", "always"), [("gpt-5", True), ("o3-mini", True), ("gpt-5-chat-latest", False)]
)
def test_models_that_always_reason_are_known(model: str, always: bool) -> None:
    assert profile_of(model).reasons_always is always
