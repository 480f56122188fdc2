"""Test hostile folders: circles of links, swaps after listing, slow rules, files with keys."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from llm_common.errors import ConfigError
from llm_common.folders import pack_folder
from tests.folders.tree import Pack, git, paths, write
from tests.secret_samples import LETTERS, made_of

PIT = "secret of another folder"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path, {"out/a.py": PIT})
    return write(
        tmp_path / "tree",
        {"a.py": "the port\n", "sub/a.py": "sub port\n", "b.py": "another port\n"},
    )


@pytest.mark.parametrize("checkout", ["none", "untracked", "tracked"])
def test_circles_of_links_are_left_out_and_counted_f_162(tree: Path, checkout: str) -> None:
    for name, target in {
        "l": "l",
        "x": "y",
        "y": "x",
        "sub/up": "..",
        "sub/l": "../sub/l",
        ".gitignore": "l",
    }.items():
        (tree / name).symlink_to(target)
    if checkout != "none":
        git(tree, "init", "-q")
    if checkout == "tracked":
        git(tree, "add", ".")
    pack = pack_folder("port", tree, hidden=True, exclude=[tree / "l"])
    assert pack.searched == 3
    assert pack.left_out == {"no plain file": 6}


TARGETS = {"file for link": "../out/a.py", "file for loop": "a.py", "folder for link": "../out"}


def swap(tree: Path, kind: str) -> None:
    """Put something else in the place of a file or of its folder."""
    gone = tree / ("sub" if kind == "folder for link" else "a.py")
    gone.rename(tree.parent / "moved")
    if kind == "file for pipe":
        os.mkfifo(gone)
    elif kind == "file for large":
        gone.write_text("port\n" * 300_000)
    else:
        gone.symlink_to(TARGETS[kind])


def at_once(
    change: Callable[[], object], step: str = "Reading what changed"
) -> Callable[..., None]:
    """Return a callback of a pack that makes a change when a step begins."""
    changes = [change]

    def progress(current: str, _done: int, _total: int) -> None:
        if current == step and changes:
            changes.pop()()

    return progress


@pytest.mark.parametrize("kind", ["file for pipe", "file for large", *TARGETS])
@pytest.mark.parametrize("step", ["Reading what changed", "Weighing the best files"])
def test_a_file_swapped_after_listing_is_left_out_f_164(tree: Path, kind: str, step: str) -> None:
    pack = pack_folder("port", tree, progress=at_once(lambda: swap(tree, kind), step))
    gone = "sub/a.py" if kind == "folder for link" else "a.py"
    assert {*paths(pack)} == {"a.py", "sub/a.py", "b.py"} - {gone}
    assert PIT not in pack.text
    assert pack.left_out == ({"unreadable": 1} if step == "Reading what changed" else {})


def test_a_swapped_named_file_is_left_out_f_164(tree: Path) -> None:
    progress = at_once(lambda: swap(tree, "file for pipe"), "Weighing the best files")
    assert pack_folder("port", tree / "a.py", progress=progress).files == ()


def test_a_swapped_file_is_read_once_restored_f_164(tree: Path) -> None:
    pack_folder("port", tree)
    (tree / "b.py").write_text("b port\n")
    times = (tree / "b.py").stat()
    kept = tree.parent / "kept"
    progress = at_once(lambda: (tree / "b.py").rename(kept))
    assert pack_folder("port", tree, progress=progress).left_out == {"unreadable": 1}
    kept.rename(tree / "b.py")
    os.utime(tree / "b.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "b.py" in {*paths(pack_folder("port", tree))}


# The names that the folders of projects hold keys under, with and without a dot.
SECRETS = """
    prod.env app.env secrets.env env.production aws_credentials credentials.csv service-account.json gcp-key.json
    client_secret_12.json firebase-adminsdk-a1.json kubeconfig terraform.tfstate terraform.tfvars htpasswd id_rsa.bak
    deploy_key server.key.old wp-config.php local.settings.json passwords.txt token.txt .env
