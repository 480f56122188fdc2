"""Test `ContainedFile` with folders that change while they are read."""

import os
import sys
from pathlib import Path

import pytest

from llm_common.folders.contained_file import ContainedFile, decoded
from tests.folders.tree import write
from tests.programs import printed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(
        tmp_path,
        {
            "out/secret": "secret",
            "in/sub/a.txt": "inside",
            "in/large": "x" * 101,
            "in/full": "x" * 100,
        },
    )
    root = tmp_path / "in"
    (root / "same").symlink_to("sub/a.txt")
    (root / "also").symlink_to("sub")
    (root / "loop").symlink_to("loop")
    (root / "absolute").symlink_to(tmp_path / "out/secret")
    (root / "relative").symlink_to("../out/secret")
    (root / "folder").symlink_to("../out")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("sub/a.txt", b"inside"),
        ("same", b"inside"),
        ("also/a.txt", b"inside"),
        ("full", b"x" * 100),
        ("large", None),
        ("absent", None),
        ("sub", None),
        ("loop", None),
        ("loop/a.txt", None),
        ("pipe", None),
        ("absolute", None),
        ("relative", None),
        ("folder/secret", None),
        ("../out/secret", None),
        ("nul\0", None),
    ],
)
def test_a_regular_file_of_the_folder_is_read_f_164(
    root: Path, path: str, expected: bytes | None
) -> None:
    content = ContainedFile(root, path).read(max_bytes=100)
    assert content == expected


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("naïve €\r\n".encode(), "naïve €\n"),
        ("naïve €\n".encode("utf-8-sig"), "naïve €\n"),
        ("naïve €\n".encode("utf-16"), "naïve €\n"),
        (b"\xfe\xff" + "naïve €\n".encode("utf-16-be"), "naïve €\n"),
        ("naïve €\n".encode("cp1252"), "naïve €\n"),
        ("naïve ".encode() + "€\n".encode("cp1252"), "naïve €\n"),
        (b"a\x81b", "a\ufffdb"),
    ],
)
def test_encodings_of_windows_are_read_f_164(root: Path, data: bytes, text: str) -> None:
    (root / "w.sql").write_bytes(data)
    content = ContainedFile(root, "w.sql").read(max_bytes=100)
    assert content is not None
    assert decoded(content) == text
    assert decoded(content[:5]).startswith(text[:1])


@pytest.mark.skipif(
    sys.platform != "linux", reason="needs a file that is longer than its size says"
)
def test_a_growing_file_is_not_read_beyond_the_limit() -> None:
    process = Path("/proc").resolve() / str(os.getpid())
    assert (process / "status").stat().st_size == 0
    assert ContainedFile(process, "status").read(max_bytes=10) is None


# At the instant of an `os.open`, before it is done, the file or its folder is swapped.
SWAPPED_WHILE_OPENING = """
import os, sys
from pathlib import Path
from llm_common.folders.contained_file import ContainedFile, decoded

root = Path(sys.argv[1])
swaps = {
    "a.txt": lambda: (root / "sub/a.txt").unlink() or (root / "sub/a.txt").symlink_to(root.parent / "out/secret"),
    "b.txt": lambda: (root / "sub/b.txt").unlink() or os.mkfifo(root / "sub/b.txt"),
    "deep": lambda: (root / "deep").rename(root / "gone") or (root / "deep").symlink_to(root.parent / "out"),
}

def swap(event, args):
    if event == "open" and (change := swaps.pop(args[0], None)):
        change()

sys.addaudithook(swap)
for path in ("sub/a.txt", "sub/b.txt", "deep/secret"):
    print(ContainedFile(root, path).read(max_bytes=100))
print(*swaps, len(os.listdir("/dev/fd")))
print(ContainedFile(root, "sub/c.txt").read(max_bytes=100), len(os.listdir("/dev/fd")))
"""


def test_a_file_swapped_during_open_is_not_followed_f_164(root: Path) -> None:
    write(root, {"sub/b.txt": "b", "sub/c.txt": "c", "deep/secret": "inside"})
    lines = printed(SWAPPED_WHILE_OPENING, root, timeout=30).splitlines()
    assert lines[:3] == ["None"] * 3
    # all swaps were made, and no descriptor stays open
    assert lines[3].split() == lines[4].split()[1:]
    assert lines[4].startswith("b'c'")


def test_a_system_without_openat_reads_the_same_f_164(root: Path) -> None:
    program = (
        "import os, sys\nfrom importlib import reload\nfrom pathlib import Path\n"
        "from llm_common.folders import contained_file\n"
        "del os.O_NOFOLLOW, os.O_NONBLOCK, os.O_DIRECTORY, "
        "os.O_CLOEXEC\nos.supports_dir_fd.clear()\n"
        "for path in ('sub/a.txt', 'same', 'relative', 'folder/secret', 'large'):\n"
        "    content = reload(contained_file).ContainedFile(Path(sys.argv[1]), "
        "path).read(max_bytes=100)\n"
        "    print(content)\n"
    )
    assert printed(program, root).splitlines() == ["b'inside'", "b'inside'", "None", "None", "None"]
