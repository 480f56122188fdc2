"""Tests that `PostgresMemory` checks connection strings without a server."""

import traceback
from typing import Any

import pytest

pytest.importorskip("psycopg")

from llm_common.errors import ConfigError
from llm_common.memory import Memory, PostgresMemory

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("conninfo", "reason"),
    [
        (f"just words {SECRET}", "conninfo is not a connection string"),
        (f"http://user:{SECRET}@host/name", "conninfo is not a connection string"),
        (f"hst=localhost password={SECRET}", "conninfo is not a connection string"),
        (f"postgresql://user@host/name?pasword={SECRET}", "conninfo is not a connection string"),
        (f"postgresql://user:ab/{SECRET}@host/name", "the port in conninfo is not a number"),
    ],
)
def test_an_invalid_conninfo_raises_without_its_password(conninfo: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        PostgresMemory(conninfo)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.variable == "conninfo"


@pytest.mark.parametrize(
    "conninfo",
    [
        "",
        "host=/run/postgresql",
        "postgresql://u:p%40q@a:1,b:2/name",
        "postgres://u@[::1]:5432/d?sslmode=disable",
    ],
)
def test_connection_strings_of_libpq_are_accepted(conninfo: str) -> None:
    assert isinstance(PostgresMemory(conninfo), Memory)


def test_wrong_types_and_numbers_out_of_range_raise() -> None:
    wrong: Any = None
    with pytest.raises(TypeError, match="conninfo must be a str, got NoneType"):
        PostgresMemory(wrong)
    with pytest.raises(ConfigError, match="max_connections must be above 0, got 0"):
        PostgresMemory("", max_connections=0)
    with pytest.raises(ConfigError, match="timeout_s must be above 0, got -1"):
        PostgresMemory("", timeout_s=-1)
