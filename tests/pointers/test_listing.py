"""Listings: complete, whoever changed the folder, and cheap if nothing has changed."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.agents import ContextPointer, FileContextPointerStore
from llm_common.errors import CorruptPointerError
from llm_common.pointers.records import parse_meta
from tests.programs import printed

SETTLED_S = 0.12
"""Longer than the time in which the next change might bear the same time stamp."""

SEEN_WITHIN_S = 1.05
"""Until a listing looks for what another program wrote into a file."""

SAVE = """
import asyncio, sys
from llm_common.pointers.store import FileContextPointerStore
store = FileContextPointerStore(sys.argv[1])
asyncio.run(store.save(query_id="q", task_id=None, tool_name="other", args={}, result=1))
"""


async def save(
    files: FileContextPointerStore, number: int = 0, result: object = "x"
) -> ContextPointer:
    return await files.save(
        query_id="q", task_id=None, tool_name="tool", args={"n": number}, result=result
    )


def warm(files: FileContextPointerStore) -> list[ContextPointer]:
    """List a query whose files have settled, so that the listing is cached."""
    time.sleep(SETTLED_S)
    return files.list(query_id="q")


def many(folder: Path, pointer: ContextPointer, count: int) -> None:
    """Copy a pair to other ids, as many as a large query has."""
    result = Path(folder / f"{pointer.pointer_id}.result.json").read_bytes()
    for number in range(count):
        pointer_id = f"{number:012x}"
        copy = pointer.model_copy(update={"pointer_id": pointer_id})
        (folder / f"{pointer_id}.meta.json").write_text(copy.model_dump_json())
        (folder / f"{pointer_id}.result.json").write_bytes(result)


async def test_a_save_by_another_process_shows_in_a_warm_listing_s0_19(
    files: FileContextPointerStore, tmp_path: Path
) -> None:
    many(tmp_path / "q", await save(files), 300)
    assert len(warm(files)) == 301
    printed(SAVE, tmp_path)
    assert "other" in {pointer.tool_name for pointer in files.list(query_id="q")}


async def test_a_repeat_and_a_deletion_show_in_a_warm_listing_s0_05(
    files: FileContextPointerStore,
) -> None:
    first = await save(files, result="old")
    assert warm(files) == [first]
    other = FileContextPointerStore(files.base_dir, durability="rename")
    second = await save(other, result="new")
    assert files.list(query_id="q") == [second]
    warm(files)
    other.delete(query_id="q")
    assert files.list(query_id="q") == []


async def test_an_edit_by_another_program_shows_within_a_second_f_055(
    files: FileContextPointerStore,
) -> None:
    damaged, cut, edited = [await save(files, number, result="long enough") for number in range(3)]
    assert warm(files) == warm(files) == [damaged, cut, edited]
    folder = files.base_dir / "q"
    (folder / f"{damaged.pointer_id}.meta.json").write_text("{")
    (folder / f"{cut.pointer_id}.result.json").write_text("{")
    meta = folder / f"{edited.pointer_id}.meta.json"
    before = meta.stat()
    meta.write_text(meta.read_text().replace('"tool"', '"fool"'))
    # a time that is set back hides no change
    os.utime(meta, ns=(before.st_atime_ns, before.st_mtime_ns))
    await asyncio.sleep(SEEN_WITHIN_S)
    listing = files.list_detailed(query_id="q")
    assert ([listed.tool_name for listed in listing.pointers], listing.skipped) == (["fool"], 2)


FIELDS: dict[str, Any] = {
    "pointer_id": "0" * 12,
    "query_id": "q",
    "task_id": None,
    "tool_name": "t",
    "args": {"n": 1},
    "created_at": "2026-01-01T00:00:00.000000+00:00",
    "summary": "s",
    "result_path": "/p",
    "source_urls": ["https://a.example"],
    "result_bytes": 3,
    "result_sha256": "0" * 64,
    "digest": "d",
    "args_sha256": "0" * 64,
    "expires_at": None,
    "renew_s": None,
    "pinned": False,
    "savers": [],
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "q", "3", "true", "0" * 12]),
    st.lists(st.one_of(st.text(max_size=2), st.integers(), st.none()), max_size=2),
    st.dictionaries(
        st.text(max_size=2), st.integers(-(2**70), 2**70) | st.floats(allow_nan=False), max_size=2
    ),
)


@given(
    st.dictionaries(st.sampled_from([*FIELDS, "new"]), ODD, max_size=3),
    st.sets(st.sampled_from([*FIELDS])),
)
def test_a_record_is_read_as_validation_reads_it(
    changes: dict[str, Any], missing: set[str]
) -> None:
    fields = {
        name: value
        for name, value in (FIELDS | changes).items()
        if name not in missing or name in changes
    }
    data = json.dumps(fields).encode()
    try:
        expected = ContextPointer.model_validate(json.loads(data))
    except ValueError:
        expected = None
    if expected is None or (expected.query_id, expected.pointer_id) != ("q", "0" * 12):
        with pytest.raises(CorruptPointerError):
            parse_meta(data, query_id="q", pointer_id="0" * 12)
        return
    read = parse_meta(data, query_id="q", pointer_id="0" * 12)
    assert read == expected
    assert repr(read) == repr(expected)
    assert read.model_fields_set == expected.model_fields_set
    assert read.model_dump_json() == expected.model_dump_json()
    assert read.model_copy(update={"summary": "other"}).summary == "other"
    with pytest.raises(ValueError, match="frozen"):
        read.summary = "other"  # type: ignore[misc]


def test_the_records_of_this_test_have_every_field() -> None:
    assert [*FIELDS] == [*ContextPointer.model_fields]
