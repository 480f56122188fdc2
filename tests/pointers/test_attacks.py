"""Hostile ids and folders: nothing outside the store's own folder is touched."""

import asyncio
import os
import random
import shutil
import socket
import stat
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import ContextPointer, FileContextPointerStore
from llm_common.errors import InvalidIdError, PointerNotFoundError, StoreError, UnsafePathError
from tests.pointers.campaigns.naive_store import NaiveStore

SECRET = "outside-9f3a7c51"
POINTER_ID = "0123456789ab"
REFUSALS = (InvalidIdError, UnsafePathError, PointerNotFoundError)

QUERY_IDS: tuple[Any, ...] = (
    *(
        "../outside",
        "../../outside",
        "../../../../../../../../etc",
        "..",
        ".",
        "./q",
        "q/..",
        "q/../../outside",
        "q/",
    ),
    *(
        "q/../r",
        "q/./r",
        "q/.",
        "q/CON",
        "nul/q",
        "aux:q",
        "q/com1.txt",
        ":q",
        "q:",
        "@q",
        "q+",
        ",q",
        "=",
        "q  r",
        "q/ ",
    ),
    *(
        "/",
        "//",
        "/etc",
        "/outside",
        "//q",
        "q//",
        "..\\outside",
        "\\\\server\\share",
        "C:\\x",
        "C:",
        "q\\..\\r",
    ),
    *(
        "",
        " ",
        "\t",
        "\n",
        "q\n",
        " q",
        "q ",
        "a\0b",
        "\0",
        "q\0/../outside",
        "a" * 201,
        "a" * 300,
        "a" * 100_000,
    ),
    *(
        "CON",
        "nul",
        "NUL.txt",
        "aux",
        "com1",
        "lpt9.json",
        ".",
        ".lock",
        ".git",
        ".tmp-1",
        "..lock",
        "...",
        "q.",
    ),
    *(
        "~",
        "~root",
        "$HOME",
        "${HOME}",
        "%2e%2e%2foutside",
        "%00",
        "..%2foutside",
        "..;/outside",
        "q;r",
        "q~r",
        "q!r",
        "*",
    ),
    *(
        "ｑ．．／",
        "․․/outside",
        "\u202eq",
        "q\u0301",
        "é",
        "q\u200b",
        "\ud800",
        "𝓺",
        "-rf",
        "--",
        "?",
        "|id",
    ),
    *(
        None,
        5,
        1.5,
        True,
        b"q",
        ["q"],
        ("..", "outside"),
        {"q": 1},
        Path("..") / "outside",
        frozenset(),
    ),
)
POINTER_IDS: tuple[Any, ...] = (
    *(
        "../../outside/" + POINTER_ID,
        "../outside",
        "..",
        ".",
        "/etc/passwd",
        f"q/{POINTER_ID}",
        "",
        " ",
        "\0" * 12,
    ),
    *(
        POINTER_ID.upper(),
        POINTER_ID + "\n",
        POINTER_ID + "\0",
        "a" * 11,
        "a" * 17,
        "a" * 300,
        "a" * 100_000,
        "ａ" * 12,
    ),
    *(
        f"{POINTER_ID}.meta.json",
        f"{POINTER_ID}.result",
        "0123456789a/",
        "0123456789a\\",
        "*" * 12,
        "~",
        ".lock",
    ),
)


class TrustingStore(NaiveStore):
    """A store that trusts its ids and its folder. Every check here must fail it.

    It can reach only the test's own folder. Paths that lead out of that are refused.
    """

    def __init__(self, base: Path, jail: Path) -> None:
        super().__init__(base)
        self.jail = jail

    def folder(self, query_id: Any) -> Path:
        path = self.base_dir / str(query_id)
        if self.jail not in Path(os.path.normpath(path)).parents:
            raise PermissionError("outside of the test")
        return path

    def list(self, *, query_id: Any) -> Any:
        return [path.read_text() for path in self.folder(query_id).glob("*.json")]

    def load_payload(self, pointer_id: Any, *, query_id: Any) -> object:
        return self.load_result(pointer=pointer_of(query_id, pointer_id))

    def delete(self, *, query_id: Any, pointer_ids: Any = None) -> None:
        name = f"{POINTER_ID if pointer_ids is None else pointer_ids[0]}.result.json"
        self.folder(f"{query_id}/{name}").unlink()

    def pin(self, pointer: ContextPointer) -> None:
        self.load_result(pointer=pointer)

    unpin = pin

    async def gc(self) -> None:
        for path in self.base_dir.rglob("*.tmp"):
            path.unlink()

    async def verify(self, *, repair: bool = False) -> None:
        for path in self.base_dir.rglob("*.json"):
            path.read_text()


