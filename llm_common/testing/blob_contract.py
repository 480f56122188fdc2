"""Contract suites: what every implementation of a protocol must do, as pytest classes."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from llm_common.errors import (
    CorruptPointerError,
    InvalidIdError,
    LockTimeoutError,
    PointerNotFoundError,
)
from llm_common.storage import BlobStore, LockingBlobStore
from llm_common.storage.blob import OWN_FOLDER

_CLOCK_TICK_S = 0.1
_FORBIDDEN_KEYS = (
    *(
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
        "q/a\\b",
    ),
    *(
        "q/a\0b",
        "q/%2e%2e",
        "q/nul",
        "CON.x/name",
        "q/é",
        "q/name.",
        "q/" + "a" * 129,
        " /name",
        "-q/name",
    ),
)


class BlobStoreContract:
    """What a `BlobStore` promises.

    Inherit it in a test class whose fixture `blobs` gives a new, empty store.
    """

    def test_gives_back_the_bytes_that_were_put(self, blobs: BlobStore) -> None:
        """Empty, binary and large blobs come back as they were."""
        for number, data in enumerate((b"", b"\0\xff\n", bytes(range(256)) * 1000)):
            blobs.put(f"q/{number}", data)
            assert blobs.get(f"q/{number}") == data

    def test_the_last_put_counts(self, blobs: BlobStore) -> None:
        """A second put replaces the first, whatever its length."""
        blobs.put("q/a", b"old and long")
        blobs.put("q/a", b"new")
        assert blobs.get("q/a") == b"new"
        assert blobs.scan("q").blobs["a"].size == 3  # noqa: PLR2004 - bytes of "new"

    def test_a_missing_blob_is_an_error_that_says_so(self, blobs: BlobStore) -> None:
        """`get` raises PointerNotFoundError."""
        blobs.put("q/a", b"1")
        for key in ("q/b", "other/a"):
            with pytest.raises(PointerNotFoundError):
                blobs.get(key)

    def test_get_many_keeps_the_order_and_marks_gaps(self, blobs: BlobStore) -> None:
        """`get_many` answers for each key, in a folder that is missing too."""
        blobs.put("q/a", b"1")
        assert list(blobs.get_many("q", ["a", "no", "a"])) == [b"1", None, b"1"]
        assert list(blobs.get_many("s", ["no"])) == [None]

    def test_a_blob_may_have_just_as_many_bytes_as_asked(self, blobs: BlobStore) -> None:
        """One byte more than `max_bytes` is damage for `get`, and nothing for `get_many`."""
        blobs.put("q/a", b"12345")
        assert blobs.get("q/a", max_bytes=5) == b"12345"
        assert list(blobs.get_many("q", ["a"], max_bytes=5)) == [b"12345"]
        with pytest.raises(CorruptPointerError):
            blobs.get("q/a", max_bytes=4)
        assert list(blobs.get_many("q", ["a"], max_bytes=4)) == [None]

    def test_an_update_takes_a_larger_blob_for_none(self, blobs: BlobStore) -> None:
        """`max_bytes` itself is not larger."""
        blobs.put("q/a", b"12345")
        blobs.update("q/a", lambda data: (data or b"") + b"6", max_bytes=5)
        assert blobs.get("q/a") == b"123456"
        blobs.update("q/a", lambda data: (data or b"") + b"7", max_bytes=5)
        assert blobs.get("q/a") == b"7"

    def test_lists_the_folders_of_queries_alone(self, blobs: BlobStore) -> None:
        """Neither the store's own folder nor one without blobs is a query's."""
        assert list(blobs.folders()) == []
        for key in ("q/a", "user;42/a", f"{OWN_FOLDER}/a"):
            blobs.put(key, b"1")
        assert sorted(blobs.folders()) == ["q", "user;42"]

    def test_scans_one_folder_in_the_order_of_names(self, blobs: BlobStore) -> None:
        """`scan` knows names and sizes of its folder alone."""
        assert blobs.scan("q").blobs == {}
        for key in ("q/c", "q/a", "q/b.json", "q2/a"):
            blobs.put(key, key.encode())
        sizes = [(name, entry.size) for name, entry in blobs.scan("q").blobs.items()]
        assert sizes == [("a", 3), ("b.json", 8), ("c", 3)]

    def test_an_etag_differs_after_a_put_of_other_bytes(self, blobs: BlobStore) -> None:
        """An ETag compares equal until then.

        So does that of the folder. Either may be None for a moment.
        """
        blobs.put("q/a", b"1")
        time.sleep(_CLOCK_TICK_S)
        first, folder = blobs.scan("q").blobs["a"], blobs.folder_etag("q")
        assert (blobs.scan("q").blobs["a"], blobs.folder_etag("q")) == (first, folder)
        assert first.etag is not None
        blobs.put("q/a", b"22")
        assert blobs.scan("q").blobs["a"].etag != first.etag
        assert folder is None or blobs.folder_etag("q") != folder

    def test_no_update_of_several_at_once_is_lost(self, blobs: BlobStore) -> None:
        """`update` is atomic, from no blob on."""
        with ThreadPoolExecutor(4) as threads:
            for one in [
                threads.submit(blobs.update, "q/a", lambda data: (data or b"") + b"1")
                for _ in range(20)
            ]:
                one.result()
        assert blobs.get("q/a") == b"1" * 20

    def test_deleting_is_idempotent(self, blobs: BlobStore) -> None:
        """Deleting what is not there is no error."""
        blobs.put("q/a", b"1")
        for key in ("q/a", "q/a", "none/a"):
            blobs.delete(key)
        assert blobs.scan("q").blobs == {}

    @pytest.mark.parametrize("key", _FORBIDDEN_KEYS)
    def test_refuses_keys_outside_the_rules(self, blobs: BlobStore, key: str) -> None:
        """Every method checks its key."""
        for use in (blobs.get, blobs.delete, blobs.location, lambda bad: blobs.put(bad, b"x")):
            with pytest.raises(InvalidIdError):
                use(key)

    def test_a_reader_sees_whole_blobs_while_others_put(self, blobs: BlobStore) -> None:
        """Puts are atomic."""
        versions = [bytes([letter]) * 20_000 for letter in b"abcd"]
        blobs.put("q/a", versions[0])
        with ThreadPoolExecutor(4) as threads:
            writing = [threads.submit(blobs.put, "q/a", version) for version in versions * 10]
            seen = {blobs.get("q/a") for _ in range(100)}
            for one in writing:
                one.result()
        assert seen <= set(versions)


class LockingBlobStoreContract(BlobStoreContract):
    """What a `LockingBlobStore` promises beside.

    Its lock timeout must be under a second, since one test waits.
    """

    def test_several_are_put_in_their_order(self, blobs: LockingBlobStore) -> None:
        """`put` of a locked folder stores all and replaces what is there.

        `get` and `delete` see it.
        """
        blobs.put("q/a", b"old and long")
        with blobs.lock("q") as folder:
            folder.put(*((name, name.encode()) for name in "cab"))
            assert [folder.get(name) for name in "cabd"] == [b"c", b"a", b"b", None]
            folder.delete("c", "d")
            folder.put()
        assert list(blobs.get_many("q", ["c", "a", "b"])) == [None, b"a", b"b"]

    def test_none_of_several_is_there_before_those_ahead_of_it(
        self, blobs: LockingBlobStore
    ) -> None:
        """A reader that sees a later one sees the earlier ones."""

        def put(*names: str) -> None:
            with blobs.lock("q") as folder:
                folder.put(*((name, b"1") for name in names))

        with ThreadPoolExecutor(1) as threads:
            for number in range(50):
                first, second = f"{number}-first", f"{number}-second"
                putting = threads.submit(put, first, second)
                while not putting.done():
                    there = list(blobs.get_many("q", [second, first]))
                    assert there[0] is None or there[1] is not None
                putting.result()

    def test_the_lock_lets_one_in_at_a_time(self, blobs: LockingBlobStore) -> None:
        """Exclusive holders exclude each other."""
        inside, most = 0, 0

        def work() -> None:
            nonlocal inside, most
            with blobs.lock("q"):
                inside += 1
                most = max(most, inside)
                blobs.put("q/a", b"1")
                inside -= 1

        with ThreadPoolExecutor(4) as threads:
            for one in [threads.submit(work) for _ in range(40)]:
                one.result()
        assert most == 1

    def test_waiting_for_the_lock_ends_with_an_error(self, blobs: LockingBlobStore) -> None:
        """Waiting ends with LockTimeoutError, and the lock is free afterwards."""
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with blobs.lock("q"):
                held.set()
                done.wait(10)

        with ThreadPoolExecutor(1) as threads:
            holding = threads.submit(hold)
            held.wait(10)
            with pytest.raises(LockTimeoutError), blobs.lock("q"):
                pytest.fail("entered a folder that another holds")
            done.set()
            holding.result()
        with blobs.lock("q"):
            blobs.put("q/a", b"1")

    def test_the_lock_ends_with_an_error_in_its_block(self, blobs: LockingBlobStore) -> None:
        """An error inside the block frees the lock."""
        with pytest.raises(ZeroDivisionError), blobs.lock("q"):
            raise ZeroDivisionError
        with blobs.lock("q"):
            assert blobs.scan("q").blobs == {}
