"""Starts the servers for tests marked `services`, once a session, on local sockets."""

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
    """Yield a PostgreSQL server, or skip the test with the reason."""
    try:
        with running_server(find_postgres()) as server:
            yield server
    except NoServerError as exc:
        pytest.skip(str(exc))