def pointer_of(query_id: Any, pointer_id: Any) -> ContextPointer:
    return ContextPointer.model_construct(
        pointer_id=pointer_id,
        query_id=query_id,
        tool_name="t",
        created_at="",
        summary="",
        result_path="/etc/passwd",
    )


def entries(store: Any, query_id: Any, pointer_id: Any) -> dict[str, Callable[[], Any]]:
    """Return every entry point of the store, called with these ids. Results may be awaitable."""
    return {
        "save": lambda: store.save(
            query_id=query_id, task_id=None, tool_name="t", args={}, result="inside"
        ),
        "list": lambda: store.list(query_id=query_id),
        "load": lambda: store.load_result(pointer=pointer_of(query_id, pointer_id)),
        "read": lambda: store.load_payload(pointer_id, query_id=query_id),
        "delete": lambda: store.delete(query_id=query_id),
        "delete one": lambda: store.delete(query_id=query_id, pointer_ids=[pointer_id]),
        "pin": lambda: store.pin(pointer_of(query_id, pointer_id)),
        "unpin": lambda: store.unpin(pointer_of(query_id, pointer_id)),
    }


async def outcome(use: Callable[[], Any]) -> Any:
    """Return the result of a call, or the error that it raises."""
    try:
        returned = use()
        return await returned if isinstance(returned, Awaitable) else returned
    except (StoreError, OSError, ValueError, TypeError, RuntimeError) as exc:
        return exc


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes | str]]:
    """List every entry below a folder with its kind, link count and content.

    Follows no links.
    """
    found: dict[str, tuple[int, int, bytes | str]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        held: bytes | str = ""
        if stat.S_ISREG(status.st_mode):
            held = path.read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            held = os.readlink(path)  # noqa: PTH115 - the text itself
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_nlink, held)
    return found


def make_world(root: Path) -> tuple[FileContextPointerStore, ContextPointer]:
    """Create a store with one result, and beside it a folder of the same form with a secret."""
    store = FileContextPointerStore(root / "base", durability="rename")
    call: dict[str, Any] = {"query_id": "q", "task_id": None, "tool_name": "t", "args": {}}
    asyncio.run(store.save(**call, result=SECRET))
    shutil.copytree(root / "base" / "q", root / "outside")
    for name in ("meta.json", "result.json"):
        shutil.copy(
            next((root / "outside").glob(f"*.{name}")), root / "outside" / f"{POINTER_ID}.{name}"
        )
    pointer = asyncio.run(store.save(**call, result="inside"))
    return store, pointer


def is_harmless(before: object, after: object, returned: object) -> bool:
    return before == after and SECRET not in str(returned)


def test_a_hostile_query_id_reaches_nothing_f_001_s0_11(tmp_path: Path) -> None:
    store, pointer = make_world(tmp_path)
    before = snapshot(tmp_path)
    with asyncio.Runner() as runner:
        for query_id in QUERY_IDS:
            for name, use in entries(store, query_id, pointer.pointer_id).items():
                told = runner.run(outcome(use))
                assert isinstance(told, InvalidIdError), (query_id, name, told)
                assert SECRET not in str(told), (query_id, name)
            assert snapshot(tmp_path) == before, query_id


def test_a_hostile_pointer_id_reaches_nothing_f_023_s0_11(tmp_path: Path) -> None:
    store, _ = make_world(tmp_path)
    before = snapshot(tmp_path)
    with asyncio.Runner() as runner:
        for pointer_id in POINTER_IDS:
            uses = entries(store, "q", pointer_id)
            for name in ("load", "read", "pin", "unpin"):
                told = runner.run(outcome(uses[name]))
                assert isinstance(told, UnsafePathError | PointerNotFoundError), (pointer_id, name)
            assert runner.run(outcome(uses["delete one"])) == 0, pointer_id
            assert snapshot(tmp_path) == before, pointer_id


def naive_outcomes(root: Path) -> list[bool]:
    """Return, for some hostile ids and each entry point, whether a naive store was safe."""
    harmless = []
    for number, (query_id, pointer_id) in enumerate(
        [
            *((query_id, POINTER_ID) for query_id in QUERY_IDS[:12]),
            *(("q", one) for one in POINTER_IDS[:4]),
        ]
    ):
        world = root / str(number) / "a" / "b" / "c"
        world.mkdir(parents=True)
        store = TrustingStore(make_world(world)[0].base_dir, root / str(number))
        for name, use in entries(store, query_id, pointer_id).items():
            if query_id != "q" or name not in ("save", "list", "delete"):
                before = snapshot(root / str(number))
                told = asyncio.run(outcome(use))
                harmless.append(is_harmless(before, snapshot(root / str(number)), told))
    return harmless


def test_the_harness_fails_a_store_that_trusts_its_ids(tmp_path: Path) -> None:
    assert naive_outcomes(tmp_path).count(False) > 20


