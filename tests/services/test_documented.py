"""Tests the program of how-to/many_machines.md that needs a PostgreSQL server."""

import pytest

from tests.services.postgres_server import PostgresServer
from tests.test_documentation import programs_of, run

pytestmark = pytest.mark.services
PAGE = "how-to/many_machines.md"


def test_the_documented_memory_keeps_the_newest_fact(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    [program] = [program for program in programs_of(PAGE) if "PostgreSQL" in program.note]
    monkeypatch.setenv("DATABASE_URL", postgres.conninfo)
    assert run(program, PAGE, {"__name__": "__main__"}) == "['I live in Rome']\n"
