from concurrent.futures import ThreadPoolExecutor

import pytest

from llm_common.errors import LockTimeoutError
from llm_common.storage import LockingBlobStore, MemoryBlobStore
from llm_common.storage.blob import OWN_FOLDER
from tests.contracts.blob_contract import LockingBlobStoreContract


class TestMemoryBlobStore(LockingBlobStoreContract):
    @pytest.fixture
    def blobs(self) -> LockingBlobStore:
        return MemoryBlobStore(lock_timeout_s=60.0)


def test_only_folders_of_queries_with_blobs_are_listed() -> None:
    blobs = MemoryBlobStore()
    for key in ("q/a", "r/a", f"{OWN_FOLDER}/gone-00"):
        blobs.put(key, b"1")
    blobs.delete("r/a")
    blobs.remove_folder("q")
    assert list(blobs.folders()) == ["q"]
    blobs.delete("q/a")
    blobs.remove_folder("q")
    assert list(blobs.folders()) == []
    assert blobs.get(f"{OWN_FOLDER}/gone-00") == b"1"


def test_a_lock_that_was_not_taken_is_not_given_back() -> None:
    blobs = MemoryBlobStore(lock_timeout_s=2.0)
    with blobs.lock("q"):
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(lambda: blobs.lock("q", timeout_s=0.0).__enter__())
            with pytest.raises(LockTimeoutError, match="held q for 0 s"):
                waiting.result()
        with blobs.lock("r", timeout_s=0.0) as other:
            other.put(("a", b"1"))
            assert other.get("a", max_bytes=1) == b"1"
            assert other.get("b") is None