def link(path: Path, target: Path | str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def hard_link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.hardlink_to(target)


def unix_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's address is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink(missing_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # endless zeros
    except PermissionError:
        fifo(path)


def folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def whole_folder(query: Path, target: Path | str) -> None:
    shutil.rmtree(query)
    query.symlink_to(target)


KINDS = ("result.json", "meta.json", "next")


def hop(query: Path, outside: Path) -> None:
    link(query.parent / "hop", outside)
    whole_folder(query, "hop")


def old_temporary(query: Path, outside: Path) -> None:
    link(query / ".tmp-1-00", outside / f"{POINTER_ID}.meta.json")
    os.utime(query / ".tmp-1-00", (0, 0), follow_symlinks=False)


def foreign_names(query: Path, outside: Path) -> None:
    for name in (
        "x.result.json",
        "ABCDEF012345.result.json",
        "0123456789ab.result.json.bak",
        "notes.txt",
    ):
        link(query / name, outside / f"{POINTER_ID}.result.json")


PLANTED: dict[str, Callable[[Path, Path, str], object]] = {
    "folder linked": lambda query, outside, _: whole_folder(query, outside),
    "folder linked by a relative path": lambda query, _, __: whole_folder(query, "../outside"),
    "folder linked to a dangling path": lambda query, outside, _: whole_folder(
        query, outside / "new"
    ),
    "folder linked to itself": lambda query, _, __: whole_folder(query, "q"),
    "folder linked through a link": lambda query, outside, _: hop(query, outside),
    "lock linked": lambda query, outside, _: link(query / ".lock", outside / ".lock"),
    "lock linked to a new file": lambda query, outside, _: link(query / ".lock", outside / "made"),
    "lock a fifo": lambda query, _, __: fifo(query / ".lock"),
    "lock a folder": lambda query, _, __: folder(query / ".lock"),
    "lock a hard link": lambda query, outside, _: hard_link(query / ".lock", outside / ".lock"),
    "old temporary linked": lambda query, outside, _: old_temporary(query, outside),
    "foreign names linked": lambda query, outside, _: foreign_names(query, outside),
    "query folder beside it linked": lambda query, outside, _: (query.parent / "r").symlink_to(
        outside
    ),
    "hidden folder beside it linked": lambda query, outside, _: (
        query.parent / ".hidden"
    ).symlink_to(outside),
    **{
        f"{kind} {name}": (
            lambda query, outside, pointer_id, kind=kind, plant=plant: plant(  # type: ignore[misc]
                query / f"{pointer_id}.{kind}", outside, kind
            )
        )
        for kind in KINDS
        for name, plant in {
            "linked": lambda path, outside, kind: link(
                path, outside / f"{POINTER_ID}.{kind.replace('next', 'meta.json')}"
            ),
            "linked relatively": lambda path, _, kind: link(
                path, f"../../outside/{POINTER_ID}.result.json"
            ),
            "linked to a device": lambda path, _, __: link(path, "/dev/zero"),
            "linked to nothing": lambda path, outside, _: link(path, outside / "made"),
            "hard-linked": lambda path, outside, kind: hard_link(
                path, outside / f"{POINTER_ID}.result.json"
            ),
            "a fifo": lambda path, _, __: fifo(path),
            "a device": lambda path, _, __: device(path),
            "a socket": lambda path, _, __: unix_socket(path),
            "a folder": lambda path, _, __: folder(path),
        }.items()
    },
}


def planted_outcome(root: Path, plant: Callable[[Path, Path, str], object], *, naive: bool) -> bool:
    """Return whether every entry point was safe with something planted in the folder."""
    made, pointer = make_world(root)
    plant(root / "base" / "q", root / "outside", pointer.pointer_id)
    store: Any = TrustingStore(made.base_dir, root) if naive else made
    before = {name: (mode, held) for name, (mode, _, held) in snapshot(root / "outside").items()}
    uses = entries(store, "q", pointer.pointer_id)
    order = ("list", "load", "read", "pin", "unpin", "save", "delete one", "delete")
    told = [asyncio.run(outcome(uses[name])) for name in order[:6]]
    told += [
        asyncio.run(outcome(use))
        for use in (store.gc, store.verify, lambda: store.verify(repair=True))
    ]
    told += [asyncio.run(outcome(uses[name])) for name in order[6:]]
    after = {name: (mode, held) for name, (mode, _, held) in snapshot(root / "outside").items()}
    return is_harmless(before, after, told)


@pytest.mark.parametrize("name", PLANTED)
def test_planted_files_lead_nowhere_f_016_f_017_f_019_f_020_f_021(
    tmp_path: Path, name: str
) -> None:
    assert planted_outcome(tmp_path, PLANTED[name], naive=False)


def test_the_harness_fails_a_store_that_follows_links(tmp_path: Path) -> None:
    links = [
        name
        for name in PLANTED
        if "linked" in name and not name.startswith(("lock", "old", "next", "hidden"))
    ]
    failed = 0
    for number, name in enumerate(links):
        if "device" not in name:
            (tmp_path / str(number)).mkdir()
            failed += not planted_outcome(tmp_path / str(number), PLANTED[name], naive=True)
    assert failed > 8


PARTS = [
    *(
        "..",
        "/",
        "\\",
        ".",
        "~",
        "%2e",
        "%2f",
        "\0",
        "\n",
        " ",
        "*",
        "$HOME",
        ":",
        "C:",
        "nul",
        "con.txt",
        "-rf",
        ".lock",
    ),
    *(
        "\u202e",
        "．",
        "／",
        "é",
        "e\u0301",
        "\ud800",
        "a",
        "Z9",
        "_",
        "q",
        "outside",
        "secret.meta.json",
        "a" * 130,
    ),
]


def reaches_nothing(store: Any, root: Path, count: int) -> bool:
    """Use each entry point with ids made of parts of paths, and return whether all was safe."""
    chance, before = random.Random(7), snapshot(root / "outside")
    with asyncio.Runner() as runner:
        for _ in range(count):
            one = "".join(chance.choices(PARTS, k=chance.randint(1, 6)))
            uses = [*entries(store, one, POINTER_ID).values(), entries(store, "q", one)["load"]]
            told = [runner.run(outcome(use)) for use in uses]
            errors = [each for each in told if isinstance(each, Exception)]
            if SECRET in str(told) or not all(isinstance(each, REFUSALS) for each in errors):
                return False
    return snapshot(root / "outside") == before


@pytest.mark.parametrize(
    "count", [pytest.param(250, id="short"), pytest.param(100_000, marks=pytest.mark.torture)]
)
def test_no_generated_id_reaches_anything_outside_l17_s0_11_f_001_f_023(
    tmp_path: Path, count: int
) -> None:
    store, _ = make_world(tmp_path)
    assert reaches_nothing(store, tmp_path, count)
    assert {path.name for path in tmp_path.iterdir()} == {"base", "outside"}
    assert len(list(store.base_dir.iterdir())) > 1  # some are ids


def test_the_harness_fails_a_store_that_joins_ids_to_paths_l17(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    root.mkdir(parents=True)
    store, _ = make_world(root)
    assert not reaches_nothing(TrustingStore(store.base_dir, tmp_path), root, 2_000)


MIN_CALLS = 20


def flip_while(paths: tuple[Path, Path], flips: int, use: Callable[[], object]) -> list[object]:
    """Repeat a call while two entries are swapped, and return its results."""
    here, there = paths
    aside = here.with_name("aside")
    done = threading.Event()

    outcomes: list[object] = []

    def flip() -> None:
        flipped = 0
        # On a busy machine, the swaps continue until there were enough calls.
        while flipped < flips or len(outcomes) <= MIN_CALLS:
            here.rename(aside)
            there.rename(here)
            here.rename(there)
            aside.rename(here)
            flipped += 1
        done.set()

    flipping = threading.Thread(target=flip)
    flipping.start()
    while not done.is_set():
        outcomes.append(asyncio.run(outcome(use)))
    flipping.join()
    return outcomes


def check_flips(root: Path, flips: int, *, what: str, naive: bool = False) -> bool:
    """Check that nothing outside is read or written while a link to it is swapped in."""
    made, pointer = make_world(root)
    store: Any = TrustingStore(made.base_dir, root) if naive else made
    query = root / "base" / "q"
    swapped = query if what == "folder" else query / f"{pointer.pointer_id}.{what}"
    target = (
        root / "outside" if what == "folder" else root / "outside" / f"{pointer.pointer_id}.{what}"
    )
    planted = root / "planted"
    planted.symlink_to(target)
    before = snapshot(root / "outside")
    uses = entries(store, "q", pointer.pointer_id)
    told = flip_while((swapped, planted), flips, uses["load"])
    told += flip_while((swapped, planted), flips // 10, uses["list"])
    return is_harmless(before, snapshot(root / "outside"), told)


@pytest.mark.parametrize(
    "flips", [pytest.param(500, id="short"), pytest.param(10_000, marks=pytest.mark.torture)]
)
@pytest.mark.parametrize("what", ["folder", "result.json", "meta.json"])
def test_links_swapped_in_while_reading_lead_nowhere_f_018(
    tmp_path: Path, what: str, flips: int
) -> None:
    assert check_flips(tmp_path, flips, what=what)


def test_the_harness_fails_a_store_that_a_swap_deceives(tmp_path: Path) -> None:
    # a swap has to fall between two steps of the store
    roots = [tmp_path / str(number) for number in range(20)]
    for root in roots:
        root.mkdir()
    assert not all(check_flips(root, 500, what="folder", naive=True) for root in roots)
