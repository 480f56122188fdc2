import errno
import fcntl
import multiprocessing
import os
import resource
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from llm_common.errors import (
    InvalidIdError,
    LockTimeoutError,
    StoreError,
    StoreFullError,
    UnsafePathError,
)
from llm_common.storage import Durability, FileBlobStore, LockingBlobStore
from tests.contracts.blob_contract import LockingBlobStoreContract
from tests.forking import run_in_child
from tests.pointers.campaigns.children import child

SECRET = b"outside the store"


class TestFileBlobStore(LockingBlobStoreContract):
    @pytest.fixture(params=["full", "rename"])
    def blobs(self, request: pytest.FixtureRequest, tmp_path: Path) -> LockingBlobStore:
        return FileBlobStore(tmp_path / "base", durability=request.param, lock_timeout_s=60.0)


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobStore:
    store = FileBlobStore(tmp_path / "base", lock_timeout_s=0.2)
    store.put("q/a", b"inside")
    return store


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a").write_bytes(SECRET)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.name != ".lock")


def test_only_two_durabilities_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="durability"):
        FileBlobStore(tmp_path, durability="none")  # type: ignore[arg-type]


def test_files_and_directories_are_private_under_any_umask_f_028_s0_17(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = FileBlobStore(tmp_path / "deep" / "base")
        with store.lock("q"):
            store.put("q/a", b"1")
    finally:
        os.umask(before)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "deep").rglob("*")
    }
    assert modes == {"base": 0o700, "q": 0o700, "a": 0o600, ".lock": 0o600}
    assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o700


USES: list[Callable[[FileBlobStore], object]] = [
    lambda store: store.get("q/a"),
    lambda store: store.put("q/a", b"changed"),
    lambda store: store.delete("q/a"),
    lambda store: store.scan("q"),
    lambda store: store.lock("q").__enter__(),
    lambda store: list(store.get_many("q", ["a"])),
    lambda store: store.update("q/a", lambda _: b"changed"),
]


@pytest.mark.parametrize(
    "use", USES, ids=["get", "put", "delete", "scan", "lock", "get_many", "update"]
)
def test_a_linked_folder_is_refused_and_its_target_untouched_f_016(
    tmp_path: Path, outside: Path, use: Callable[[FileBlobStore], object]
) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "q").symlink_to(outside)
    with pytest.raises(UnsafePathError):
        use(FileBlobStore(tmp_path / "base"))
    assert (names(outside), (outside / "a").read_bytes()) == (["a"], SECRET)


def plant_hard_link(path: Path, outside: Path) -> None:
    os.link(outside / "a", path)


def plant_socket(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    "plant",
    [
        lambda path, outside: path.symlink_to(outside / "a"),
        plant_hard_link,
        lambda path, _: os.mkfifo(path),
        lambda path, _: path.mkdir(),
        plant_socket,
    ],
    ids=["F-017-link", "F-019-hard-link", "F-020-fifo", "F-021-directory", "F-020-socket"],
)
def test_only_plain_files_are_read_and_listed(
    blobs: FileBlobStore, outside: Path, plant: Callable[[Path, Path], None]
) -> None:
    plant(blobs.base_dir / "q" / "odd", outside)
    with pytest.raises(UnsafePathError):
        blobs.get("q/odd")
    with blobs.lock("q") as folder, pytest.raises(UnsafePathError):
        folder.get("odd")
    assert list(blobs.get_many("q", ["odd", "none", "a"])) == [None, None, b"inside"]
    found = blobs.scan("q")
    assert ([*found.blobs], found.unsafe) == (["a"], ("odd",))


def test_hard_links_can_be_allowed_f_019(blobs: FileBlobStore, outside: Path) -> None:
    plant_hard_link(blobs.base_dir / "q" / "odd", outside)
    assert FileBlobStore(blobs.base_dir, allow_hard_links=True).get("q/odd") == SECRET


