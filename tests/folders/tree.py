"""Write small trees for tests."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from llm_common.folders import FolderPack
from llm_common.folders.file_listing import ListedFile, list_paths, stat_files

# The command as a process. A parent that ignores SIGINT, as a shell does for what it starts in the
# background, must not make the child ignore it.
PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from llm_common.apps.cli import main; main()"
)


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def write_old(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files that changed long ago: a change within the same tick may be missed."""
    write(folder, files)
    for name in files:
        os.utime(folder / name, (1_000_000, 1_000_000))
    return folder


Pack = Callable[..., FolderPack]
"""Writes files into the folder `tree` of a test, and packs it for a question."""


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


def listed(folder: Path) -> list[ListedFile]:
    return [file for _, file in stat_files(folder, list_paths(folder)) if file]


def paths(pack: FolderPack) -> list[str]:
    return [file.path for file in pack.files]
