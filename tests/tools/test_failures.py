"""Why a call failed, without secrets and without the texts of its arguments."""

import pytest

from llm_common.agents import Redactor
from llm_common.errors import ToolArgumentsError, ToolFailedError
from llm_common.tools.failures import describe_failure, failure_reason

REDACTOR = Redactor()
KEY = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("read it", "no read it here"),
        ("eight ch", "no [note] here"),
        ("seven c", "no seven c here"),
    ],
)
def test_a_text_of_eight_characters_may_be_the_users(text: str, expected: str) -> None:
    assert failure_reason(f"no {text} here", {"note": text}, REDACTOR) == expected


def test_the_longest_text_of_an_argument_is_replaced_first() -> None:
    args = {"a": ["the cat sat", {"b": "the cat sat on the mat"}]}
    reason = failure_reason("it said the cat sat on the mat, the cat sat", args, REDACTOR)
    assert reason == "it said [a], [a]"


def test_texts_are_found_eight_levels_deep() -> None:
    text = "what my neighbour earns"
    for levels, expected in ((8, "no [a]"), (9, f"no {text}")):
        value: object = text
        for _ in range(levels):
            value = [value]
        assert failure_reason(f"no {text}", {"a": value}, REDACTOR) == expected


def test_a_reason_is_one_line_of_400_characters_without_secrets() -> None:
    reason = failure_reason(f"first\nsecond {KEY} third", {}, REDACTOR)
    assert reason == "first second [redacted] third"
    assert failure_reason("x" * 400, {}, REDACTOR) == "x" * 400
    assert len(failure_reason("x" * 401, {}, REDACTOR)) == 400


def test_the_name_of_a_tool_is_told_once() -> None:
    args: dict[str, object] = {}
    own = ToolArgumentsError("city is missing", tool="get_weather")
    assert describe_failure("get_weather", args, own, REDACTOR) == "get_weather: city is missing"
    named = ToolArgumentsError("get_weather needs a city", tool="get_weather")
    assert describe_failure("get_weather", args, named, REDACTOR) == "get_weather needs a city"
    raised = ConnectionError("no line")
    expected = "get_weather raised ConnectionError: no line"
    assert describe_failure("get_weather", args, raised, REDACTOR) == expected


def test_the_error_of_a_registry_shows_the_tools_own_text() -> None:
    outer = ToolFailedError("get_weather failed", tool="get_weather")
    outer.__cause__ = ToolArgumentsError("city is missing", tool="get_weather")
    assert describe_failure("get_weather", {}, outer, REDACTOR) == "get_weather: city is missing"