NOBODY = 65_534


def as_nobody(action: Callable[[], object]) -> str:
    """Run an action as another user, and return its error's name or its result's repr."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)

    def child() -> None:
        os.setgroups([])
        os.setuid(NOBODY)
        try:
            sender.send(repr(action()))
        except StoreError as exc:
            sender.send(type(exc).__name__)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    answer: str = receiver.recv() if receiver.poll(10) else "no answer"
    process.join(10)
    return answer


def test_without_permission_nothing_looks_empty_f_026(shared_root: Path) -> None:
    store = FileBlobStore(shared_root / "base")
    store.put("q/a", b"1")
    assert as_nobody(lambda: store.scan("q")) == "StoreError"
    assert as_nobody(lambda: store.get("q/a")) == "StoreError"
    assert as_nobody(lambda: store.put("q/b", b"2")) == "StoreError"
    os.chown(store.base_dir, NOBODY, NOBODY)
    assert as_nobody(lambda: store.scan("q")) == "StoreError"


def test_the_file_of_another_user_is_refused_f_026_s0_11(shared_root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    store = FileBlobStore(shared_root / "base")
    store.put("q/a", b"1")
    os.chown(store.base_dir / "q" / "a", NOBODY, NOBODY)
    with pytest.raises(UnsafePathError):
        store.get("q/a")
    assert list(store.get_many("q", ["a"])) == [None]
    assert store.scan("q").unsafe == ("a",)
    assert FileBlobStore(store.base_dir, allow_unsafe_dir=True).get("q/a") == b"1"


def test_a_world_writable_base_is_refused_f_027(shared_root: Path) -> None:
    base = shared_root / "base"
    base.mkdir()
    base.chmod(0o777)
    assert as_nobody(lambda: FileBlobStore(base).put("q/a", b"1")) == "UnsafePathError"
    assert as_nobody(lambda: FileBlobStore(base, allow_unsafe_dir=True).put("q/a", b"1")) == "None"
    assert as_nobody(lambda: FileBlobStore(base, allow_unsafe_dir=True).get("q/a")) == "b'1'"
    with pytest.raises(UnsafePathError, match="another user"):
        FileBlobStore(base).get("q/a")  # the base is ours, the folder a stranger's


def test_a_folder_that_vanishes_is_empty_f_055(blobs: FileBlobStore) -> None:
    shutil.rmtree(blobs.base_dir / "q")
    assert blobs.scan("q").blobs == {}
    assert list(blobs.get_many("q", ["a"])) == [None]
    blobs.delete("q/a")
    blobs.sweep("q")
    blobs.remove_folder("q")
    assert not (blobs.base_dir / "q").exists()


def test_an_etag_differs_for_other_bytes_of_equal_length(blobs: FileBlobStore) -> None:
    time.sleep(0.1)  # until the file system's clock has moved on
    first = blobs.scan("q").blobs["a"]
    blobs.put("q/a", b"INSIDE")
    second = blobs.scan("q").blobs["a"]
    assert (second.size, second.etag == first.etag) == (6, False)
    assert abs(second.modified_s - time.time()) < 60


def failing(error: int) -> Callable[..., int]:
    def fail(*_: object, **__: object) -> int:
        raise OSError(error, os.strerror(error))

    return fail


@pytest.mark.parametrize(
    ("function", "error", "expected"),
    [
        pytest.param("write", errno.ENOSPC, StoreFullError, id="F-058"),
        pytest.param("replace", errno.ENOSPC, StoreFullError, id="F-059"),
        pytest.param("write", errno.EDQUOT, StoreFullError, id="F-060"),
        pytest.param("fsync", errno.EIO, StoreError, id="F-061"),
        pytest.param("write", errno.EROFS, StoreError, id="F-026-read-only"),
    ],
)
def test_a_refused_put_leaves_the_old_bytes_and_nothing_else(
    blobs: FileBlobStore,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    error: int,
    expected: type[StoreError],
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, function, failing(error))
        with pytest.raises(StoreError) as caught:
            blobs.put("q/a", b"new")
    assert type(caught.value) is expected
    assert isinstance(caught.value.__cause__, OSError)
    assert (blobs.get("q/a"), names(blobs.base_dir / "q")) == (b"inside", ["a"])


def before_each_flush(patch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Call a function with the descriptor of each file or folder that is flushed."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        act(descriptor)
        real(descriptor)

    patch.setattr(os, "fsync", fsync)


def is_folder(descriptor: int) -> bool:
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


@pytest.mark.parametrize(
    ("of_folder", "error"),
    [pytest.param(False, errno.EIO, id="F-061"), pytest.param(True, errno.EACCES, id="F-064")],
)
def test_a_failed_flush_is_an_error_and_not_retried(
    blobs: FileBlobStore, monkeypatch: pytest.MonkeyPatch, of_folder: bool, error: int
) -> None:
    failed = []

    def fail(descriptor: int) -> None:
        if is_folder(descriptor) is of_folder:
            failed.append(descriptor)
            raise OSError(error, os.strerror(error))

    before_each_flush(monkeypatch, fail)
    with pytest.raises(StoreError, match=errno.errorcode[error]):
        blobs.put("q/a", b"new")
    assert len(failed) == 1


def test_short_writes_are_completed_f_062(
    blobs: FileBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    data = os.urandom(1000)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, rest: real(descriptor, bytes(rest[:7])))
        blobs.put("q/a", data)
    assert blobs.get("q/a") == data


def test_without_descriptors_nothing_looks_missing_f_063(blobs: FileBlobStore) -> None:
    reading = blobs.get_many("q", ["a", "a"])
    assert next(reading) == b"inside"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open("/", os.O_RDONLY)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 1, hard))
        for use in USES:
            with pytest.raises(StoreError, match="EMFILE"):
                use(blobs)
        with pytest.raises(StoreError, match="EMFILE"):
            next(reading)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(spare)
    assert list(blobs.get_many("q", ["a"])) == [b"inside"]


def test_full_durability_flushes_files_then_folder_and_rename_flushes_nothing_s0_18(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list[str]()
    full, rename = FileBlobStore(tmp_path), FileBlobStore(tmp_path, durability="rename")
    full.put("q/a", b"1")
    with full.lock("q"):
        pass
    real_replace = os.replace

    def flush(descriptor: int) -> None:
        events.append("flush folder" if is_folder(descriptor) else "flush file")

    def replace(source: str, target: str, **folders: int) -> None:
        events.append(f"name {target}")
        real_replace(source, target, **folders)

    before_each_flush(monkeypatch, flush)
    monkeypatch.setattr(os, "replace", replace)
    full.put("q/a", b"2")
    assert events == ["flush file", "name a", "flush folder"]
    events.clear()
    with full.lock("q") as folder:
        folder.put(("c", b"3"), ("a", b"4"))
        folder.delete("b", fsync=False)
        assert events == ["flush file", "flush file", "name c", "name a", "flush folder"]
        folder.delete("c")
        assert events[5:] == ["flush folder"]
    events.clear()
    with rename.lock("q") as folder:
        folder.put(("c", b"5"), ("a", b"6"))
        folder.delete("c")
    rename.delete("q/a")
    assert events == ["name c", "name a"]


def test_a_planted_temporary_file_is_never_written_into_f_152(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FileBlobStore(tmp_path)
    blobs.put("q/a", b"old")
    # a source of randomness that is constant
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0" * 2 * size)
    real_open = os.open
    planted = list[Path]()
    outside = tmp_path / "outside"
    outside.write_bytes(b"planted")

    def plant(path: str, flags: int, *rest: int, **folder: int) -> int:
        if path.startswith(".tmp-") and not planted:
            planted.append(tmp_path / "q" / path)
            planted[0].hardlink_to(outside)
        return real_open(path, flags, *rest, **folder)

    monkeypatch.setattr(os, "open", plant)
    with pytest.raises(StoreError, match="EEXIST"):
        blobs.put("q/a", b"new")
    assert outside.read_bytes() == b"planted"
    assert blobs.get("q/a") == b"old"
    blobs.put("q/a", b"new")
    assert blobs.get("q/a") == b"new"


def test_a_killed_writers_folder_is_flushed_before_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q").mkdir()  # by a writer that was killed before it flushed the base
    flushed = list[tuple[int, bool]]()

    def flush(descriptor: int) -> None:
        flushed.append((os.fstat(descriptor).st_ino, (tmp_path / "q" / ".lock").exists()))

    before_each_flush(monkeypatch, flush)
    base = tmp_path.stat().st_ino
    with FileBlobStore(tmp_path, durability="rename").lock("q") as folder:
        folder.put(("a", b"1"))
    assert flushed == []
    (tmp_path / "q" / ".lock").unlink()
    for _ in range(2):
        with FileBlobStore(tmp_path).lock("q") as folder:
            folder.put(("a", b"1"))
    assert [entry for entry in flushed if entry[0] == base] == [(base, False)]


@pytest.mark.parametrize("durability", ["full", "rename"])
def test_a_failed_put_of_several_leaves_whole_files_f_059(
    tmp_path: Path, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FileBlobStore(tmp_path, durability=durability)
    real = os.replace

    def replace(source: str, target: str, **folders: int) -> None:
        if target == "b":
            raise OSError(errno.ENOSPC, "full")
        real(source, target, **folders)

    monkeypatch.setattr(os, "replace", replace)
    with blobs.lock("q") as folder:
        with pytest.raises(StoreFullError):
            folder.put(("a", b"1"), ("b", b"2"), ("c", b"3"))
        assert (names(tmp_path / "q"), folder.get("a")) == (["a"], b"1")


def hold_and_fork(sender: Connection, base: Path) -> None:
    """Fork a sleeping child inside a lock, and send its process id."""
    with FileBlobStore(base).lock("q"):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        sender.send(pid)
        time.sleep(30)


def test_the_forked_child_of_a_killed_process_keeps_no_lock_f_069_f_158(
    blobs: FileBlobStore,
) -> None:
    with child(hold_and_fork, blobs.base_dir) as (holder, receiver):
        pid = receiver.recv()
        try:
            with pytest.raises(LockTimeoutError), blobs.lock("q"):
                pytest.fail("entered a folder that another process holds")
            holder.kill()
            # A busy machine takes its time to end a process.
            with FileBlobStore(blobs.base_dir, lock_timeout_s=20).lock("q"):
                os.kill(pid, 0)  # it lives
        finally:
            os.kill(pid, signal.SIGKILL)


def test_a_child_forked_inside_a_lock_does_no_harm_f_069_f_158(
    blobs: FileBlobStore,
) -> None:
    def leave() -> None:
        entered.close()
        with pytest.raises(LockTimeoutError), blobs.lock("q"):
            pytest.fail("entered the folder that the parent holds")
        with blobs.lock("other"):
            blobs.put("other/a", b"1")

    def enter() -> None:
        with blobs.lock("q"):
            pass

    with ExitStack() as entered:
        entered.enter_context(blobs.lock("q"))
        assert run_in_child(leave) == 0
        assert run_in_child(enter) != 0
    assert run_in_child(enter) == 0


@pytest.mark.parametrize("use", ["lock('q')", "lease('q')"])
def test_what_a_hanging_process_holds_is_free_when_it_dies_f_070(
    blobs: FileBlobStore, use: str
) -> None:
    program = (
        "import sys\n"
        "from llm_common.storage import FileBlobStore\n"
        f"with FileBlobStore(sys.argv[1]).{use}:\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(blobs.base_dir)]
    take = blobs.lock if use == "lock('q')" else blobs.lease
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockTimeoutError), take("q"):
            pytest.fail("entered what another process holds")
        holder.kill()
        holder.wait()
        with take("q"):
            pass


def test_a_file_system_without_locks_is_an_error_f_071(
    blobs: FileBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))
    with pytest.raises(StoreError, match="ENOLCK"), blobs.lock("q"):
        pytest.fail("went on without a lock")


def test_shared_locks_admit_each_other_and_keep_writers_out(blobs: FileBlobStore) -> None:
    with blobs.lock("q"):
        pass
    with (
        blobs.lock_shared("q"),
        blobs.lock_shared("q"),
        pytest.raises(LockTimeoutError),
        blobs.lock("q"),
    ):
        pytest.fail("entered a folder that others hold")
    with blobs.lock("q"), pytest.raises(LockTimeoutError), blobs.lock_shared("q"):
        pytest.fail("entered a folder that another holds")


def test_a_shared_lock_creates_nothing(tmp_path: Path) -> None:
    with FileBlobStore(tmp_path / "base").lock_shared("q"):
        assert not (tmp_path / "base").exists()


def test_a_writer_waiting_for_a_removed_folder_locks_its_successor(blobs: FileBlobStore) -> None:
    entered = threading.Event()

    def wait() -> None:
        with FileBlobStore(blobs.base_dir, lock_timeout_s=5).lock("q"):
            entered.set()
            time.sleep(0.1)
            blobs.put("q/late", b"1")

    waiting = threading.Thread(target=wait)
    with blobs.lock("q"):
        waiting.start()
        time.sleep(0.05)
        shutil.rmtree(blobs.base_dir / "q")
    assert entered.wait(5)
    with FileBlobStore(blobs.base_dir, lock_timeout_s=5).lock("q"):
        assert [*blobs.scan("q").blobs] == ["late"]
    waiting.join()


def test_names_outside_the_rules_are_not_read(blobs: FileBlobStore) -> None:
    for name in ("../q/a", "", ".lock", "a/b", None):
        with pytest.raises(InvalidIdError):
            list(blobs.get_many("q", [name]))  # type: ignore[list-item]


def test_a_forked_child_does_not_end_a_lease(blobs: FileBlobStore) -> None:
    with ExitStack() as stack:
        stack.enter_context(blobs.lease("run"))
        assert run_in_child(stack.close) == 0  # as a child does that returns from the block
        with pytest.raises(LockTimeoutError), blobs.lease("run"):
            pytest.fail("a child ended the lease of its parent")


@pytest.mark.parametrize("use", ["lock", "lease"])
def test_a_forked_child_that_outlives_a_holder_holds_nothing_f_069(
    blobs: FileBlobStore, use: str
) -> None:
    take = getattr(blobs, use)
    read_end, write_end = os.pipe()
    with take("q"):
        pid = os.fork()
        if pid == 0:
            os.close(write_end)
            os.read(read_end, 1)  # until the parent has closed its end
            os._exit(0)
    with take("q"):
        pass
    os.close(write_end)
    os.close(read_end)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(("durability", "is_flushed"), [("full", True), ("rename", False)])
def test_the_removal_of_a_folder_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability, is_flushed: bool
) -> None:
    store = FileBlobStore(tmp_path / "base", durability=durability)
    store.put("q/a", b"1")
    store.delete("q/a")
    flushed: list[int] = []

    def flush(descriptor: int) -> None:
        if not (tmp_path / "base" / "q").exists():
            flushed.append(os.fstat(descriptor).st_ino)

    before_each_flush(monkeypatch, flush)
    store.remove_folder("q")
    assert not (tmp_path / "base" / "q").exists()
    base = (tmp_path / "base").stat().st_ino
    assert flushed == ([base] if is_flushed else [])
