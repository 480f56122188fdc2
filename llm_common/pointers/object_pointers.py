"""`ObjectContextPointerStore`: results in an object store, for agents on many machines."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, Unpack

from llm_common.pointers.store import DEFAULT_MAX_RESULT_BYTES, ContextPointerStore, StoreOptions
from llm_common.redaction.redactor import DEFAULT_REDACTOR, Redactor
from llm_common.storage.object_store import ObjectBlobStore, open_object_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["ObjectContextPointerStore"]


class ObjectContextPointerStore(ContextPointerStore):
    """A `ContextPointerStore` of objects: `prefix/query_id/{pointer_id}.meta.json` and `….result.json`.

    The keys and their contents are those of the file store, so a folder can be copied from one to the other while
    nobody saves. Any number of processes on any number of machines save and read at the same time without a lock;
    `ConditionalPointerRecords` says how. Needs a store that keeps conditional puts: S3, Google Cloud Storage, Azure,
    most of what speaks S3, and obstore's memory; the first save fails on one that does not, such as a local directory.
    A first save takes five requests, one after the other, a later one six, a load two.

    Args:
        store: An obstore store; its prefix is the root of the keys.
        **options: Limits, redaction, lifetime and clock; see `ContextPointerStore`.
    """

    def __init__(self, store: "ObjectStore", **options: Unpack[StoreOptions]) -> None:
        super().__init__(ObjectBlobStore(store), **options)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
        redactor: Redactor = DEFAULT_REDACTOR,
        redact_results: bool = False,
        ttl_s: float | None = None,
        max_bytes_per_query: int | None = None,
        clock: Callable[[], datetime] | None = None,
        **options: Any,
    ) -> Self:
        """The store at an address such as `s3://bucket/prefix`; see `open_object_store` for the options.

        Raises:
            StoreError: No store that obstore knows, or an option that it does not.
        """
        return cls(
            open_object_store(url, **options),
            max_result_bytes=max_result_bytes,
            redactor=redactor,
            redact_results=redact_results,
            ttl_s=ttl_s,
            max_bytes_per_query=max_bytes_per_query,
            clock=clock,
        )
