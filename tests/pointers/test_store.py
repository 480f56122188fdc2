import asyncio
import hashlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster, BlockingError, blockbuster_ctx
from hypothesis import given, strategies as st
from pydantic import BaseModel

from llm_common.agents import (
    ContextPointer,
    ContextPointerStore,
    FileContextPointerStore,
    InMemoryContextPointerStore,
    ToolContextManager,
    compute_pointer_id,
    format_selected_contexts,
)
from llm_common.core import UpperBoundCounter
from llm_common.errors import (
    InvalidIdError,
    PointerNotFoundError,
    StoreError,
    UnserialisableError,
)
from llm_common.pointers.pointer import digest_of
from llm_common.pointers.reading import read_payload
from llm_common.pointers.records import LockedRecords
from llm_common.redaction.patterns import REDACTED
from llm_common.redaction.redactor import Redactor
from llm_common.storage import FileBlobStore, MemoryBlobStore
from tests.forking import held_by_a_thread, run_in_child
from tests.loop_cpu import longest_tick_s
from tests.pointers.conftest import Open
from tests.pointers.names import meta_key, result_key


@pytest.fixture
def store(tmp_path: Path) -> FileContextPointerStore:
    return FileContextPointerStore(tmp_path / "base", durability="rename")


async def save(
    store: ContextPointerStore, result: Any = "result", /, **changes: Any
) -> ContextPointer:
    call: dict[str, Any] = {
        "query_id": "q",
        "task_id": "t",
        "tool_name": "tool",
        "args": {"query": "x"},
    }
    return await store.save(**(call | {"result": result} | changes))


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def stored(pointer: ContextPointer) -> bytes:
    return Path(pointer.result_path).read_bytes()


async def test_layout_on_disk_s0_10(store: FileContextPointerStore) -> None:
    result = {"rows": [1, 2.5, None]}
    args = {"query": "x", "when": date(2025, 1, 2)}
    pointer = await save(store, result, query_id="_pointers", args=args)
    assert pointer.pointer_id == compute_pointer_id(
        tool_name="tool", args=args | {"when": "2025-01-02"}, query_id="_pointers", task_id="t"
    )
    assert pointer.digest == "object of 1: rows, 21 bytes; rows 1, rows 2.5"
    assert pointer.result_bytes == 21
    assert sorted(tree(store.base_dir / "_pointers")) == [
        ".lock",
        f"{pointer.pointer_id}.meta.json",
        f"{pointer.pointer_id}.result.json",
    ]
    assert pointer.result_path == str(
        store.base_dir / "_pointers" / f"{pointer.pointer_id}.result.json"
    )
    assert stored(pointer) == b'{"rows":[1,2.5,null]}'


