"""Contract suites: what every implementation of a protocol must do, as pytest classes to inherit."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from llm_common.errors import InvalidIdError, LockTimeoutError, PointerNotFoundError
from llm_common.storage import BlobStore, BlobVersion, ConditionalBlobStore, LockingBlobStore

__all__ = ["BlobStoreContract", "ConditionalBlobStoreContract", "LockingBlobStoreContract"]

_FORBIDDEN_KEYS = (
    *("", "name", "q/", "/name", "q//name", "a/b/c", "../name", "q/..", "q/.hidden", ".q/name", "q/a b", "q/a\\b"),
    *("q/a\0b", "q/%2e%2e", "q/nul", "CON.x/name", "q/é", "q/name.", "q/" + "a" * 129, " /name", "-q/name"),
)


class BlobStoreContract:
    """What a `BlobStore` promises. Inherit it in a test class whose fixture `blobs` gives a new, empty store."""

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
        assert blobs.list("q") == {"q/a": 3}

    def test_a_missing_blob_is_an_error_that_says_so(self, blobs: BlobStore) -> None:
        """`get` raises PointerNotFoundError."""
        blobs.put("q/a", b"1")
        for key in ("q/b", "other/a"):
            with pytest.raises(PointerNotFoundError):
                blobs.get(key)

    def test_get_many_keeps_the_order_and_marks_gaps(self, blobs: BlobStore) -> None:
        """`get_many` answers for each key, in one folder or several."""
        blobs.put("q/a", b"1")
        blobs.put("r/b", b"2")
        assert list(blobs.get_many(["q/a", "q/no", "r/b", "s/no", "q/a"])) == [b"1", None, b"2", None, b"1"]

    def test_lists_one_folder_in_key_order_with_sizes(self, blobs: BlobStore) -> None:
        """`list` knows keys and sizes of its folder alone."""
        assert blobs.list("q") == {}
        for key in ("q/c", "q/a", "q/b.json", "q2/a"):
            blobs.put(key, key.encode())
        assert list(blobs.list("q").items()) == [("q/a", 3), ("q/b.json", 8), ("q/c", 3)]

    def test_deleting_is_idempotent(self, blobs: BlobStore) -> None:
        """Deleting what is not there is no error."""
        blobs.put("q/a", b"1")
        for key in ("q/a", "q/a", "none/a"):
            blobs.delete(key)
        assert blobs.list("q") == {}

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
    """What a `LockingBlobStore` promises beside; its lock timeout must be under a second, since one test waits."""

    def test_several_are_put_in_their_order(self, blobs: LockingBlobStore) -> None:
        """`put_all` stores all, asks for the next when it is ready for it, and replaces what is there."""
        blobs.put("q/a", b"old and long")
        blobs.put_all("q", ((name, name.encode()) for name in "cab"))
        assert list(blobs.get_many(["q/c", "q/a", "q/b"])) == [b"c", b"a", b"b"]
        blobs.put_all("none", [])
        assert blobs.list("none") == {}
        with pytest.raises(InvalidIdError):
            blobs.put_all("q", [("../a", b"1")])

    def test_none_of_several_is_there_before_those_ahead_of_it(self, blobs: LockingBlobStore) -> None:
        """Whoever sees a later one sees the earlier ones."""
        with ThreadPoolExecutor(1) as threads:
            for number in range(50):
                first, second = f"q/{number}-first", f"q/{number}-second"
                both = ((key.partition("/")[2], b"1") for key in (first, second))
                putting = threads.submit(blobs.put_all, "q", both)
                while not putting.done():
                    there = list(blobs.get_many([second, first]))
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
            assert blobs.list("q") == {}


class ConditionalBlobStoreContract(BlobStoreContract):
    """What a `ConditionalBlobStore` promises beside."""

    def test_a_conditional_put_replaces_the_version_that_is_known(self, blobs: ConditionalBlobStore) -> None:
        """The version of the put that came last is the one that counts."""
        first = blobs.put_if("q/a", b"1", replaces=None)
        assert first is not None
        assert blobs.version("q/a") == first
        assert blobs.get_version("q/a") == (b"1", first)
        second = blobs.put_if("q/a", b"2", replaces=first)
        assert second not in (None, first)
        assert blobs.get_version("q/a") == (b"2", second)

    def test_a_conditional_put_changes_nothing_when_another_version_is_there(self, blobs: ConditionalBlobStore) -> None:
        """Neither a blob that appeared, nor one that was replaced or deleted, is put over."""
        first = blobs.put_if("q/a", b"1", replaces=None)
        assert blobs.put_if("q/a", b"2", replaces=None) is None
        blobs.put("q/a", b"3")
        assert blobs.put_if("q/a", b"4", replaces=first) is None
        assert blobs.get("q/a") == b"3"
        third = blobs.version("q/a")
        blobs.delete("q/a")
        assert blobs.put_if("q/a", b"5", replaces=third) is None
        assert blobs.version("q/a") is None
        assert blobs.put_if("q/a", b"6", replaces=None)

    def test_one_of_several_conditional_puts_wins(self, blobs: ConditionalBlobStore) -> None:
        """Also at the same time."""
        known: BlobVersion | None = None
        with ThreadPoolExecutor(4) as threads:
            for turn in range(10):
                data = [f"{turn} {number}".encode() for number in range(4)]
                stored = list(threads.map(lambda one, known=known: blobs.put_if("q/a", one, replaces=known), data))
                (winner,) = (number for number, version in enumerate(stored) if version)
                known = stored[winner]
                assert blobs.get_version("q/a") == (data[winner], known)

    def test_conditional_methods_check_their_keys_and_say_what_is_missing(self, blobs: ConditionalBlobStore) -> None:
        """As the others do."""
        for use in (blobs.version, blobs.get_version, lambda bad: blobs.put_if(bad, b"x", replaces=None)):
            with pytest.raises(InvalidIdError):
                use("../name")
        assert blobs.version("q/none") is None
        with pytest.raises(PointerNotFoundError):
            blobs.get_version("q/none")
