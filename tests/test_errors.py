import copy
import inspect
import pickle

import pytest

from llm_common import errors

FACTS: dict[str, dict[str, object]] = {
    "ConfigError": {"variable": "X", "value": "y"},
    "LLMTimeoutError": {"timeout_s": 1.5},
    "LLMStatusError": {"status": 500, "body": "b"},
    "LLMAuthError": {"status": 401, "body": "b"},
    "LLMRateLimitError": {"status": 429, "body": "b", "retry_after_s": 2.0},
    "ModelNotFoundError": {"status": 404, "body": "b"},
    "ContextTooLongError": {"status": 413, "body": "b"},
    "MalformedReplyError": {"reason": "empty", "reply": "r"},
    "CostLimitError": {"spent_usd": 1.0, "limit_usd": 0.5},
    "PointerNotFoundError": {"reason": "expired"},
    "ToolError": {"tool": "t"},
    "UnknownToolError": {"tool": "t"},
    "ToolArgumentsError": {"tool": "t"},
    "ToolFailedError": {"tool": "t"},
    "TokenBudgetError": {"needed_tokens": 2, "limit_tokens": 1},
}


def make(name: str) -> errors.LLMCommonError:
    error = getattr(errors, name)("what happened", **FACTS.get(name, {}))
    assert isinstance(error, errors.LLMCommonError)
    return error


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_survives_pickling_and_copying_with_its_facts(name: str) -> None:
    error = make(name)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == "what happened"
        assert vars(twin) == vars(error)
        assert twin.args == error.args


@pytest.mark.parametrize("name", errors.__all__)
def test_facts_are_attributes_and_never_part_of_the_text(name: str) -> None:
    error = make(name)
    for fact, value in FACTS.get(name, {}).items():
        assert getattr(error, fact) == value
    assert str(error) == "what happened"


@pytest.mark.parametrize(
    ("name", "builtin"),
    [("ConfigError", ValueError), ("InvalidIdError", ValueError), ("PointerNotFoundError", KeyError)],
)
def test_an_error_is_also_the_builtin_that_callers_already_catch(name: str, builtin: type[Exception]) -> None:
    assert isinstance(make(name), builtin)


def test_the_tree_is_drawn_at_the_top_in_the_order_of_declaration() -> None:
    declared = [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.LLMCommonError)
    ]
    drawing = (errors.__doc__ or "").replace("LLMCommonError\n", "LLMCommonError \n")
    positions = [
        drawing.index(f"{name} ") if f"{name} " in drawing else drawing.index(f"{name}\n") for name in declared
    ]
    assert positions == sorted(positions)
    assert sorted(declared) == errors.__all__