@pytest.mark.parametrize(
    ("variable", "argument", "expected"),
    [
        (None, None, ".llm-common/context"),
        ("", None, ".llm-common/context"),
        ("  ", None, ".llm-common/context"),
        ("else", None, "else"),
        ("else", "given", "given"),
        ("~/a", None, "home/a"),
        (None, "~/b", "home/b"),
    ],
)
def test_the_base_comes_from_the_argument_or_the_environment_s0_10(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
    argument: str | None,
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    if variable is not None:
        monkeypatch.setenv("LLM_COMMON_POINTER_STORE_DIR", variable)
    assert FileContextPointerStore(argument).base_dir == tmp_path / expected
    assert not any(tmp_path.iterdir())


def test_a_new_default_store_is_ignored_by_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    store = FileContextPointerStore()
    pointer = asyncio.run(save(store))
    assert (tmp_path / ".llm-common" / "context" / ".gitignore").read_text() == "*\n"
    status = subprocess.run(
        ["git", "status", "--porcelain"], check=True, capture_output=True, text=True
    )
    assert status.stdout == ""
    assert [listed.pointer_id for listed in store.list(query_id="q")] == [pointer.pointer_id]
    assert asyncio.run(store.verify()).findings == ()


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_that_the_user_chose_or_had_gets_no_gitignore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, exists: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    if exists:
        (tmp_path / ".llm-common" / "context").mkdir(parents=True)
    asyncio.run(save(FileContextPointerStore(None if exists else tmp_path / "chosen")))
    assert not [*tmp_path.rglob(".gitignore")]


async def test_the_result_path_is_information_only_f_022_f_015(
    store: FileContextPointerStore, tmp_path: Path
) -> None:
    evil = tmp_path / "base-evil" / "x"
    evil.parent.mkdir()
    evil.write_text('"outside"')
    pointer = await save(store)
    for path in ("/etc/passwd", str(evil), ""):
        meta = store.base_dir / "q" / f"{pointer.pointer_id}.meta.json"
        meta.write_text(json.dumps(pointer.model_dump() | {"result_path": path}))
        assert store.load_result(pointer=store.list(query_id="q")[0]) == "result"
        assert (
            store.load_result(pointer=pointer.model_copy(update={"result_path": path})) == "result"
        )


async def test_a_moved_store_still_loads_s0_12_f_029(
    store: FileContextPointerStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer = await save(store)
    store.base_dir.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    moved = FileContextPointerStore("moved")
    monkeypatch.chdir("/")
    assert (
        moved.load_result(pointer=pointer)
        == moved.load_result(pointer=moved.list(query_id="q")[0])
        == "result"
    )


class Colour(Enum):
    RED = "red"


class ToolResult(BaseModel):
    success: bool = True
    data: Any = None
    source_urls: list[str] = []


@dataclass
class Output:
    data: dict[str, Any]
    source_urls: list[str]


async def test_objects_are_stored_as_structure_with_their_sources_s0_13_f_038(
    store: FileContextPointerStore,
) -> None:
    data = {
        "day": date(2025, 1, 2),
        "tags": {"b", "a"},
        "colour": Colour.RED,
        "path": Path("a"),
        "raw": b"x",
    }
    plain = {
        "day": "2025-01-02",
        "tags": ["a", "b"],
        "colour": "red",
        "path": "a",
        "raw": {"base64": "eA=="},
    }
    for kind in (ToolResult, Output):
        pointer = await save(store, kind(data=data, source_urls=["https://example.com/1"]))
        assert store.load_result(pointer=pointer)["data"] == plain
        assert pointer.source_urls == ["https://example.com/1"]


async def test_nothing_on_disk_is_revived_s0_13_f_042_f_043(
    store: FileContextPointerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "CANARY")
    for marker in (
        {"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]},
        {"__class__": "os.system", "__reduce__": ["os.system", ["true"]], "__proto__": {}},
        {"__bytes_b64__": "YQ=="},
        {"base64": "YQ=="},
    ):
        pointer = await save(store, marker, args={"m": marker})
        assert store.load_result(pointer=pointer) == marker
        assert [one.args for one in store.list(query_id="q") if one == pointer] == [{"m": marker}]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(json_values, st.dictionaries(st.text(max_size=5), json_values, max_size=3))
def test_loads_the_json_form_s0_14(result: Any, args: dict[str, Any]) -> None:
    store = InMemoryContextPointerStore()
    pointer = asyncio.run(save(store, result, args=args))
    assert store.load_result(pointer=pointer) == json.loads(json.dumps(result))
    assert store.list(query_id="q") == [pointer]


async def test_large_and_odd_results_survive_s0_14_f_032_f_033_f_044(
    store: FileContextPointerStore,
) -> None:
    for result in (
        None,
        "x" * 10_000_000,
        "\u2028é😀",
        2**200,
        10**4000,
        {"\ud800": 1},
        [[0]] * 6_000,
        [2**64 - 1, -(2**63), 1e300],
        {"n": -(2**63) - 1},
        [-(10**40)],
    ):
        pointer = await save(store, result)
        assert repr(store.load_result(pointer=pointer)) == repr(json.loads(json.dumps(result)))
    pointer = await save(store, {"n": math.nan, "d": date(2025, 1, 2)})
    assert store.load_result(pointer=pointer) == {"n": None, "d": "2025-01-02"}
    assert stored(pointer) == b'{"n":null,"d":"2025-01-02"}'


def generator() -> Iterator[int]:
    yield 1


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


class Raises:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(CYCLE, id="F-035"),
        pytest.param(Raises(), id="F-036"),
        pytest.param(generator(), id="F-037"),
        pytest.param(10**5000, id="F-044"),
    ],
)
async def test_what_cannot_be_stored_leaves_no_trace(
    store: FileContextPointerStore, value: Any
) -> None:
    with pytest.raises(UnserialisableError):
        await save(store, value)
    with pytest.raises(UnserialisableError):
        await save(store, args={"a": value})
    assert not store.base_dir.exists()


@pytest.mark.parametrize("size", [100, 50_000], ids=["small", "large"])
async def test_a_result_changed_during_the_save_is_stored_whole_f_041(
    store: FileContextPointerStore, size: int
) -> None:
    old, new = [0] * size, [1] * size
    for _ in range(10):
        result = {"rows": list(old)}
        saving = asyncio.create_task(save(store, result))
        await asyncio.sleep(0)
        result["rows"][:] = new
        assert store.load_result(pointer=await saving)["rows"] in (old, new)


@pytest.mark.parametrize("inner", [False, True], ids=["F-041-outer", "F-041-inner"])
async def test_a_growing_mapping_is_stored_or_refused(
    store: FileContextPointerStore, inner: bool
) -> None:
    before, outcomes = sys.getswitchinterval(), list[object]()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(8):
            rows: dict[str, object] = {str(row): "x" * 3_000 for row in range(100)}
            saving = asyncio.create_task(
                save(store, {"rows": rows} if inner else rows, args={"number": number})
            )
            await asyncio.sleep(0)
            while not saving.done():
                for _ in range(50):
                    rows[f"more {len(rows)}"] = 1
                await asyncio.sleep(0)
            [outcome] = await asyncio.gather(saving, return_exceptions=True)
            outcomes.append(outcome)
    finally:
        sys.setswitchinterval(before)
    assert {type(outcome) for outcome in outcomes} <= {ContextPointer, UnserialisableError}
    assert [
        store.load_result(pointer=each) for each in outcomes if isinstance(each, ContextPointer)
    ]


async def test_sources_are_distinct_web_addresses_s0_15(store: FileContextPointerStore) -> None:
    given_urls = [
        "https://a.example/1",
        "ftp://x",
        "javascript:alert(1)",
        "https://a.example/1",
        "HTTP://B.example",
        5,
    ]
    result = {
        "source_urls": [
            "https://c.example",
            "https://a.example/1",
            "file:///etc/passwd",
            None,
            "https://a b",
        ]
    }
    pointer = await save(store, result, source_urls=given_urls)
    assert pointer.source_urls == ["https://a.example/1", "HTTP://B.example", "https://c.example"]
    many = await save(store, source_urls=[f"https://example.com/{number}" for number in range(80)])
    assert many.source_urls == [f"https://example.com/{number}" for number in range(50)]
    assert (await save(store, source_urls=["https://example.com/" + "x" * 3000])).source_urls == []


async def test_repeated_sources_do_not_count_towards_the_fifty_s0_15(
    store: FileContextPointerStore,
) -> None:
    others = [f"https://example.com/{number}" for number in range(49)]
    urls = ["https://a.example"] * 60 + others
    pointer = await save(store, {"source_urls": ["https://late.example"]}, source_urls=urls)
    assert pointer.source_urls == ["https://a.example", *others]


@pytest.mark.parametrize(
    ("urls", "most", "kept"),
    [
        (["https://example.com/a"] * 100_000, 1, 1),
        ([f"https://example.com/{number}" for number in range(100_000)], 50, 50),
        ([f"https://example.com/?api_key=sk-{number:020}" for number in range(100_000)], 500, 1),
    ],
    ids=["one address", "distinct", "distinct secrets"],
)
async def test_few_of_many_sources_are_redacted_s0_15(
    tmp_path: Path, urls: list[str], most: int, kept: int
) -> None:
    redacted: list[str] = []

    class CountingRedactor(Redactor):
        def text(self, text: str) -> str:
            redacted.append(text)
            return Redactor.text(self, text)

    store = FileContextPointerStore(tmp_path, redactor=CountingRedactor())
    pointer = await save(store, source_urls=urls)
    assert len(pointer.source_urls) == kept
    assert sum(text.startswith("https://") for text in redacted) == most


async def test_meta_never_contains_the_result_s0_16(store: FileContextPointerStore) -> None:
    pointer = await save(store, {"text": "word " * 200_000, "rows": [{"k" * 500: "v" * 500}] * 500})
    assert (store.base_dir / meta_key("q", pointer.pointer_id)).stat().st_size < 8_192


async def test_large_arguments_are_cut_and_keep_their_digest_s0_16(
    store: FileContextPointerStore,
) -> None:
    args = {"text": "x" * 9_000, "n": 5, **{f"key{number}": "y" * 900 for number in range(100)}}
    pointer = await save(store, args=args)
    assert (store.base_dir / meta_key("q", pointer.pointer_id)).stat().st_size < 8_192
    assert pointer.args["text"] == "x" * 119 + "…"
    assert pointer.args["n"] == 5
    assert store.list(query_id="q") == [pointer]
    assert await save(store, "new", args=dict(reversed(args.items()))) != pointer
    assert len(store.list(query_id="q")) == 1
    whole = await save(store, args={"text": "x" * 8_000})
    assert whole.args == {"text": "x" * 8_000}


def nested(leaf: object, levels: int) -> object:
    """Nest a leaf in alternating objects and lists, with an object outermost."""
    for level in range(levels):
        leaf = {"a": leaf} if (levels - level) % 2 else [leaf]
    return leaf


def args_of(size: int) -> dict[str, Any]:
    """Return arguments of so many bytes of JSON."""
    return {"text": "x" * (size - len('{"text":"","n":5}')), "n": 5}


@pytest.mark.parametrize(
    ("args", "is_kept"),
    [
        pytest.param(args_of(8_192), True, id="8192-bytes"),
        *(
            pytest.param(args_of(size), False, id=f"{size}-bytes")
            for size in (8_193, 20_000, 79_000)
        ),
        pytest.param({"text": nested("leaf", 99), "n": 5}, True, id="100-levels"),
        pytest.param({"text": nested("leaf", 100), "n": 5}, False, id="101-levels"),
    ],
)
async def test_arguments_over_8_kilobytes_or_100_levels_are_cut_s0_16(
    store: FileContextPointerStore, args: dict[str, Any], is_kept: bool
) -> None:
    pointer = await save(store, args=args)
    assert (pointer.args == args) is is_kept
    assert is_kept or isinstance(pointer.args["text"], str)
    assert pointer.args["n"] == 5
    assert pointer.args_sha256 == digest_of(args)
    assert store.list(query_id="q") == [pointer]


@pytest.mark.parametrize("unknown", [{"query_id": "other"}, {"pointer_id": "0" * 12}], ids=str)
async def test_a_pin_of_an_unknown_pointer_creates_no_folder(
    store: FileContextPointerStore, unknown: dict[str, str]
) -> None:
    pointer = await save(store)
    before = tree(store.base_dir)
    for change in (store.pin, store.unpin):
        with pytest.raises(PointerNotFoundError):
            change(pointer.model_copy(update=unknown))
    assert not (store.base_dir / "other").exists()
    assert tree(store.base_dir) == before


SECRET_NAMES = {
    "tool_name": "fetch api_key=hunter2CANARY9f3a",
    "task_id": "t Bearer hunter2CANARY9f3aABCDEF0123456789",
}


async def test_names_are_stored_without_their_secrets_f_046(
    store: FileContextPointerStore,
) -> None:
    pointer = await save(store, "first", **SECRET_NAMES)
    assert "hunter2CANARY" not in str(pointer) + str(tree(store.base_dir))
    assert pointer.tool_name.startswith("fetch api_key=")
    assert pointer.pointer_id == compute_pointer_id(
        args={"query": "x"}, query_id="q", **SECRET_NAMES
    )
    assert store.list(query_id="q") == [pointer]
    again = await save(store, "second", **SECRET_NAMES)
    assert (again.pointer_id, again.tool_name) == (pointer.pointer_id, pointer.tool_name)
    assert store.load_result(pointer=pointer) == "second"
    kept = await save(store, "third", keep_repeats=True, **SECRET_NAMES)
    assert kept.pointer_id == pointer.pointer_id + "0001"
    assert store.pin(again).pinned
    other = await save(
        store, "other", **(SECRET_NAMES | {"tool_name": "fetch api_key=hunter3CANARY9f3a"})
    )
    assert other.tool_name == pointer.tool_name
    assert len(store.list(query_id="q")) == 3


async def test_a_call_stored_with_its_secrets_is_recognised_s0_04(
    store: FileContextPointerStore,
) -> None:
    pointer = await save(store, "first", **SECRET_NAMES)
    old = pointer.model_copy(update=SECRET_NAMES)  # as version 1.0.0 stored it
    (store.base_dir / meta_key("q", pointer.pointer_id)).write_text(
        old.model_dump_json(), encoding="utf-8"
    )
    again = await save(store, "second", **SECRET_NAMES)
    assert again.pointer_id == pointer.pointer_id
    assert store.list(query_id="q") == [again]


WRONG_KINDS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"tool_name": None}, InvalidIdError, "tool_name must be a str .* got NoneType"),
    ({"tool_name": 5}, InvalidIdError, "tool_name must be a str .* got int"),
    ({"tool_name": "t" * 100_001}, InvalidIdError, "got 100,001 characters"),
    ({"task_id": b"x"}, InvalidIdError, "task_id must be a str .* got bytes"),
    ({"task_id": True}, InvalidIdError, "task_id must be a str .* got bool"),
    ({"task_id": 1.5}, InvalidIdError, "task_id must be a str .* got float"),
    ({"query_id": None}, InvalidIdError, "of type NoneType"),
    (
        {"query_id": "What is AAPL revenue?"},
        InvalidIdError,
        "'What is AAPL revenue\\?'.*hash_query",
    ),
    ({"args": None}, UnserialisableError, "args must be a mapping, got NoneType"),
    ({"args": "x"}, UnserialisableError, "args must be a mapping, got str"),
    ({"source_urls": 5}, UnserialisableError, "source_urls must be a list, got int"),
    (
        {"source_urls": "https://x.org"},
        UnserialisableError,
        "source_urls must be a list, got str",
    ),
    ({"ttl_s": 0}, ValueError, "ttl_s must be above 0, got -?[0-9.]*"),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), WRONG_KINDS)
