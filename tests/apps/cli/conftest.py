"""What several commands are tested with."""

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def busy_port() -> Iterator[str]:
    """A port on which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as busy:
        yield str(busy.getsockname()[1])
