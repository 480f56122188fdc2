"""Connection strings of `PostgresMemory`, which are checked without a server."""

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
        (f"just words {SECRET}", "conninfo is no connection string"),
        (f"http://user:{SECRET}@host/name", "conninfo is no connection string"),
        (f"hst=localhost password={SECRET}", "conninfo is no connection string"),
        (f"postgresql://user@host/name?pasword={SECRET}", "conninfo is no connection string"),
        (f"postgresql://user:ab/{SECRET}@host/name", "the port in conninfo is no number"),
    ],
)
def test_what_is_no_conninfo_is_refused_at_once(conninfo: str, reason: str) -> None:
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
def test_what_libpq_reads_is_taken(conninfo: str) -> None:
    assert isinstance(PostgresMemory(conninfo), Memory)


def test_other_kinds_and_numbers_out_of_range_are_refused() -> None:
    wrong: Any = None
    with pytest.raises(TypeError, match="conninfo is a NoneType; pass a text"):
        PostgresMemory(wrong)
    with pytest.raises(ConfigError, match="max_connections is 0"):
        PostgresMemory("", max_connections=0)
    with pytest.raises(ConfigError, match="timeout_s is -1"):
        PostgresMemory("", timeout_s=-1)