async def test_a_save_of_the_wrong_kind_says_what_to_pass_f_159(
    store: FileContextPointerStore, wrong: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        await save(store, **wrong)
    assert not store.base_dir.exists()


WRONG_POINTERS: list[tuple[Callable[[Any], object], str]] = [
    (lambda store: store.load_result(pointer="0" * 12), "must be a ContextPointer, got str"),
    (lambda store: store.pin("0" * 12), "must be a ContextPointer, got str"),
    (lambda store: store.delete(query_id="q", pointer_ids="0" * 12), "Pass \\[pointer_id\\]"),
    (lambda store: store.load_payload(5, query_id="q"), "got int"),
]


@pytest.mark.parametrize(("use", "text"), WRONG_POINTERS, ids=["load", "pin", "delete", "payload"])
def test_an_id_instead_of_a_pointer_is_named(
    store: FileContextPointerStore, use: Callable[[Any], object], text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        use(store)


@pytest.mark.parametrize("leaf", ["leaf", ["1" * 30, 2**70], {"password": "hunter2hunter2"}])
@pytest.mark.parametrize("options", [{}, {"redact_results": True}], ids=["plain", "redacted"])
async def test_results_of_250_levels_are_stored_and_deeper_ones_refused_s0_14(
    tmp_path: Path, leaf: object, options: dict[str, Any]
) -> None:
    levels = 250 - (not isinstance(leaf, str))
    store = FileContextPointerStore(tmp_path, durability="rename", **options)
    with pytest.raises(UnserialisableError, match="deeper than 250 levels"):
        await save(store, nested(leaf, levels + 1))
    assert store.list(query_id="q") == []
    assert store.queries() == []
    pointer = await save(store, nested(leaf, levels))
    is_secret = bool(options) and isinstance(leaf, dict)
    kept = {"password": "[redacted]"} if is_secret else leaf
    assert store.load_result(pointer=pointer) == nested(kept, levels)


def rewrite(pointer: ContextPointer, text: str) -> None:
    """Replace a stored result, as if another version had stored it."""
    result = Path(pointer.result_path)
    result.write_text(text, encoding="utf-8")
    [meta] = result.parent.glob("*.meta.json")
    digest = hashlib.sha256(text.encode()).hexdigest()
    changes = {"result_sha256": digest, "result_bytes": len(text)}
    meta.write_text(json.dumps(json.loads(meta.read_text()) | changes), encoding="utf-8")


@pytest.mark.parametrize("levels", [300, 490, 990])
async def test_deeper_results_of_older_versions_are_read_s0_14(
    files: FileContextPointerStore, tmp_path: Path, levels: int
) -> None:
    text = '{"a":[' * (levels // 2) + str(2**70) + "]}" * (levels // 2)
    pointer = await save(files, "as an earlier version stored it")
    rewrite(pointer, text)
    [pointer] = FileContextPointerStore(tmp_path).list(query_id="q")
    loaded: Any = files.load_result(pointer=pointer)
    for _ in range(levels // 2):
        loaded = loaded["a"][0]
    assert loaded == 2**70
    reading = read_payload(
        *files.load_payload(pointer.pointer_id, query_id="q"),
        max_tokens=9_000,
        counter=UpperBoundCounter(),
    )
    assert reading.text == text
    if levels < 900:  # as deep as `json.dumps` writes it again
        assert text in format_selected_contexts(pointers=[pointer], store=files)
    assert (await files.verify()).is_clean


async def test_a_base_that_is_a_file_is_named_f_025(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for base, text in (("file", "is not a directory"), ("file/base", "file/base/q")):
        with pytest.raises(StoreError, match=text) as caught:
            await save(FileContextPointerStore(tmp_path / base))
        assert str(tmp_path / "file") in str(caught.value)


def test_windows_users_are_told_the_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(
        StoreError,
        match=r"needs a POSIX .* InMemoryContextPointerStore or ObjectContextPointerStore",
    ):
        FileContextPointerStore()
    InMemoryContextPointerStore()


CANARY = "hunter2CANARY9f3a"


async def test_secrets_stay_in_the_result_f_046(
    store: FileContextPointerStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    args = {
        "api_key": CANARY,
        "query": f"Bearer {CANARY}",
        "url": f"https://u:{CANARY}@h.example/?token={CANARY}",
    }
    result = {
        "password": CANARY,
        "text": f"api_key={CANARY}",
        "source_urls": [f"https://h.example/?sig={CANARY}"],
    }
    pointer = await save(store, result, args=args)
    store.list(query_id="q")
    assert CANARY not in pointer.model_dump_json()
    assert CANARY not in caplog.text
    assert [name for name, data in tree(store.base_dir).items() if CANARY.encode() in data] == [
        f"q/{pointer.pointer_id}.result.json"
    ]
    assert pointer.pointer_id == compute_pointer_id(
        tool_name="tool", args=args, query_id="q", task_id="t"
    )
    assert await save(store, "other", args=args | {"api_key": "another"}) != pointer
    assert len(store.list(query_id="q")) == 2


async def test_repeats_are_numbered_in_hexadecimal_s0_05(store: FileContextPointerStore) -> None:
    kept = [await save(store, number, keep_repeats=True) for number in range(24)]
    assert store.list(query_id="q") == kept
    assert kept[-1].pointer_id == kept[0].pointer_id + "0017"


@pytest.mark.parametrize("other", [{"tool_name": "other"}, {"task_id": "other"}, {"task_id": None}])
async def test_a_different_call_is_never_replaced_s0_04(other: dict[str, Any]) -> None:
    blobs = MemoryBlobStore()
    store = ContextPointerStore(LockedRecords(blobs))
    pointer = await save(store, "mine")
    squatter = pointer.model_copy(update=other)
    blobs.put(meta_key("q", pointer.pointer_id), squatter.model_dump_json().encode())
    longer = await save(store, "mine again")
    assert len(longer.pointer_id) == 16
    assert longer.pointer_id.startswith(pointer.pointer_id)
    assert [store.load_result(pointer=one) for one in store.list(query_id="q")] == [
        "mine",
        "mine again",
    ]
    assert (await save(store, "and again", keep_repeats=True)).pointer_id == longer.pointer_id
    blobs.put(
        meta_key("q", longer.pointer_id),
        longer.model_copy(update={"args_sha256": "0" * 64}).model_dump_json().encode(),
    )
    with pytest.raises(StoreError, match="Two other calls"):
        await save(store, "no room")


async def test_a_legacy_call_is_recognised_by_its_arguments_s0_04(
    store: FileContextPointerStore,
) -> None:
    write_legacy(store.base_dir, "24248a36f5e3", args={"ticker": "AAPL", "limit": 5})
    pointer = await save(store, "new", args={"limit": 5, "ticker": "AAPL"})
    assert pointer.pointer_id == "24248a36f5e3"
    assert store.list(query_id="q") == [pointer]


def write_legacy(base: Path, pointer_id: str, **changes: Any) -> ContextPointer:
    """Write a pair as the earlier implementation did: indented, only fields of the spec."""
    fields = {
        "pointer_id": pointer_id,
        "query_id": "q",
        "task_id": "t",
        "tool_name": "tool",
        "args": {},
        "created_at": "2024-05-06T07:08:09+00:00",
        "summary": "tool",
        "result_path": "/gone/result.json",
        "source_urls": [],
    } | changes
    folder = base / "q"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{pointer_id}.meta.json").write_text(json.dumps(fields, indent=2))
    (folder / f"{pointer_id}.result.json").write_text(json.dumps({"old": [1]}, indent=2))
    return ContextPointer.model_validate(fields)


def test_files_of_an_older_version_load_unverified_with_a_warning_f_049(
    store: FileContextPointerStore, caplog: pytest.LogCaptureFixture
) -> None:
    pointer = write_legacy(store.base_dir, "deadbeefcafe")
    assert store.list(query_id="q") == [pointer]
    assert not caplog.records
    assert store.load_result(pointer=pointer) == {"old": [1]}
    assert "no SHA-256 to verify" in caplog.text


async def test_unknown_fields_of_a_newer_version_are_accepted_f_048(
    store: FileContextPointerStore,
) -> None:
    pointer = await save(store)
    meta = store.base_dir / meta_key("q", pointer.pointer_id)
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"ttl_s": 5, "new": {"a": 1}}))
    assert store.list(query_id="q") == [pointer]
    assert store.load_result(pointer=pointer) == "result"


def test_a_missing_directory_has_no_pointers_s0_19(store: FileContextPointerStore) -> None:
    assert store.list(query_id="never") == []
    assert not store.base_dir.exists()


def test_order_is_by_time_then_id_s0_19_f_057(store: FileContextPointerStore) -> None:
    times = {
        "aaaaaaaaaaa1": "2025-01-01T00:00:00.000002+00:00",
        "aaaaaaaaaaa2": "2025-01-01T00:00:00+00:00",
        "aaaaaaaaaaa4": "2025-01-01T00:00:00.000001+00:00",
        "aaaaaaaaaaa3": "2025-01-01T00:00:00.000001+00:00",
        "aaaaaaaaaaa5": "2025-01-01T01:00:00+02:00",
        "aaaaaaaaaaa6": "now",
    }
    for pointer_id, moment in times.items():
        write_legacy(store.base_dir, pointer_id, created_at=moment)
    assert [pointer.pointer_id[-1] for pointer in store.list(query_id="q")] == [
        "5",
        "2",
        "3",
        "4",
        "1",
        "6",
    ]


async def test_every_save_has_its_time_in_utc_and_microseconds_s0_05_s0_19(
    store: FileContextPointerStore,
) -> None:
    first = await save(store)
    before = datetime.now(UTC)
    created_at = (await save(store)).created_at
    assert len(created_at) == len("2025-01-01T00:00:00.000000+00:00")
    assert first.created_at < created_at
    assert before <= datetime.fromisoformat(created_at) <= datetime.now(UTC)


@pytest.mark.parametrize("size", [100, 400_000], ids=["small", "large"])
async def test_saving_never_blocks_the_event_loop_s0_20(open_store: Open, size: int) -> None:
    with blockbuster_ctx() as detector:
        assert isinstance(detector, BlockBuster)
        store = open_store()
        pointer = await save(store, {"text": "x" * size})
        await save(store, {"text": "y" * size})
    assert store.load_result(pointer=pointer) == {"text": "y" * size}


@pytest.mark.parametrize(
    "args",
    [
        pytest.param({"content": "token = {" * 110_000}, id="dense"),
        pytest.param({"content": "password=" * 220_000}, id="2-megabytes"),
        pytest.param({f"name{number}": "token" for number in range(30_000)}, id="30,000-names"),
        pytest.param({"rows": {f"name{n}": "token" for n in range(30_000)}}, id="within-a-name"),
    ],
)
async def test_large_arguments_are_redacted_in_the_thread_s0_20(
    store: FileContextPointerStore, args: dict[str, Any]
) -> None:
    busy_s, pointer = await longest_tick_s(save(store, args=args))
    assert busy_s < 0.1
    assert pointer.args_sha256 == digest_of(args)


def locked(store: FileContextPointerStore) -> AbstractContextManager[None]:
    """Have another thread hold the lock of the query during the block."""
    return held_by_a_thread(FileBlobStore(store.base_dir).lock("q"))


async def test_arguments_changed_during_a_save_are_stored_unchanged(
    store: FileContextPointerStore,
) -> None:
    row = {"n": 1}
    args = {"rows": [row], "ratio": math.nan}
    original = digest_of(args)
    with locked(store):
        # These wait in all threads of the store, so the save after them only starts later.
        others = [asyncio.create_task(save(store, n, args={"n": n})) for n in range(4)]
        await asyncio.sleep(0)
        saving = asyncio.create_task(save(store, args=args))
        await asyncio.sleep(0)
        row["n"] = 2
    await asyncio.gather(*others)
    pointer = await saving
    assert pointer.args == {"rows": [{"n": 1}], "ratio": None}
    assert pointer.args_sha256 == original


@dataclass
class Failure:
    error: str


async def test_a_long_error_is_redacted_in_the_thread(store: FileContextPointerStore) -> None:
    failed = Failure("password=" * 220_000)
    busy_s, shown = await longest_tick_s(store.as_stored(failed))
    assert busy_s < 0.1
    assert shown == {"error": f"{'password=' * 10}{REDACTED}"}
    succeeded = ToolResult(data="password=hunter2-x")
    assert await store.as_stored(succeeded) is succeeded


async def test_the_twins_never_block_the_event_loop(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path / "base", durability="rename")
    session = ToolContextManager(pointer_store=store)
    pointer = await save(store, {"text": "x"})
    own = await session.save_context("tool", {}, "x" * 100)
    with blockbuster_ctx():
        with pytest.raises(BlockingError):
            store.load_result(pointer=pointer)
        assert [one.pointer_id for one in await store.alist(query_id="q")] == [pointer.pointer_id]
        assert await store.aload_result(pointer=pointer) == {"text": "x"}
        assert await session.aload_result(pointer=own) == "x" * 100
        assert await store.adelete(query_id="q") == 1


async def test_the_event_loop_runs_while_a_save_waits_s0_20(
    store: FileContextPointerStore,
) -> None:
    with locked(store):
        saving = asyncio.create_task(save(store))
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert not saving.done()
    await saving


async def test_a_save_cancelled_while_waiting_stores_nothing_f_068_s0_20(
    store: FileContextPointerStore,
) -> None:
    for _ in range(3):
        with locked(store):
            # all threads of the store
            saves = [asyncio.create_task(save(store, n, args={"n": n})) for n in range(4)]
            await asyncio.sleep(0.05)
            for saving in saves:
                saving.cancel()
            await asyncio.gather(*saves, return_exceptions=True)
        later = await save(store, "later")
        for _ in range(4):
            await save(store, "later")
    assert store.list(query_id="q") != []
    assert {pointer.pointer_id for pointer in store.list(query_id="q")} == {later.pointer_id}


def test_a_forked_child_saves_with_threads_of_its_own_f_158_s0_20(
    store: FileContextPointerStore,
) -> None:
    """A child has none of its parent's threads, and a save would wait for them without end."""

    async def save_several() -> None:
        await asyncio.gather(*(save(store, n, args={"n": n}) for n in range(8)))

    asyncio.run(save_several())
    assert run_in_child(lambda: asyncio.run(save(store, "child"))) == 0
    assert "child" in [store.load_result(pointer=each) for each in store.list(query_id="q")]


def test_listing_and_loading_are_synchronous_and_by_keyword_s0_20(
    store: FileContextPointerStore,
) -> None:
    with pytest.raises(TypeError):
        store.list("q")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        store.load_result(None)  # type: ignore[call-arg, arg-type]


async def test_threads_with_loops_of_their_own_share_a_store_f_072(
    store: FileContextPointerStore,
) -> None:
    def work(name: str) -> None:
        async def several() -> None:
            await asyncio.gather(*(save(store, n, args={"name": name, "n": n}) for n in range(20)))

        asyncio.run(several())

    await asyncio.gather(*(asyncio.to_thread(work, name) for name in "ab"))
    assert len(store.list(query_id="q")) == 40


async def test_a_pointer_made_of_its_ids_loads_s0_09(store: FileContextPointerStore) -> None:
    saved = await save(store)
    ids = {
        "pointer_id": saved.pointer_id,
        "query_id": "q",
        "tool_name": "",
        "created_at": "",
        "summary": "",
    }
    assert (
        store.load_result(pointer=ContextPointer.model_validate(ids | {"result_path": ""}))
        == "result"
    )


async def test_a_repeat_is_never_the_result_of_another_call_s0_05() -> None:
    blobs = MemoryBlobStore()
    store = ContextPointerStore(LockedRecords(blobs))
    first = await save(store, "one", keep_repeats=True)
    theirs = await save(store, "two", tool_name="other")
    # As if the other call had this long id.
    moved = theirs.model_copy(update={"pointer_id": f"{first.pointer_id}0001"})
    blobs.put(meta_key("q", moved.pointer_id), moved.model_dump_json().encode())
    blobs.put(result_key("q", moved.pointer_id), b'"two"')
    again = await save(store, "two", keep_repeats=True)
    assert again.pointer_id == f"{first.pointer_id}0002"
    assert again.tool_name == "tool"
    assert store.load_result(pointer=moved) == "two"
    assert await save(store, "two", keep_repeats=True) == again.model_copy(
        update={"created_at": store.list(query_id="q")[-1].created_at}
    )


async def test_only_queries_of_a_prefix_are_asked_for_a_pointer() -> None:
    store = InMemoryContextPointerStore()
    mine = await save(store, query_id="ann:1")
    theirs = await save(store, query_id="bob:1")
    assert store.query_with(mine.pointer_id, prefix="ann:") == "ann:1"
    assert store.query_with(theirs.pointer_id, prefix="ann:") is None
    assert store.query_with("0" * 12, prefix="") is None
    store.delete(query_id="ann:1")
    assert store.query_with(mine.pointer_id, prefix="ann:") is None


async def test_a_listing_sweeps_old_temporaries(store: FileContextPointerStore) -> None:
    pointer = await save(store)
    temporary = store.base_dir / "q" / ".tmp-1-1-0123456789abcdef"
    temporary.write_bytes(b"half")
    assert store.list(query_id="q") == [pointer]
    assert temporary.exists()
    os.utime(temporary, (1_000, 1_000))
    fresh = FileContextPointerStore(store.base_dir, durability="rename")
    assert fresh.list(query_id="q") == [pointer]
    assert not temporary.exists()
