"""Servers for the tests marked `services`: started once, on sockets of this machine, ended by their process id."""

from collections.abc import Iterator

import pytest

from tests.services.postgres_server import (
    NoServerError,
    PostgresServer,
    find_postgres,
    running_server,
)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; the test is skipped, saying why, where none can be had."""
    try:
        with running_server(find_postgres()) as server:
            yield server
    except NoServerError as exc:
        pytest.skip(str(exc))
