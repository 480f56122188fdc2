"""`llm-common pack --copy` with a program as the clipboard."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from llm_common.apps.cli.app import app
from llm_common.folders import pack_folder
from tests.apps.cli.running import run
from tests.folders.tree import PROGRAM, write

# As xclip: `-o` prints the clipboard, otherwise stdin is the new one.
XCLIP = """#!/bin/sh
case "$*" in
*-o*) exec cat "$CLIPBOARD_FILE" ;;
*) exec cat > "$CLIPBOARD_FILE" ;;
esac
"""
WITHOUT_DISPLAY = "#!/bin/sh\necho 'cannot open the display' >&2\nexit 1\n"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="other systems have a clipboard without a program"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "jars", {"cookies.py": "def expire_cookie(jar):\n    return 'ä'\n"})


def pack(
    tmp_path: Path, *arguments: str | Path, xclip: str = XCLIP, display: str | None = ":99"
) -> subprocess.CompletedProcess[str]:
    write(tmp_path / "bin", {"xclip": xclip})
    (tmp_path / "bin/xclip").chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "CLIPBOARD_FILE": str(tmp_path / "clipboard"),
        "DISPLAY": display or "",
        "WAYLAND_DISPLAY": "",
    }
    command = [sys.executable, "-c", PROGRAM, "pack", *arguments]
    command += ["--cache-dir", tmp_path / "cache"]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_the_text_is_copied_and_not_printed(tmp_path: Path, folder: Path) -> None:
    result = pack(tmp_path, "expire the cookie", folder, "--question", "--copy")
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    packed = pack_folder("expire the cookie", folder, question=True, cache_dir=tmp_path / "cache")
    assert (tmp_path / "clipboard").read_text(encoding="utf-8") == packed.text
    assert result.stderr.endswith(f"Copied {packed.tokens:,} tokens to the clipboard.\n")
    assert "cookies.py" in result.stderr


def test_without_a_clipboard_nothing_is_searched_and_output_is_named(
    tmp_path: Path, folder: Path
) -> None:
    result = pack(tmp_path, "expire the cookie", folder, "--copy", display=None)
    assert (result.returncode, result.stdout) == (1, "")
    assert "There is no clipboard" in result.stderr
    assert "Use --output FILE" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("xclip", "message"),
    [
        (WITHOUT_DISPLAY, "did not take the text"),
        ("#!/no/such/interpreter\n", "cannot be used"),
        (XCLIP.replace('cat "$CLIPBOARD_FILE"', "printf '\\377'"), "cannot be used"),
    ],
)
def test_a_clipboard_that_fails_is_no_success(
    tmp_path: Path, folder: Path, xclip: str, message: str
) -> None:
    result = pack(tmp_path, "expire the cookie", folder, "--copy", xclip=xclip)
    assert (result.returncode, result.stdout) == (1, "")
    assert message in result.stderr
    assert "Use --output FILE" in result.stderr
    assert "Copied" not in result.stderr
    assert "Traceback" not in result.stderr


def test_without_a_match_the_clipboard_keeps_its_text(tmp_path: Path, folder: Path) -> None:
    write(tmp_path, {"clipboard": "before"})
    assert pack(tmp_path, "xylophone", folder, "--copy").returncode == 3
    assert (tmp_path / "clipboard").read_text() == "before"


@pytest.mark.parametrize("other", [["--json"], ["--output", "packed.md"]])
def test_a_text_goes_to_one_place(folder: Path, other: list[str]) -> None:
    result = CliRunner().invoke(app, ["pack", "cookie", str(folder), "--copy", *other])
    assert result.exit_code == 2
    assert f"cannot be used with {other[0]}" in " ".join(result.stderr.split())


def test_without_the_package_the_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyperclip", None)
    result = run("pack", "cookie", folder, "--copy", code=2)
    assert "--copy needs pyperclip" in " ".join(result.stderr.split())
