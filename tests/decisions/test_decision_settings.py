"""The decision model that the environment names."""

import pytest
from pydantic import ValidationError

from llm_common import _env, decisions
from llm_common.decisions import DecisionConfig, HttpDecisionClient, decision_config_from_env
from llm_common.errors import ConfigError

KEY = "sk-canary-0123456789"
WHOLE = {_env.DECISION_URL: "https://api.example.test/v1/", _env.DECISION_MODEL: "jev-latest"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    for variable, value in request.param.items():
        monkeypatch.setenv(variable.name, value)


@pytest.mark.parametrize("environment", [WHOLE], indirect=True)
@pytest.mark.usefixtures("environment")
def test_an_address_and_a_model_are_sufficient() -> None:
    config = HttpDecisionClient.from_env().config
    assert (config.url, config.model, config.wire) == (
        "https://api.example.test/v1",
        "jev-latest",
        "systemone",
    )
    assert config.api_key.get_secret_value() == ""


@pytest.mark.parametrize(
    "environment",
    [WHOLE | {_env.DECISION_API_KEY: KEY, _env.DECISION_WIRE: " OpenAI "}],
    indirect=True,
)
@pytest.mark.usefixtures("environment")
def test_key_and_wire_are_read_and_the_key_hidden() -> None:
    config = decision_config_from_env()
    assert config is not None
    assert config.wire == "openai"
    assert config.api_key.get_secret_value() == KEY
    assert KEY not in f"{config!r}{config}"


def test_an_empty_environment_has_no_decision_model() -> None:
    assert decision_config_from_env() is None
    with pytest.raises(ConfigError, match=_env.DECISION_URL.name):
        HttpDecisionClient.from_env()


@pytest.mark.parametrize(
    ("environment", "variable"),
    [
        ({_env.DECISION_API_KEY: KEY}, _env.DECISION_URL),
        ({_env.DECISION_MODEL: "jev-latest"}, _env.DECISION_URL),
        ({_env.DECISION_URL: "https://api.example.test"}, _env.DECISION_MODEL),
        (WHOLE | {_env.DECISION_WIRE: "graphql"}, _env.DECISION_WIRE),
        (WHOLE | {_env.DECISION_URL: f"https://u:{KEY}@api.example.test"}, _env.DECISION_URL),
        (WHOLE | {_env.DECISION_URL: "api.example.test"}, _env.DECISION_URL),
    ],
    indirect=["environment"],
)
@pytest.mark.usefixtures("environment")
def test_an_unusable_setting_is_named_without_secrets(variable: _env.Variable) -> None:
    with pytest.raises(ConfigError) as caught:
        decision_config_from_env()
    assert caught.value.variable == variable.name
    assert KEY not in f"{caught.value}{vars(caught.value)}"


@pytest.mark.parametrize("key", ["sk with space", "sk-\u00e4", "sk-\n"])
@pytest.mark.parametrize("environment", [WHOLE], indirect=True)
@pytest.mark.usefixtures("environment")
def test_an_unusable_key_is_refused(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv(_env.DECISION_API_KEY.name, f"x{key}x")
    with pytest.raises(ConfigError) as caught:
        HttpDecisionClient.from_env()
    assert key not in str(caught.value)


def test_the_limits_of_a_client_have_defaults_and_bounds() -> None:
    address = {"url": "https://api.example.test", "model": "m"}
    assert DecisionConfig.model_validate(address).model_dump(exclude={"api_key"}) == {
        **address,
        "wire": "systemone",
        "timeout_s": 10.0,
        "max_attempts": 2,
        "max_response_bytes": 5_000_000,
        "input_usd_per_million": None,
        "cost_limit_usd": None,
    }
    for field, allowed, refused in (
        ("timeout_s", (0.001, 3_600), (0, 3_600.1)),
        ("max_attempts", (1, 10), (0, 11)),
        ("max_response_bytes", (1,), (0,)),
        ("input_usd_per_million", (0, 0.5), (-0.1, float("inf"))),
        ("cost_limit_usd", (0, 0.5), (-0.1, float("nan"))),
        ("model", ("m",), ("",)),
    ):
        for value in allowed:
            DecisionConfig.model_validate({**address, field: value})
        for value in refused:
            with pytest.raises(ValidationError, match=field):
                DecisionConfig.model_validate({**address, field: value})


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(AttributeError, match="HttpDecisionClien"):
        _ = decisions.HttpDecisionClien
    assert {"HttpDecisionClient", "LogprobDecisions"} <= set(dir(decisions))
