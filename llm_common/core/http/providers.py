"""Known endpoints and models, and the configuration from the environment.

Profiles contain only what a source states. Sources, read in November 2026:

- GLM, `thinking`: https://docs.z.ai/guides/capabilities/thinking-mode and
  https://docs.bigmodel.cn/cn/guide/capabilities/thinking (GLM-4.5, 4.6, 4.7, 5).
- DeepSeek, `thinking`: https://api-docs.deepseek.com/guides/thinking_mode. It has no prices here,
  since they change with the hour.
- Qwen3, `chat_template_kwargs`: https://qwen.readthedocs.io/en/latest/deployment/vllm.html. The
  Instruct models of 2507 do not support it (the same site's quickstart).
- OpenRouter, `reasoning`: https://openrouter.ai/docs/use-cases/reasoning-tokens. It reports each
  call's cost itself.
- OpenAI, lowest `reasoning_effort`: https://github.com/openai/openai-agents-python/issues/2089 (the
  API's error text). Fixed temperature: https://github.com/BerriAI/litellm/issues/13781.
  `max_completion_tokens` instead of `max_tokens`: https://github.com/simonw/llm/issues/724 (quotes
  the API reference).
- Prices of GLM: https://vercel.com/ai-gateway/models/glm-4.5-air/providers and the same page for
  glm-4.5 and glm-4.6 (provider Z.ai). GLM-4.5-Air also
  https://opencode.ai/data/zhipuai/glm-4-5-air.json.
- Prices of OpenAI: https://platform.openai.com/docs/pricing of 2025-06-03 as kept in
  https://hex.pm/packages/openai_responses/0.4.1, unchanged on 2026-06-21 by
  https://tokenmath.io/openai-api-pricing-explained.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

from pydantic import SecretStr

from llm_common import _env
from llm_common.core.models import LLMConfig, TokenPrices
from llm_common.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Options and prices of the models whose name matches.

    Attributes:
        pattern: Pattern of the whole name in lower case, without vendor prefix (`z-ai/`) and
            variant (`:free`).
        structured_options: By provider, the options that keep a model from long thinking before a
            structured answer. `custom` is an endpoint known only by its address.
        prices: Prices by provider. Empty without a source.
        reasons_always: Whether the model accepts no temperature, and `max_completion_tokens`
            instead of `max_tokens`.
    """

    pattern: re.Pattern[str]
    structured_options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    prices: Mapping[str, TokenPrices] = field(default_factory=dict)
    reasons_always: bool = False


def _at(
    provider: str, prompt: float, cached: float, completion: float
) -> Mapping[str, TokenPrices]:
    # Constants need no validation, and building the validator takes a large part of an import.
    return {
        provider: TokenPrices.model_construct(prompt=prompt, cached=cached, completion=completion)
    }


_THINKING_OFF: Mapping[str, object] = {"thinking": {"type": "disabled"}}
_REASONING_OFF: Mapping[str, object] = {"reasoning": {"enabled": False}}
_TEMPLATE_THINKING_OFF: Mapping[str, object] = {"chat_template_kwargs": {"enable_thinking": False}}
_GLM = {
    "zai": _THINKING_OFF,
    "custom": _THINKING_OFF,
    "openrouter": _REASONING_OFF,
    "local": _TEMPLATE_THINKING_OFF,
}
_UNKNOWN = ModelProfile(re.compile(""))

