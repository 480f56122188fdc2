"""`ObjectLease`: renewal, takeover and loss, over an object with a clock that the test sets."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from llm_common.errors import LockTimeoutError, PointerNotFoundError, StoreError
from llm_common.storage.object_store import (
    LEASE_S,
    RENEW_S,
    BlobVersion,
    ObjectBlobStore,
    ObjectLease,
)

KEY = ".store/lease-run"


@dataclass
class Server(ObjectBlobStore):
    """A store with a version for each put of a lease, and timers that fire when the test says so.

    Any other object is a clock, which the lease puts to ask for the store's time.
    """

    time_s: float = 1_000.0
    content: tuple[bytes, BlobVersion] | None = None
    put_at_s: float = 0.0
    puts: int = 0
    is_down: bool = False
    loses_responses: bool = False
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def put_if(self, key: str, data: bytes, *, replaces: BlobVersion | None) -> BlobVersion | None:
        assert key == KEY
        if self.is_down:
            raise StoreError("The object store does not answer. Try again")
        if replaces != (self.content and self.content[1]):
            return None
        self.puts += 1
        version = BlobVersion(None, str(self.puts))
        self.content, self.put_at_s = (data, version), self.time_s
        return None if self.loses_responses else version

    def get_version(
        self, key: str, *, max_bytes: int | None = None
    ) -> tuple[bytes | None, BlobVersion]:
        assert (key, max_bytes) == (KEY, None)
        if self.is_down:
            raise StoreError("The object store does not answer. Try again")
        if self.content is None:
            raise PointerNotFoundError("Nothing is stored. Use another name")
        return self.content

    def put(self, key: str, data: bytes) -> None:
        assert (key.startswith(".store/clock-"), data) == (True, b"")

    def modified_s(self, key: str) -> float:
        return self.put_at_s if key == KEY else self.time_s

    def delete(self, key: str) -> None:
        if key == KEY:
            self.content = None

    def start_timer(self, wait_s: float, work: Callable[[], None]) -> threading.Timer:
        self.timers.append((wait_s, work))
        return threading.Timer(wait_s, work)

    def hold(self) -> ObjectLease:
        return ObjectLease(self, "run", start_timer=self.start_timer)

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, and fire the newest timer if it is due."""
        self.time_s += seconds
        if self.timers and seconds >= self.timers[-1][0]:
            self.timers.pop()[1]()


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_renewed_lease_is_never_taken_over(server: Server) -> None:
    lease = server.hold()
    for _ in range(10):
        server.pass_time(RENEW_S)
        with pytest.raises(LockTimeoutError, match="run is held"):
            server.hold()
    lease.release()
    server.hold().release()
    assert server.content is None


def test_a_lease_whose_holder_died_is_taken_over_after_a_minute(server: Server) -> None:
    server.hold()
    server.timers.clear()  # the holder renews nothing any more
    server.time_s += LEASE_S - 1
    with pytest.raises(LockTimeoutError):
        server.hold()
    server.time_s += 1
    lease = server.hold()
    with pytest.raises(LockTimeoutError):
        server.hold()
    lease.release()


def test_a_lease_that_was_taken_over_is_not_given_back(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    slept = server.hold()
    renew = server.timers.pop()[1]
    server.time_s += LEASE_S
    server.hold()
    with caplog.at_level(logging.WARNING):
        renew()
    assert "a lease was lost" in caplog.text
    slept.release()
    assert server.content is not None


def test_a_late_release_does_not_end_the_lease_of_the_next_holder(server: Server) -> None:
    slept = server.hold()
    server.time_s += LEASE_S
    server.hold()
    slept.release()
    with pytest.raises(LockTimeoutError):
        server.hold()


def test_a_renewal_that_fails_is_tried_again(server: Server) -> None:
    server.hold()
    server.is_down = True
    server.pass_time(RENEW_S)
    server.is_down = False
    server.pass_time(RENEW_S)
    server.time_s += LEASE_S - 1
    with pytest.raises(LockTimeoutError):
        server.hold()


def test_a_lease_is_held_until_another_holder_takes_it_over(server: Server) -> None:
    slept = server.hold()
    assert slept.is_held()
    server.pass_time(RENEW_S)
    assert slept.is_held()
    server.time_s += LEASE_S
    assert slept.is_held()  # nobody wanted it
    server.hold()
    assert not slept.is_held()
    server.content = None
    assert not slept.is_held()


def test_a_lease_is_held_for_a_minute_while_the_store_does_not_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = server.hold()
    server.is_down = True
    assert lease.is_held()
    monkeypatch.setattr("llm_common.storage.object_store.LEASE_S", 0.0)
    assert not lease.is_held()


def test_a_lost_response_is_no_loss_of_the_lease() -> None:
    server = Server(loses_responses=True)
    lease = server.hold()
    server.pass_time(RENEW_S)
    lease.release()
    assert server.content is None
