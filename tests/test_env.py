from collections.abc import Callable
from pathlib import Path

import pytest

from llm_common import _env
from llm_common.errors import ConfigError

TEXT = _env.Variable("LLM_COMMON_TEST", "", "a test")
NUMBER = _env.Variable("LLM_COMMON_TEST", "7", "a test")
SECRET = _env.Variable("LLM_COMMON_TEST", "", "a test", secret=True)


def read_share(variable: _env.Variable) -> float | None:
    return _env.read_float(variable, minimum=0, maximum=10)


@pytest.mark.parametrize("value", ["", "   "])
def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(TEXT.name, value)
    assert _env.read_text(TEXT) is None
    assert _env.read_int(NUMBER, minimum=0, maximum=9) == 7
    assert _env.read_float(TEXT, minimum=0, maximum=9) is None
    assert _env.read_flag(TEXT) is False
    assert _env.read_path(TEXT) is None


@pytest.mark.parametrize(
    "value", ["seven", "7.5", "10", "-1", "٧", "1_0", "9" * 5000, "0x7", "nan"]
)
def test_an_invalid_number_raises_with_its_name_and_value_s2_02(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(TEXT.name, value)
    with pytest.raises(ConfigError) as caught:
        _env.read_int(NUMBER, minimum=0, maximum=9)
    assert caught.value.variable == TEXT.name
    assert caught.value.value == value
    assert TEXT.name in str(caught.value)
    assert value[:80] in str(caught.value)
    assert "from 0 to 9" in str(caught.value)


@pytest.mark.parametrize(
    ("read", "value", "problem"),
    [
        *((read_share, value, TEXT.name) for value in ("inf", "nan", "-0.5", "11", "x")),
        # A mistyped word must not switch a safety off.
        (_env.read_flag, "ture", "true or false"),
        (_env.read_path, "~nobody-of-that-name/store", "home folder"),
    ],
)
def test_another_invalid_value_raises_too(
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[_env.Variable], object],
    value: str,
    problem: str,
) -> None:
    monkeypatch.setenv(TEXT.name, value)
    with pytest.raises(ConfigError, match=problem):
        read(TEXT)


@pytest.mark.parametrize(
    ("value", "flag"), [("1", True), (" YES ", True), ("off", False), ("F", False)]
)
def test_a_flag_takes_the_usual_words(
    monkeypatch: pytest.MonkeyPatch, value: str, flag: bool
) -> None:
    monkeypatch.setenv(TEXT.name, value)
    assert _env.read_flag(TEXT) is flag


def test_an_invalid_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET.name, "sk-hidden")
    with pytest.raises(ConfigError) as caught:
        _env.read_int(SECRET, minimum=0, maximum=9)
    assert "sk-hidden" not in str(caught.value)


def test_a_tilde_is_expanded_s0_10(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(TEXT.name, "~/store")
    assert _env.read_path(TEXT) == tmp_path / "store"