# The first match counts, so exact names come before their families.
_PROFILES = (
    ModelProfile(re.compile(r"glm-4\.5-air"), _GLM, _at("zai", 0.20, 0.03, 1.10)),
    ModelProfile(re.compile(r"glm-4\.[56]"), _GLM, _at("zai", 0.60, 0.11, 2.20)),
    ModelProfile(re.compile(r"glm-(?:4\.[5-9]|[5-9]).*"), _GLM),
    ModelProfile(
        re.compile(r"qwen-?3(?!.*(?:instruct|thinking|coder)).*"),
        {
            "local": _TEMPLATE_THINKING_OFF,
            "custom": _TEMPLATE_THINKING_OFF,
            "openrouter": _REASONING_OFF,
        },
    ),
    ModelProfile(
        re.compile(r"deepseek-(?:v[4-9]|flash).*"),
        {"custom": _THINKING_OFF, "openrouter": _REASONING_OFF},
    ),
    ModelProfile(re.compile(r"gpt-4\.1(?:-2025-04-14)?"), prices=_at("openai", 2.00, 0.50, 8.00)),
    ModelProfile(
        re.compile(r"gpt-4\.1-mini(?:-2025-04-14)?"), prices=_at("openai", 0.40, 0.10, 1.60)
    ),
    ModelProfile(
        re.compile(r"gpt-4\.1-nano(?:-2025-04-14)?"), prices=_at("openai", 0.10, 0.025, 0.40)
    ),
    ModelProfile(
        re.compile(r"gpt-4o(?:-2024-(?:08-06|11-20))?"), prices=_at("openai", 2.50, 1.25, 10.00)
    ),
    ModelProfile(
        re.compile(r"gpt-4o-mini(?:-2024-07-18)?"), prices=_at("openai", 0.15, 0.075, 0.60)
    ),
    # The chat models of GPT-5 do not reason, so they accept a temperature.
    ModelProfile(re.compile(r"gpt-5(?:\.\d)?-(?:chat).*")),
    ModelProfile(
        re.compile(r"gpt-5\.\d.*"), {"openai": {"reasoning_effort": "none"}}, reasons_always=True
    ),
    ModelProfile(
        re.compile(r"gpt-5(?:-.*)?"),
        {"openai": {"reasoning_effort": "minimal"}},
        reasons_always=True,
    ),
    ModelProfile(re.compile(r"o\d(?:-.*)?"), reasons_always=True),
)


def profile_of(model: str) -> ModelProfile:
    """Return the first profile that matches a model's name, or an empty one.

    Args:
        model: Name as sent to the endpoint: `glm-4.5-air`, `z-ai/glm-4.5-air:free`,
            `Qwen/Qwen3-8B`.
    """
    name = model.lower().rpartition("/")[2].partition(":")[0]
    return next((profile for profile in _PROFILES if profile.pattern.fullmatch(name)), _UNKNOWN)


def highest_prices(configured: Mapping[str, TokenPrices]) -> TokenPrices:
    """Return the highest price of each kind of token among known and configured models."""
    all_prices = [*configured.values()]
    for profile in _PROFILES:
        all_prices += profile.prices.values()
    # No price for cached tokens, which then count in full.
    return TokenPrices(
        prompt=max(prices.prompt for prices in all_prices),
        completion=max(prices.completion for prices in all_prices),
    )


@dataclass(frozen=True, slots=True)
class Provider:
    """An endpoint known by name. `key` is the variable of its API key, None without a key."""

    name: str
    base_url: str
    default_model: str
    key: _env.Variable | None


# Without LLM_COMMON_PROVIDER, the first whose key is set is used.
PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        provider.name: provider
        for provider in (
            Provider("zai", "https://api.z.ai/api/paas/v4", "glm-4.5-air", _env.ZAI_API_KEY),
            Provider(
                "openrouter",
                "https://openrouter.ai/api/v1",
                "z-ai/glm-4.5-air",
                _env.OPENROUTER_API_KEY,
            ),
            Provider("openai", "https://api.openai.com/v1", "gpt-4.1-mini", _env.OPENAI_API_KEY),
            # A local server ignores the name and answers with its own model.
            Provider("local", "http://127.0.0.1:8080/v1", "default", None),
        )
    }
)


def config_from_env() -> LLMConfig | None:
    """Read the configuration of an endpoint from the environment.

    `LLM_COMMON_PROVIDER` names the provider. Without it, `LLM_COMMON_BASE_URL` is the address of a
    custom endpoint. Without both, the first of z.ai, OpenRouter and OpenAI whose key is set is
    used. A provider's own key is sent to a custom endpoint only if `LLM_COMMON_PROVIDER` names that
    provider.

    Returns:
        The configuration, or None if the environment names no endpoint.

    Raises:
        ConfigError: If a value is unusable, or a key or model is missing. `.variable` is its
            variable.
    """
    limits = {
        "timeout_s": _env.read_float(_env.TIMEOUT_S, minimum=0.1, maximum=3600),
        "max_tokens": _env.read_int(_env.MAX_TOKENS, minimum=1, maximum=10_000_000),
        "cost_limit_usd": _env.read_float(_env.COST_LIMIT_USD, minimum=0, maximum=1e6),
        "unknown_price": _env.read_choice(_env.UNKNOWN_PRICE, ("refuse", "dearest")),
    }
    set_limits = {name: limit for name, limit in limits.items() if limit is not None}
    provider = _provider_from_env()
    if provider is None and _env.read_text(_env.BASE_URL) is None:
        if _env.read_text(_env.API_KEY) is None:
            return None
        raise ConfigError(
            f"{_env.API_KEY.name} is set without a provider or an address; set "
            f"{_env.PROVIDER.name} or {_env.BASE_URL.name}",
            variable=_env.PROVIDER.name,
        )
    return LLMConfig.model_validate(_endpoint_from_env(provider) | set_limits)