"""
HIDDEN_SECRETS = ".git-credentials .pgpass .bash_history .dockercfg .envrc .npmrc .aws/config"


@pytest.mark.parametrize("hidden", [False, True])
def test_secret_files_are_left_out_and_counted_f_165(
    tree: Path, packed: Pack, hidden: bool
) -> None:
    names = [*SECRETS.split(), *HIDDEN_SECRETS.split()]
    pack = packed("port", dict.fromkeys(names, f"port {PIT}\n"), hidden=hidden)
    assert PIT not in pack.text
    assert pack.searched == 3
    folders = {} if hidden else {"hidden folder": 1}
    assert pack.left_out == {"secret": len(names) - len(folders), **folders}


def test_a_link_to_a_secret_file_is_left_out_f_165(tree: Path, packed: Pack) -> None:
    (tree / "notes.txt").symlink_to("prod.env")
    (tree / "real.txt").symlink_to("a.py")
    pack = packed("port secret", {"prod.env": PIT})
    assert PIT not in pack.text
    assert (pack.searched, pack.left_out) == (4, {"secret": 2})


def test_keys_in_packed_text_are_redacted_f_165(tree: Path) -> None:
    key = f"ghp_{made_of(LETTERS, 36)}"
    code = f'token = next(tokens)\npassword: str = field()\ndef port(key="{key}"):\n    ...\n'
    write(
        tree,
        {"src/keys.py": code, "named.env": f"port {key}\n", "long.py": "x = 1\n" * 3_000 + code},
    )
    pack = pack_folder("port key", tree, tree / "named.env")
    assert {"src/keys.py", "named.env", "long.py"} <= {*paths(pack)}
    assert key not in pack.text
    assert 'token = next(tokens)\npassword: str = field()\ndef port(key="[redacted]")' in pack.text
    outlined = pack_folder("port key", tree / "long.py", budget_tokens=256)
    assert key not in outlined.text


@pytest.mark.parametrize(
    ("files", "left_out"),
    [
        pytest.param(
            {
                **{f"{number}.bin": b"\0port" for number in range(5)},
                "node_modules/x.js": "port",
                "deep/site-packages/y.py": "port",
                ".venv/z.py": "port",
            },
            {"binary": 5, "generated folder": 2, "hidden folder": 1},
            id="files and folders",
        ),
        pytest.param(
            {
                ".gitignore": "node_modules/\n",
                "node_modules/x.js": "port",
                "vendor/y.py": "port",
                ".git/z": "port",
            },
            {"hidden": 1, "generated folder": 1},
            id="a folder that git ignores",
        ),
    ],
)
def test_files_that_are_not_searched_are_counted(
    tree: Path, files: dict[str, str | bytes], left_out: dict[str, int]
) -> None:
    pack = pack_folder("port", write(tree, files))
    assert (pack.searched, pack.read, pack.left_out) == (3, 3, left_out)


@pytest.mark.parametrize("time_s", [300_000_000_000, 0, -10_000_000_000])
@pytest.mark.skipif(
    not Path("/dev/shm").is_dir(), reason="needs a file system that keeps such times"
)
def test_modification_times_beyond_the_calendar_are_accepted(time_s: int) -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        write(Path(folder), {"a.py": "port"})
        os.utime(Path(folder, "a.py"), (time_s, time_s))
        assert paths(pack_folder("port", folder)) == ["a.py"]


@pytest.mark.parametrize(("name", "line"), [("a.md", "# port\n"), ("a.java", "    class Port {\n")])
def test_a_file_of_only_definitions_is_divided_in_linear_time(
    packed: Pack, name: str, line: str
) -> None:
    # 20 s for headings, if each read all those above it
    assert f"### {name} (" in packed("port", {name: line * 20_000}, budget_tokens=2_000).text


@pytest.mark.parametrize("end", ["\r", "\r\n"])
def test_all_line_endings_are_accepted(tree: Path, packed: Pack, end: str) -> None:
    filler = end.join(f"    x_{number} = {number}" for number in range(90))
    lines = ["class Harbour:", filler, "    def port(self):", "        return 'quay'", ""]
    files = {"harbour.py": end.join(lines)}
    pack = packed("where is the quay of the port()", files, budget_tokens=400)
    assert pack.files[0].path == "harbour.py"
    assert "    def port(self):\n        return 'quay'\n" in pack.text


@pytest.mark.parametrize(("before", "end"), [("\ufeff", "\n"), ("", "\r\n")])
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("moorBoat", "export function moorBoat(boat) {\n}\n"),
        ("castOff", "class Quay {\n    castOff(rope) {\n    }\n}\n"),
    ],
)
def test_definitions_are_found_in_files_with_crlf(
    packed: Pack, name: str, code: str, before: str, end: str
) -> None:
    files = {
        "a.ts": before + code.replace("\n", end),
        "b.ts": f"{name}(b) // moor boat, cast off\n",
    }
    assert packed(f"what does {name}() do", files).files[0].path == "a.ts"


def test_an_unreadable_folder_does_not_affect_others(tree: Path) -> None:
    names = ["deep" * 60] * 18  # over the 4,096 bytes of a path
    place = os.open(tree, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=place)
        inner = os.open(name, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    pack = pack_folder("port", tree)
    assert (pack.searched, pack.left_out) == (3, {"unreadable": 1})


@pytest.mark.parametrize("checkout", [False, True])
def test_a_link_into_the_git_folder_is_left_out_f_165(tree: Path, checkout: bool) -> None:
    if checkout:
        write(tree, {"old/config": "port"})
        git(tree, "init", "-q")
        git(tree, "add", "old")
        (tree / "old").rename(tree.parent / "moved")
        (tree / "old").symlink_to(".git")  # git still lists the file that it tracks there
    write(tree, {".git/config": f"[port]\nurl = {PIT}\n"})
    (tree / "notes.txt").symlink_to(".git/config")
    pack = pack_folder("port", tree)
    assert PIT not in pack.text
    assert pack.left_out["secret"] == 1 + checkout


def test_a_removed_working_directory_is_not_needed(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tree.parent / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert {*paths(pack_folder("port", tree))} == {"a.py", "b.py", "sub/a.py"}
    with pytest.raises(ConfigError):
        pack_folder("port")
