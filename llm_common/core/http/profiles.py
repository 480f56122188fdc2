"""What is known of models by name: how to ask for a short structured answer, and what tokens cost.

A profile holds only what a source states. Sources, as read in November 2026:

- GLM, `thinking`: https://docs.z.ai/guides/capabilities/thinking-mode and
  https://docs.bigmodel.cn/cn/guide/capabilities/thinking (GLM-4.5, 4.6, 4.7, 5).
- DeepSeek, `thinking`: https://api-docs.deepseek.com/guides/thinking_mode. Its prices change with the hour: none here.
- Qwen3, `chat_template_kwargs`: https://qwen.readthedocs.io/en/latest/deployment/vllm.html; the Instruct models of 2507
  do not take it (the same site's quickstart).
- OpenRouter, `reasoning`: https://openrouter.ai/docs/use-cases/reasoning-tokens. It reports each call's cost itself.
- OpenAI, `reasoning_effort`: lowest value by https://github.com/openai/openai-agents-python/issues/2089 (the API's own
  error text); fixed temperature: https://github.com/BerriAI/litellm/issues/13781; `max_completion_tokens` instead of
  `max_tokens`: https://github.com/simonw/llm/issues/724 (quotes the API reference).
- Prices of GLM: https://vercel.com/ai-gateway/models/glm-4.5-air/providers and the same page of glm-4.5 and glm-4.6
  (provider Z.ai); GLM-4.5-Air also https://opencode.ai/data/zhipuai/glm-4-5-air.json.
- Prices of OpenAI: https://platform.openai.com/docs/pricing of 2025-06-03 as kept in
  https://hex.pm/packages/openai_responses/0.4.1, unchanged on 2026-06-21 by https://tokenmath.io/openai-api-pricing-explained.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from llm_common.core.models import LLMUsage

__all__ = ["ModelProfile", "TokenPrices", "profile_of"]

_PER_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Dollars for a million tokens, at the provider that made the model."""

    provider: str
    prompt: float
    cached: float
    completion: float

    def cost_usd(self, usage: LLMUsage) -> float:
        """What a call cost; cached tokens are part of the prompt's and have their own price."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        fresh = usage.prompt_tokens - cached
        dollars = fresh * self.prompt + cached * self.cached + usage.completion_tokens * self.completion
        return dollars / _PER_MILLION


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What is known of the models whose name matches.

    Attributes:
        pattern: Matches the whole name in lower case, without vendor prefix (`z-ai/`) and variant (`:free`).
        structured_options: By provider, what a call that wants a structured answer adds, so that the model does not
            think at length first. `custom` is an endpoint known by its address alone.
        prices: None where no source was found.
        reasons_always: Takes no temperature, and `max_completion_tokens` in the place of `max_tokens`.
    """

    pattern: re.Pattern[str]
    structured_options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    prices: TokenPrices | None = None
    reasons_always: bool = False

    def cost_usd(self, usage: LLMUsage, *, provider: str) -> float | None:
        """What a call cost, or None where the price at that provider is not known."""
        if self.prices is None or self.prices.provider != provider:
            return None
        return self.prices.cost_usd(usage)


_THINKING_OFF: Mapping[str, object] = {"thinking": {"type": "disabled"}}
_REASONING_OFF: Mapping[str, object] = {"reasoning": {"enabled": False}}
_TEMPLATE_THINKING_OFF: Mapping[str, object] = {"chat_template_kwargs": {"enable_thinking": False}}
_GLM = {"zai": _THINKING_OFF, "custom": _THINKING_OFF, "openrouter": _REASONING_OFF, "local": _TEMPLATE_THINKING_OFF}
_UNKNOWN = ModelProfile(re.compile(""))

_PROFILES = (
    ModelProfile(re.compile(r"glm-4\.5-air"), _GLM, TokenPrices("zai", 0.20, 0.03, 1.10)),
    ModelProfile(re.compile(r"glm-4\.[56]"), _GLM, TokenPrices("zai", 0.60, 0.11, 2.20)),
    ModelProfile(re.compile(r"glm-(?:4\.[5-9]|[5-9]).*"), _GLM),
    ModelProfile(
        re.compile(r"qwen-?3(?!.*(?:instruct|thinking|coder)).*"),
        {"local": _TEMPLATE_THINKING_OFF, "custom": _TEMPLATE_THINKING_OFF, "openrouter": _REASONING_OFF},
    ),
    ModelProfile(re.compile(r"deepseek-(?:v[4-9]|flash).*"), {"custom": _THINKING_OFF, "openrouter": _REASONING_OFF}),
    ModelProfile(re.compile(r"gpt-4\.1(?:-2025-04-14)?"), prices=TokenPrices("openai", 2.00, 0.50, 8.00)),
    ModelProfile(re.compile(r"gpt-4\.1-mini(?:-2025-04-14)?"), prices=TokenPrices("openai", 0.40, 0.10, 1.60)),
    ModelProfile(re.compile(r"gpt-4\.1-nano(?:-2025-04-14)?"), prices=TokenPrices("openai", 0.10, 0.025, 0.40)),
    ModelProfile(re.compile(r"gpt-4o(?:-2024-(?:08-06|11-20))?"), prices=TokenPrices("openai", 2.50, 1.25, 10.00)),
    ModelProfile(re.compile(r"gpt-4o-mini(?:-2024-07-18)?"), prices=TokenPrices("openai", 0.15, 0.075, 0.60)),
    ModelProfile(re.compile(r"gpt-5(?:\.\d)?-(?:chat).*")),
    ModelProfile(re.compile(r"gpt-5\.\d.*"), {"openai": {"reasoning_effort": "none"}}, reasons_always=True),
    ModelProfile(re.compile(r"gpt-5(?:-.*)?"), {"openai": {"reasoning_effort": "minimal"}}, reasons_always=True),
    ModelProfile(re.compile(r"o\d(?:-.*)?"), reasons_always=True),
)


def profile_of(model: str) -> ModelProfile:
    """The first profile that matches the model's name, or an empty one.

    Args:
        model: As sent to the endpoint: `glm-4.5-air`, `z-ai/glm-4.5-air:free`, `Qwen/Qwen3-8B`.
    """
    name = model.lower().rpartition("/")[2].partition(":")[0]
    return next((profile for profile in _PROFILES if profile.pattern.fullmatch(name)), _UNKNOWN)
