"""Why a call failed, without secrets and without the texts of its arguments."""

import time

import pytest

from llm_common.agents import Redactor
from llm_common.errors import ToolArgumentsError, ToolFailedError
from llm_common.tools.tool import describe_failure, failure_reason

REDACTOR = Redactor()
KEY = "ghp_" + "a1B2" * 9


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


def nested(levels: int, value: object) -> object:
    for _ in range(levels):
        value = [value]
    return value


TEXT = "what my neighbour earns"
TWICE = "the cat sat, and sat, " * 9


@pytest.mark.parametrize(
    ("text", "args", "reason"),
    [
        pytest.param("no read it here", {"note": "read it"}, "no read it here", id="7 letters"),
        pytest.param("no eight ch here", {"note": "eight ch"}, "no [note] here", id="8 letters"),
        *(
            pytest.param(
                f"it said {short} on the mat, {short}",
                {"a": [short, {"b": f"{short} on the mat"}]},
                "it said [a], [a]",
                id=f"the longest text first {len(short)}",
            )
            for short in ("the cat sat", TWICE)
        ),
        pytest.param(
            "no such key: xxxxxxxx",
            {"x" * 64: ["xxxxxxxx"] * 3},
            f"no such key: [{'x' * 64}]",
            id="the name of an argument is not replaced again",
        ),
        pytest.param(f"no {TEXT}", {"a": nested(8, TEXT)}, "no [a]", id="8 levels deep"),
        pytest.param(f"no {TEXT}", {"a": nested(9, TEXT)}, f"no {TEXT}", id="9 levels deep"),
        pytest.param(
            f"first\nsecond {KEY} third", {}, "first second [redacted] third", id="one line"
        ),
        pytest.param("x" * 400, {}, "x" * 400, id="400 characters"),
        pytest.param("x" * 401, {}, "x" * 400, id="401 characters"),
    ],
)
def test_a_reason_is_a_line_without_secrets_and_texts_of_the_user(
    text: str, args: dict[str, object], reason: str
) -> None:
    assert failure_reason(text, args, REDACTOR) == reason


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
