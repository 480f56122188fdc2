"""Where models are served: the endpoints known by name, and the configuration that the environment asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from pydantic import SecretStr

from llm_common import _env
from llm_common.core.models import LLMConfig
from llm_common.errors import ConfigError

__all__ = ["PROVIDERS", "Provider", "checked_base_url", "config_for_provider", "config_from_env"]


@dataclass(frozen=True, slots=True)
class Provider:
    """An endpoint known by name; `key` is the variable that holds its key, None where none is needed."""

    name: str
    base_url: str
    default_model: str
    key: _env.Variable | None


PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        provider.name: provider
        for provider in (
            Provider("zai", "https://api.z.ai/api/paas/v4", "glm-4.5-air", _env.ZAI_API_KEY),
            Provider("openrouter", "https://openrouter.ai/api/v1", "z-ai/glm-4.5-air", _env.OPENROUTER_API_KEY),
            Provider("openai", "https://api.openai.com/v1", "gpt-4.1-mini", _env.OPENAI_API_KEY),
            # A local server answers with the model that it was started with, whatever the name.
            Provider("local", "http://127.0.0.1:8080/v1", "default", None),
        )
    }
)


def config_from_env() -> LLMConfig | None:
    """The endpoint that the environment names, or None when it names none.

    `LLM_COMMON_PROVIDER` decides; without it `LLM_COMMON_BASE_URL`, an endpoint of your own; without both the first of
    z.ai, OpenRouter and OpenAI whose key is set. A provider's own key goes to an endpoint of your own only if you name
    that provider too.

    Raises:
        ConfigError: A variable holds what cannot be used, or a key or model is missing; it names the variable.
    """
    provider = _provider_from_env()
    if provider is None and _env.read_text(_env.BASE_URL) is None:
        if _env.read_text(_env.API_KEY) is None:
            return None
        raise ConfigError(
            f"{_env.API_KEY.name} is set, but not whose it is; set {_env.PROVIDER.name} or {_env.BASE_URL.name}",
            variable=_env.PROVIDER.name,
        )
    limits = {
        "timeout_s": _env.read_float(_env.TIMEOUT_S, minimum=0.1, maximum=3600),
        "max_tokens": _env.read_int(_env.MAX_TOKENS, minimum=1, maximum=10_000_000),
        "cost_limit_usd": _env.read_float(_env.COST_LIMIT_USD, minimum=0, maximum=1e6),
    }
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return LLMConfig.model_validate(_endpoint_from_env(provider) | given)


def config_for_provider(name: str, *, api_key: str | SecretStr | None = None, model: str | None = None) -> LLMConfig:
    """The configuration of a known endpoint.

    Args:
        name: `zai`, `openrouter`, `openai` or `local`.
        api_key: None reads the provider's own variable.
        model: None takes the provider's default.

    Raises:
        ConfigError: No such provider, or no key for it.
    """
    provider = _provider(name, variable="name")
    key = api_key if isinstance(api_key, SecretStr) else SecretStr(api_key or _provider_key(provider))
    return LLMConfig(
        provider=provider.name,
        base_url=provider.base_url,
        default_model=model or provider.default_model,
        api_key=key,
    )


def checked_base_url(text: str, *, variable: str) -> str:
    """The address without a slash at its end.

    Raises:
        ConfigError: Not http(s), without a host, or with a user, a query or a fragment; those could hold secrets, so
            the text does not repeat the address.
    """
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    address = text.rstrip("/")
    if not usable or parts.username is not None or "?" in text or "#" in text or address.endswith("/chat/completions"):
        raise ConfigError(
            f"{variable} is no address like https://host/v1; leave out user, query, fragment and `/chat/completions`",
            variable=variable,
        )
    return address


def _provider_from_env() -> Provider | None:
    name = _env.read_text(_env.PROVIDER)
    if name is not None:
        return _provider(name.lower(), variable=_env.PROVIDER.name)
    if _env.read_text(_env.BASE_URL) is not None:
        return None
    return next((each for each in PROVIDERS.values() if each.key and _env.read_text(each.key)), None)


def _provider(name: str, *, variable: str) -> Provider:
    provider = PROVIDERS.get(name)
    if provider is None:
        raise ConfigError(
            f"{variable} names no known provider; take one of {', '.join(PROVIDERS)}", variable=variable, value=name
        )
    return provider


def _provider_key(provider: Provider) -> str:
    if provider.key is None:
        return ""
    key = _env.read_text(provider.key)
    if key is None:
        raise ConfigError(f"{provider.name} needs a key; set {provider.key.name}", variable=provider.key.name)
    return key


def _endpoint_from_env(provider: Provider | None) -> dict[str, object]:
    base_url = _env.read_text(_env.BASE_URL) or (provider.base_url if provider else "")
    model = _env.read_text(_env.MODEL) or (provider.default_model if provider else None)
    if model is None:
        raise ConfigError(
            f"{_env.BASE_URL.name} needs a model to ask for; set {_env.MODEL.name}", variable=_env.MODEL.name
        )
    return {
        "provider": provider.name if provider else "custom",
        "base_url": checked_base_url(base_url, variable=_env.BASE_URL.name),
        "default_model": model,
        "api_key": SecretStr(_env.read_text(_env.API_KEY) or (_provider_key(provider) if provider else "")),
    }
