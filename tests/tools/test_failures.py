"""Why a call failed, without secrets and without the texts of its arguments."""

import time

import pytest

from llm_common.agents import Redactor
from llm_common.errors import ToolArgumentsError, ToolFailedError
from llm_common.tools.tool import describe_failure, failure_reason

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


@pytest.mark.parametrize("short", ["the cat sat", "the cat sat, and sat, " * 9])
def test_the_longest_text_of_an_argument_is_replaced_first(short: str) -> None:
    args = {"a": [short, {"b": f"{short} on the mat"}]}
    reason = failure_reason(f"it said {short} on the mat, {short}", args, REDACTOR)
    assert reason == "it said [a], [a]"


def test_the_name_of_an_argument_is_not_replaced_again() -> None:
    reason = failure_reason("no such key: xxxxxxxx", {"x" * 64: ["xxxxxxxx"] * 3}, REDACTOR)
    assert reason == f"no such key: [{'x' * 64}]"


def test_each_argument_of_any_length_and_number_is_replaced() -> None:
    rows = [f"customer number {number}" for number in range(16_000)]
    started = time.thread_time()
    reason = failure_reason(repr(rows), {"rows": rows}, REDACTOR)
    assert time.thread_time() - started < 1  # 2.5 s with a search for each
    assert reason.startswith("['[rows]', '[rows]', ")
    assert "customer" not in reason
    page = "The cat sat on the mat. " * 10_000
    reason = failure_reason(f"cannot read {page!r}: line 3", {"page": page}, REDACTOR)
    assert reason == "cannot read '[page]': line 3"


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


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolArgumentsError("city is missing", tool="get_weather"), "get_weather: city is missing"),
        (
            ToolArgumentsError("get_weather needs a city", tool="get_weather"),
            "get_weather needs a city",
        ),
        (ConnectionError("no line"), "get_weather raised ConnectionError: no line"),
        (
            caused(
                ToolFailedError("get_weather failed", tool="get_weather"),
                ToolArgumentsError("city is missing", tool="get_weather"),
            ),
            "get_weather: city is missing",
        ),
    ],
    ids=["without its name", "with its name", "of another", "of the registry"],
)
def test_a_failure_names_the_tool_once_with_its_own_text(error: Exception, text: str) -> None:
    assert describe_failure("get_weather", {}, error, REDACTOR) == text