def config_for_provider(
    name: str, *, api_key: str | SecretStr | None = None, model: str | None = None
) -> LLMConfig:
    """Return the configuration of a known endpoint.

    Args:
        name: `zai`, `openrouter`, `openai` or `local`.
        api_key: Key of the endpoint. None reads the provider's variable.
        model: Name of the model. None uses the provider's default.

    Raises:
        ConfigError: If there is no such provider, or no key for it.
    """
    provider = _provider(name, variable="name")
    key = api_key
    if not isinstance(key, SecretStr):
        key = SecretStr(key or _provider_key(provider))
    return LLMConfig(
        provider=provider.name,
        base_url=provider.base_url,
        default_model=model or provider.default_model,
        api_key=key,
    )


def checked_base_url(text: str, *, variable: str) -> str:
    """Check an address, and return it without a slash at its end.

    Raises:
        ConfigError: If the address is not http(s), has no host, or has a user, a query, a fragment
            or `/chat/completions`. The text does not repeat the address, which could contain
            secrets.
    """
    address = text.rstrip("/")
    try:
        parts = urlsplit(text)
        has_host = host_of(text) is not None
    except ValueError:
        usable = False
    else:
        is_http = parts.scheme in {"http", "https"}
        # `urlsplit` does not show an empty query or fragment.
        has_more = parts.username is not None or "?" in text or "#" in text
        usable = is_http and has_host and not has_more
    if not usable or address.endswith("/chat/completions"):
        raise ConfigError(
            f"{variable} must be an address such as https://host/v1; use https:// or http://, "
            "without user, query, fragment and `/chat/completions`",
            variable=variable,
        )
    return address


def host_of(address: object) -> str | None:
    """Return the host of an address with its port, or None without a host.

    The port of HTTPS is left out unless the address names it.
    """
    with suppress(ValueError):  # a port that is not a number, or out of range
        parts = urlsplit(str(address))
        if parts.hostname and (parts.port is None or parts.port > 0):
            # Without a user and a password, which an address may have before the host.
            host = parts.netloc.rpartition("@")[2].removesuffix(":")
            return f"{host}:80" if parts.scheme == "http" and parts.port is None else host
    return None


def _provider_from_env() -> Provider | None:
    name = _env.read_text(_env.PROVIDER)
    if name is not None:
        return _provider(name.lower(), variable=_env.PROVIDER.name)
    # A key in the environment must not go to an address that was set without its provider.
    if _env.read_text(_env.BASE_URL) is not None:
        return None
    for provider in PROVIDERS.values():
        if provider.key and _env.read_text(provider.key):
            return provider
    return None


def _provider(name: str, *, variable: str) -> Provider:
    provider = PROVIDERS.get(name)
    if provider is None:
        raise ConfigError(
            f"{variable} is not a known provider; use one of {', '.join(PROVIDERS)}",
            variable=variable,
            value=name,
        )
    return provider


def _provider_key(provider: Provider) -> str:
    if provider.key is None:
        return ""
    key = _env.read_text(provider.key)
    if key is None:
        raise ConfigError(
            f"{provider.name} needs a key; set {provider.key.name}", variable=provider.key.name
        )
    return key


def _endpoint_from_env(provider: Provider | None) -> dict[str, object]:
    base_url = _env.read_text(_env.BASE_URL) or ""
    model = _env.read_text(_env.MODEL)
    key = _env.read_text(_env.API_KEY) or ""
    name = "custom"
    if provider is not None:
        name = provider.name
        base_url = base_url or provider.base_url
        model = model or provider.default_model
        key = key or _provider_key(provider)
    if model is None:
        raise ConfigError(
            f"{_env.BASE_URL.name} is set without a model; set {_env.MODEL.name}",
            variable=_env.MODEL.name,
        )
    return {
        "provider": name,
        "base_url": checked_base_url(base_url, variable=_env.BASE_URL.name),
        "default_model": model,
        "api_key": SecretStr(key),
    }
