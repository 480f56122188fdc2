"""`Inventory`: everything that stands under one query, sorted by the pointer that owns it."""

from contextlib import suppress
from dataclasses import dataclass

from llm_common.errors import CorruptPointerError
from llm_common.pointers.listing import parse_key
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.records import meta_key, parse_meta, result_key
from llm_common.storage import BlobStore

__all__ = ["Inventory", "take_inventory"]


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a query's folder holds.

    Attributes:
        query_id: The query.
        owned: Size of each blob by its key, by the pointer that owns it.
        foreign: Names of what no pointer owns.
        temporaries: Size by name of what killed writers left.
        unsafe: Names under which something stands that is no plain file.
    """

    query_id: str
    owned: dict[str, dict[str, int]]
    foreign: tuple[str, ...]
    temporaries: dict[str, int]
    unsafe: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is there."""
        return not (self.owned or self.foreign or self.unsafe)

    @property
    def impeded(self) -> set[str]:
        """Pointers of which a part cannot be looked at, so that nothing can be said about the rest."""
        keys = (parse_key(f"{self.query_id}/{name}") for name in self.unsafe)
        return {key[0] for key in keys if key}

    @property
    def orphans(self) -> list[str]:
        """Pointers of which there is a result alone."""
        return [
            pointer_id
            for pointer_id, blobs in self.owned.items()
            if list(blobs) == [result_key(self.query_id, pointer_id)] and pointer_id not in self.impeded
        ]

    def pending(self, pointer_id: str) -> list[str]:
        """Keys of the records of a pointer that are not committed."""
        return [key for key in self.owned.get(pointer_id, ()) if key.endswith(".next")]

    def size(self, pointer_id: str) -> int:
        """Bytes of a pointer and its result."""
        return sum(self.owned.get(pointer_id, {}).values())

    def read_pointers(self, blobs: BlobStore) -> list[ContextPointer]:
        """The committed pointers whose record can be read; none of them is verified."""
        known = [one for one, keys in self.owned.items() if meta_key(self.query_id, one) in keys]
        metas = blobs.get_many(meta_key(self.query_id, pointer_id) for pointer_id in known)
        pointers = []
        for pointer_id, meta in zip(known, metas, strict=True):
            with suppress(CorruptPointerError):
                if meta is not None:
                    pointers.append(parse_meta(meta, query_id=self.query_id, pointer_id=pointer_id))
        return pointers


def take_inventory(blobs: BlobStore, query_id: str) -> Inventory:
    """What stands under a query now; empty for an unknown one.

    Raises:
        UnsafePathError: The query's folder is a link or belongs to another user.
        StoreError: It cannot be read.
    """
    survey = blobs.survey(query_id)
    owned: dict[str, dict[str, int]] = {}
    foreign = list(survey.foreign)
    for key, size in survey.sizes.items():
        parsed = parse_key(key)
        if parsed is None:
            foreign.append(key.partition("/")[2])
        else:
            owned.setdefault(parsed[0], {})[key] = size
    return Inventory(query_id, owned, tuple(foreign), survey.temporaries, survey.unsafe)
