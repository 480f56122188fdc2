import pytest

from llm_common.storage import LockingBlobStore, MemoryBlobStore
from llm_common.testing import LockingBlobStoreContract


class TestMemoryBlobStore(LockingBlobStoreContract):
    @pytest.fixture
    def blobs(self) -> LockingBlobStore:
        return MemoryBlobStore(lock_timeout_s=0.5)

    def test_location_names_the_key(self) -> None:
        assert MemoryBlobStore().location("q/a") == "memory:q/a"
