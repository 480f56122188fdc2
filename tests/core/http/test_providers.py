"""The endpoint that the environment names, and the profiles of models by name."""

import pytest

from llm_common.core import (
    LLMConfig,
    LLMUsage,
    OpenAICompatibleClient,
    config_for_provider,
    config_from_env,
)
from llm_common.core.http.providers import PROVIDERS, host_of, profile_of
from llm_common.errors import ConfigError
from llm_common.testing import ScriptedClient


def test_an_empty_environment_names_no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZAI_API_KEY", " ")
    assert config_from_env() is None
    with pytest.raises(ConfigError, match="ZAI_API_KEY"):
        OpenAICompatibleClient.from_env()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"ZAI_API_KEY": "z"}, ("zai", "https://api.z.ai/api/paas/v4", "glm-4.5-air", "z")),
        ({"OPENAI_API_KEY": "o", "OPENROUTER_API_KEY": "r"}, ("openrouter", None, None, "r")),
        (
            {"LLM_COMMON_PROVIDER": "OpenAI", "OPENAI_API_KEY": "o", "ZAI_API_KEY": "z"},
            ("openai", None, None, "o"),
        ),
        (
            {"LLM_COMMON_PROVIDER": "zai", "LLM_COMMON_API_KEY": "k", "ZAI_API_KEY": "z"},
            ("zai", None, None, "k"),
        ),
        ({"LLM_COMMON_PROVIDER": "local"}, ("local", "http://127.0.0.1:8080/v1", None, "")),
        (
            {
                "LLM_COMMON_BASE_URL": "http://box:1/v1/",
                "LLM_COMMON_MODEL": "m",
                "ZAI_API_KEY": "z",
            },
            ("custom", "http://box:1/v1", "m", ""),
        ),
        (
            {
                "LLM_COMMON_BASE_URL": "http://box/v1",
                "LLM_COMMON_PROVIDER": "zai",
                "ZAI_API_KEY": "z",
            },
            ("zai", "http://box/v1", "glm-4.5-air", "z"),
        ),
    ],
    ids=["key", "order", "provider", "own-key", "local", "address", "both"],
)
def test_the_environment_names_an_endpoint(
    variables: dict[str, str],
    expected: tuple[str, str | None, str | None, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = config_from_env()
    assert config is not None
    provider, base_url, model, key = expected
    assert config.provider == provider
    assert config.base_url == (base_url or PROVIDERS[provider].base_url)
    assert config.default_model == (model or PROVIDERS[provider].default_model)
    assert config.api_key.get_secret_value() == key
    client = OpenAICompatibleClient.from_env()
    assert client.config == config
    assert (client.default_model, client.provider) == (config.default_model, config.provider)


def test_a_client_names_no_model_by_default_f_179() -> None:
    client = ScriptedClient([])
    assert (client.default_model, client.provider) == (None, None)


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("TIMEOUT_S", "", "timeout_s", 60.0),
        ("TIMEOUT_S", "2.5", "timeout_s", 2.5),
        ("MAX_TOKENS", "", "max_tokens", None),
        ("MAX_TOKENS", "150", "max_tokens", 150),
        ("COST_LIMIT_USD", "", "cost_limit_usd", None),
        ("COST_LIMIT_USD", "0.5", "cost_limit_usd", 0.5),
        ("UNKNOWN_PRICE", "", "unknown_price", "refuse"),
        ("UNKNOWN_PRICE", " Dearest", "unknown_price", "dearest"),
    ],
)
def test_limits_come_from_the_environment_too(
    variable: str, value: str, field: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_COMMON_PROVIDER", "local")
    monkeypatch.setenv(f"LLM_COMMON_{variable}", value)
    assert getattr(config_from_env(), field) == expected


@pytest.mark.parametrize(
    ("variables", "variable"),
    [
        ({"LLM_COMMON_PROVIDER": "acme"}, "LLM_COMMON_PROVIDER"),
        ({"LLM_COMMON_PROVIDER": "zai"}, "ZAI_API_KEY"),
        ({"LLM_COMMON_API_KEY": "secret-1"}, "LLM_COMMON_PROVIDER"),
        ({"LLM_COMMON_BASE_URL": "http://box/v1"}, "LLM_COMMON_MODEL"),
        ({"LLM_COMMON_BASE_URL": "box?secret-1", "LLM_COMMON_MODEL": "m"}, "LLM_COMMON_BASE_URL"),
        ({"LLM_COMMON_PROVIDER": "local", "LLM_COMMON_TIMEOUT_S": "soon"}, "LLM_COMMON_TIMEOUT_S"),
        ({"LLM_COMMON_PROVIDER": "local", "LLM_COMMON_MAX_TOKENS": "0"}, "LLM_COMMON_MAX_TOKENS"),
        (
            {"LLM_COMMON_PROVIDER": "local", "LLM_COMMON_COST_LIMIT_USD": "-1"},
            "LLM_COMMON_COST_LIMIT_USD",
        ),
        (
            {"LLM_COMMON_PROVIDER": "local", "LLM_COMMON_UNKNOWN_PRICE": "allow"},
            "LLM_COMMON_UNKNOWN_PRICE",
        ),
    ],
    ids=[
        "provider",
        "no-key",
        "key-alone",
        "no-model",
        "address",
        "timeout",
        "tokens",
        "limit",
        "price",
    ],
)
def test_an_unusable_variable_is_named(
    variables: dict[str, str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=variable) as caught:
        config_from_env()
    assert caught.value.variable == variable
    assert "secret-1" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"timeout": 5},
        {"base_url": "x", "timeout_s": -1},
        {"base_url": "x", "unknown_price": "allow"},
    ],
)
def test_a_validation_error_never_contains_the_key(
    changes: dict[str, object],
) -> None:
    with pytest.raises(
        ValueError, match=[*changes][-1] if len(changes) > 1 else "base_url"
    ) as caught:
        LLMConfig.model_validate({"api_key": "sk-secret-1", "default_model": "m"} | changes)
    assert "sk-secret-1" not in str(caught.value)


def test_a_provider_can_be_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_for_provider("local", model="mine").default_model == "mine"
    assert config_for_provider("zai", api_key="k").api_key.get_secret_value() == "k"
    monkeypatch.setenv("OPENAI_API_KEY", "o")
    assert config_for_provider("openai").api_key.get_secret_value() == "o"
    with pytest.raises(ConfigError, match="ZAI_API_KEY"):
        config_for_provider("zai")
    with pytest.raises(ConfigError, match="openrouter"):
        config_for_provider("acme")


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://api.example.test/v1", "api.example.test"),
        ("https://user:password@api.example.test:8443/v1", "api.example.test:8443"),
        ("http://api.example.test/v1", "api.example.test:80"),
        ("http://api.example.test:/v1", "api.example.test:80"),
        ("http://[::1]/v1", "[::1]:80"),
        ("http://[::1]:11434/v1", "[::1]:11434"),
        ("http://user:pw@box:8080/v1?key=1#f", "box:8080"),
        ("/v1", None),
        ("api.example.test", None),
        ("http://x:port/", None),
        ("https://[x", None),
        (None, None),
        (5, None),
    ],
)
def test_only_the_host_of_an_address_is_named_with_a_port(
    address: object, host: str | None
) -> None:
    assert host_of(address) == host


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
