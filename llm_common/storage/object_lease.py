"""`ObjectLease`: a name that one process at a time holds in an object store.

An object store has no locks, and its objects outlive the process that put them. So a lease is an
object that its holder replaces every 15 seconds. Whoever finds it unchanged for 60 seconds, by the
store's clock, takes it over.
"""

import logging
import os
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from llm_common.errors import LockTimeoutError, PointerNotFoundError, StoreError

LEASE_S: Final = 60.0
RENEW_S: Final = 15.0

VersionT = TypeVar("VersionT")
StartTimer = Callable[[float, Callable[[], None]], threading.Timer]

_log = logging.getLogger(__name__)


class LeaseObject(Protocol[VersionT]):
    """The object of a lease, with puts that fail if somebody else was faster."""

    def put(self, data: bytes, *, replaces: VersionT | None) -> VersionT | None:
        """Store the bytes if the object has the version `replaces`, or None if it is missing.

        Returns:
            The new version, or None if another one was found.
        """

    def read(self) -> tuple[bytes, VersionT, float]:
        """Return the bytes, their version, and the time of the put by the store's clock.

        Raises:
            PointerNotFoundError: If the object does not exist.
        """

    def now_s(self) -> float:
        """Return the time by the store's clock, in seconds since the epoch."""

    def delete(self) -> None:
        """Remove the object."""


class ObjectLease(Generic[VersionT]):
    """Holds an object from its creation to `release`.

    Args:
        target: The object.
        name: The lease, for errors.
        start_timer: Calls a function after some seconds in another thread.

    Raises:
        LockTimeoutError: If somebody else holds it.
        StoreError: If the store cannot be read or written.
    """

    def __init__(
        self,
        target: LeaseObject[VersionT],
        name: str,
        *,
        start_timer: StartTimer | None = None,
    ) -> None:
        self._target = target
        self._name = name
        self._start_timer = start_timer or _start_timer
        self._process = os.getpid()
        self._token = secrets.token_hex(16).encode()
        self._puts = 0
        self._lock = threading.Lock()
        self._version = self._taken()
        self._timer: threading.Timer | None = self._start_timer(RENEW_S, self._renew)

    def _taken(self) -> VersionT:
        version = self._put(None)
        if version is None:
            with suppress(PointerNotFoundError):
                _, old, put_at_s = self._target.read()
                if self._target.now_s() - put_at_s < LEASE_S:
                    raise self._refused()
                version = self._put(old)
        if version is None:
            raise self._refused()
        return version

    def _refused(self) -> LockTimeoutError:
        return LockTimeoutError(
            f"{self._name} is held. Wait until its holder has ended, or {LEASE_S:g} s if it died"
        )

    def _put(self, replaces: VersionT | None) -> VersionT | None:
        """Put this lease's bytes, and return their version, or None if somebody else was faster."""
        # Counted, since S3 gives the same version to the same bytes.
        self._puts += 1
        data = self._token + b" %d" % self._puts
        version = self._target.put(data, replaces=replaces)
        if version is None:
            # After a lost response, the retry finds the bytes of the first try.
            with suppress(PointerNotFoundError):
                found, found_version, _ = self._target.read()
                if found == data:
                    return found_version
        return version

    def _renew(self) -> None:
        with self._lock:
            if self._timer is None:
                return
            try:
                version = self._put(self._version)
            except StoreError as exc:
                # It may be renewed the next time, before anybody takes it over.
                _log.warning("a lease was not renewed (%s)", type(exc).__name__)
            else:
                if version is None:
                    _log.warning("a lease was lost: it was not renewed for %g s", LEASE_S)
                    self._timer = None
                    return
                self._version = version
            self._timer = self._start_timer(RENEW_S, self._renew)

    def release(self) -> None:
        """Give the object back, unless it was taken over. Does nothing in a forked child.

        Raises:
            StoreError: If the object cannot be removed. It is then free after 60 seconds.
        """
        if self._process != os.getpid():
            return
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is None:
            return
        timer.cancel()
        with suppress(PointerNotFoundError):
            _, version, _ = self._target.read()
            if version == self._version:
                self._target.delete()


def _start_timer(wait_s: float, work: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(wait_s, work)
    # The timer must not keep a process alive.
    timer.daemon = True
    timer.start()
    return timer
