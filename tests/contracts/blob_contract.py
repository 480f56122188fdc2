"""Contract suites for blob stores: pytest classes that test a `BlobStore`."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from llm_common.errors import (
    CorruptPointerError,
    InvalidIdError,
    LockTimeoutError,
    PointerNotFoundError,
)
from llm_common.storage import BlobStore, LockingBlobStore

_OWN_FOLDER = ".store"  # holds blobs about the store, and is no query's folder
_CLOCK_TICK_S = 0.1  # coarser than the time stamps of common file systems
_FORBIDDEN_KEYS = (
    "",
    "name",
    "q/",
    "/name",
    "q//name",
    "a/b/c",
    "../name",
    "q/..",
    "q/.hidden",
    ".q/name",
    "q/a b",
    "q/a\\b",  # a separator on Windows
    "q/a\0b",  # NUL ends a path in C
    "q/%2e%2e",  # `..` in a URL
    "q/nul",  # a device on Windows, as CON
    "CON.x/name",
    "q/é",  # some file systems return another normal form
    "q/name.",  # Windows removes the dot
    "q/" + "a" * 129,  # one character over the limit
    " /name",
    "-q/name",  # an option to many commands
)


class BlobStoreContract:
    """The tests of a `BlobStore`.

    Inherit from it in a test class with a fixture `blobs` that returns a new, empty store.
    """

    @pytest.mark.parametrize("data", [b"", b"\0\xff\n", bytes(range(256)) * 1000], ids=len)
    def test_returns_the_bytes_that_were_put(self, blobs: BlobStore, data: bytes) -> None:
        """Put empty, binary and large blobs, and get the same bytes."""
        blobs.put("q/a", data)
        assert blobs.get("q/a") == data

    def test_a_put_replaces_an_earlier_one(self, blobs: BlobStore) -> None:
        """Replace a blob by a shorter one."""
        # A store that writes in place would leave the end of the longer blob.
        blobs.put("q/a", b"old and long")
        blobs.put("q/a", b"new")
        assert blobs.get("q/a") == b"new"
        assert blobs.scan("q").blobs["a"].size == 3

    @pytest.mark.parametrize("key", ["q/b", "other/a"])
    def test_getting_a_missing_blob_raises(self, blobs: BlobStore, key: str) -> None:
        """Raise PointerNotFoundError for a missing blob or folder."""
        blobs.put("q/a", b"1")
        with pytest.raises(PointerNotFoundError):
            blobs.get(key)

    def test_get_many_keeps_the_order_and_marks_gaps(self, blobs: BlobStore) -> None:
        """Return None for a missing blob, also if its folder is missing."""
        blobs.put("q/a", b"1")
        assert list(blobs.get_many("q", ["a", "no", "a"])) == [b"1", None, b"1"]
        assert list(blobs.get_many("s", ["no"])) == [None]

    def test_a_blob_may_have_exactly_max_bytes(self, blobs: BlobStore) -> None:
        """Raise for one byte more in `get`, and return None in `get_many`."""
        blobs.put("q/a", b"12345")
        assert blobs.get("q/a", max_bytes=5) == b"12345"
        assert list(blobs.get_many("q", ["a"], max_bytes=5)) == [b"12345"]
        with pytest.raises(CorruptPointerError):
            blobs.get("q/a", max_bytes=4)
        assert list(blobs.get_many("q", ["a"], max_bytes=4)) == [None]

    def test_an_update_treats_a_larger_blob_as_missing(self, blobs: BlobStore) -> None:
        """Pass a blob of exactly `max_bytes` to the function, and None for a larger one."""
        blobs.put("q/a", b"12345")
        blobs.update("q/a", lambda data: (data or b"") + b"6", max_bytes=5)
        assert blobs.get("q/a") == b"123456"
        blobs.update("q/a", lambda data: (data or b"") + b"7", max_bytes=5)
        assert blobs.get("q/a") == b"7"

    def test_lists_only_folders_of_queries(self, blobs: BlobStore) -> None:
        """List no empty folder, and not the folder of the store itself."""
        assert list(blobs.folders()) == []
        for key in ("q/a", "user;42/a", f"{_OWN_FOLDER}/a"):
            blobs.put(key, b"1")
        assert sorted(blobs.folders()) == ["q", "user;42"]

    def test_a_name_is_leased_to_one_holder_at_a_time(self, blobs: BlobStore) -> None:
        """Refuse a name that is held, lease any other one, and leave nothing behind."""
        with blobs.lease("run-1") as is_held:
            assert is_held()
            with pytest.raises(LockTimeoutError), blobs.lease("run-1"):
                pytest.fail("leased a name twice")
            with blobs.lease("run-2"):
                blobs.put("q/a", b"1")
        with suppress(KeyError), blobs.lease("run-1"):
            raise KeyError  # a block that fails gives the lease back too
        with blobs.lease("run-1"):
            pass
        assert blobs.scan(_OWN_FOLDER).blobs == {}

    def test_scans_one_folder_in_the_order_of_names(self, blobs: BlobStore) -> None:
        """Return names and sizes of the blobs in this folder only."""
        assert blobs.scan("q").blobs == {}
        # A store that lists by prefix could show the folder `q2` in `q`.
        for key in ("q/c", "q/a", "q/b.json", "q2/a"):
            blobs.put(key, key.encode())
        sizes = [(name, entry.size) for name, entry in blobs.scan("q").blobs.items()]
        assert sizes == [("a", 3), ("b.json", 8), ("c", 3)]

    def test_an_etag_changes_with_the_bytes(self, blobs: BlobStore) -> None:
        """Compare the ETags of a blob and its folder before and after a put.

        The folder's ETag may be None, which means that it is unknown.
        """
        blobs.put("q/a", b"1")
        # A store may have no ETag for a blob that changed within the last tick of the clock.
        time.sleep(_CLOCK_TICK_S)
        first, folder = blobs.scan("q").blobs["a"], blobs.folder_etag("q")
        assert (blobs.scan("q").blobs["a"], blobs.folder_etag("q")) == (first, folder)
        assert first.etag is not None
        blobs.put("q/a", b"22")
        assert blobs.scan("q").blobs["a"].etag != first.etag
        assert folder is None or blobs.folder_etag("q") != folder

    def test_concurrent_updates_are_not_lost(self, blobs: BlobStore) -> None:
        """Update atomically, beginning with a missing blob."""

        def append(_: int) -> None:
            blobs.update("q/a", lambda data: (data or b"") + b"1")

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(append, range(20)))
        assert blobs.get("q/a") == b"1" * 20

    def test_deleting_is_idempotent(self, blobs: BlobStore) -> None:
        """Delete a missing blob without an error."""
        blobs.put("q/a", b"1")
        for key in ("q/a", "q/a", "none/a"):
            blobs.delete(key)
        assert blobs.scan("q").blobs == {}

    @pytest.mark.parametrize("key", _FORBIDDEN_KEYS)
    def test_refuses_invalid_keys(self, blobs: BlobStore, key: str) -> None:
        """Check the key in every method."""
        for method in (blobs.get, blobs.delete, blobs.location, lambda key: blobs.put(key, b"x")):
            with pytest.raises(InvalidIdError):
                method(key)

    def test_a_reader_sees_whole_blobs_during_puts(self, blobs: BlobStore) -> None:
        """Put atomically."""
        # Longer than the usual buffers, so that a put takes several writes.
        versions = [letter * 20_000 for letter in (b"a", b"b", b"c", b"d")]
        blobs.put("q/a", versions[0])
        with ThreadPoolExecutor(4) as threads:
            puts = threads.map(lambda version: blobs.put("q/a", version), versions * 10)
            for _ in range(100):
                assert blobs.get("q/a") in versions
            list(puts)


class LockingBlobStoreContract(BlobStoreContract):
    """The tests of a `LockingBlobStore`.

    The lock timeout of the store must be under a second, because a test waits for it.
    """

    def test_a_locked_folder_puts_several_blobs(self, blobs: LockingBlobStore) -> None:
        """Put new blobs and replace old ones, then get and delete them under the lock."""
        blobs.put("q/a", b"old and long")
        with blobs.lock("q") as folder:
            folder.put(("c", b"c"), ("a", b"a"), ("b", b"b"))
            assert [*map(folder.get, "cabd")] == [b"c", b"a", b"b", None]
            folder.delete("c", "d")
            folder.put()
        assert list(blobs.get_many("q", ["c", "a", "b"])) == [None, b"a", b"b"]

    def test_several_blobs_appear_in_the_order_of_the_put(self, blobs: LockingBlobStore) -> None:
        """Show a reader the first blob whenever it sees the second."""

        def put(first: str, second: str) -> None:
            with blobs.lock("q") as folder:
                folder.put((first, b"1"), (second, b"1"))

        with ThreadPoolExecutor(1) as threads:
            for index in range(50):
                first, second = f"{index}-first", f"{index}-second"
                putting = threads.submit(put, first, second)
                while not putting.done():
                    # The second is read first. In the other order, both puts could happen between
                    # the reads.
                    second_data, first_data = blobs.get_many("q", [second, first])
                    assert second_data is None or first_data is not None
                putting.result()

    def test_the_lock_has_one_holder_at_a_time(self, blobs: LockingBlobStore) -> None:
        """Count the holders while 40 tasks take the lock in 4 threads."""
        holders, most = 0, 0

        def work(_: int) -> None:
            nonlocal holders, most
            for _ in range(20):  # on a slow disk, a waiter can time out
                with suppress(LockTimeoutError), blobs.lock("q"):
                    holders += 1
                    most = max(most, holders)
                    # The write gives other threads the time to enter.
                    blobs.put("q/a", b"1")
                    holders -= 1
                    return
            pytest.fail("the lock was never free")

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(40)))
        assert most == 1

    def test_waiting_for_the_lock_ends_with_an_error(self, blobs: LockingBlobStore) -> None:
        """Raise LockTimeoutError while another thread holds the lock, and enter afterwards."""
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with blobs.lock("q"):
                held.set()
                done.wait(10)  # so that a failed assertion does not hang the test

        with ThreadPoolExecutor(1) as threads:
            holding = threads.submit(hold)
            held.wait(10)
            with pytest.raises(LockTimeoutError), blobs.lock("q", timeout_s=0.05):
                pytest.fail("entered a folder that another holds")
            done.set()
            holding.result()
        with blobs.lock("q"):
            blobs.put("q/a", b"1")

    def test_an_error_in_the_block_frees_the_lock(self, blobs: LockingBlobStore) -> None:
        """Enter again after an error in the block."""
        with pytest.raises(ZeroDivisionError), blobs.lock("q"):
            raise ZeroDivisionError
        with blobs.lock("q"):
            assert blobs.scan("q").blobs == {}
