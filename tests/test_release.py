"""Problems that `make release-check` finds in a wheel, without installing one."""

from email.message import Message

import pytest

from tools.release_check import SKILL, only_in_extras, problems_of

NAMES = [
    "llm_common/__init__.py",
    "llm_common/py.typed",
    SKILL,
    "llm_common/core/token_pieces.json",
]
NOTICE = "llm_common/core/token_pieces.json\n    Made by others."
FIELDS = {
    "License-Expression": "MIT",
    "License-File": "LICENSE",
    "Classifier": "Private :: Do Not Upload",
    "Requires-Python": ">=3.11",
    "Summary": "Chooses.",
    "Keywords": "llm",
    "Description-Content-Type": "text/markdown",
}


def metadata(**changes: str) -> Message:
    message = Message()
    for name, value in (FIELDS | changes).items():
        message[name] = value
    return message


def test_a_whole_wheel_has_no_problem() -> None:
    assert [*problems_of(NAMES, metadata(), NOTICE)] == []


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([name for name in NAMES if "py.typed" not in name], "py.typed is missing"),
        ([name for name in NAMES if name != SKILL], "SKILL.md is missing"),
        ([*NAMES, "llm_common/demo/table.csv"], "table.csv is data that NOTICE does not name"),
        ([*NAMES, "tests/test_release.py"], "does not belong into a wheel"),
    ],
)
def test_a_missing_or_additional_file_is_a_problem(names: list[str], problem: str) -> None:
    [message] = problems_of(names, metadata(), NOTICE)
    assert problem in message


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_of_the_metadata_is_a_problem(field: str) -> None:
    fields = metadata()
    del fields[field]
    [message, *_] = problems_of(NAMES, fields, NOTICE)
    assert field in message or "Markdown" in message


def test_a_wheel_that_the_index_would_accept_is_a_problem() -> None:
    [message] = problems_of(NAMES, metadata(Classifier="Typing :: Typed"), NOTICE)
    assert "another project" in message


def test_what_only_extras_need_is_known_by_its_normal_name() -> None:
    message = metadata()
    for requirement in (
        "httpx>=0.27",
        'Jinja2>=3.1; extra == "cli"',
        'psycopg[binary] (>=3.2) ; extra == "postgres"',
        'opentelemetry_api>=1.30; extra == "otel"',
        'httpx[http2]>=0.27; extra == "all"',
    ):
        message["Requires-Dist"] = requirement
    assert only_in_extras(message) == {"jinja2", "psycopg", "opentelemetry-api"}
