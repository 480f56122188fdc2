"""Folders with the files of one commit after another, written from a git directory."""

import io
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["Tree"]

_REGULAR_FILE: Final = b"100"


class Tree:
    """A folder that moves from commit to commit of a repository.

    Only files that differ are written. The time of a file depends on its contents, so that an index
    of the folder reads a file again exactly when it changed. All times are in the second in which
    the folder was created, as in a fresh clone.

    Args:
        git_directory: The git directory. Files that it lacks are left out.
        folder: The folder, which must be empty.
    """

    def __init__(self, git_directory: Path, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, str] = {}
        self._git = ["git", "--git-dir", str(git_directory)]
        self._second_ns = int(time.time()) * 1_000_000_000

    def has(self, commit: str) -> bool:
        """Return whether the git directory has a commit."""
        command = [*self._git, "cat-file", "-e", f"{commit}^{{tree}}"]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def move_to(self, commit: str) -> None:
        """Write the regular files of a commit. `files` has their hashes by path."""
        wanted = self._listed(commit)
        for path in self.files.keys() - wanted.keys():
            self._remove(path)
        changed = [path for path, blob in wanted.items() if self.files.get(path) != blob]
        missing = self._write(changed, wanted)
        self.files = {path: blob for path, blob in wanted.items() if path not in missing}

    def _listed(self, commit: str) -> dict[str, str]:
        command = [*self._git, "ls-tree", "-r", "-z", commit]
        listed = subprocess.run(command, check=True, capture_output=True).stdout
        files = {}
        for entry in listed.split(b"\0"):
            about, _, path = entry.partition(b"\t")
            if about.startswith(_REGULAR_FILE):
                files[os.fsdecode(path)] = about.split()[2].decode()
        return files

    def _write(self, paths: list[str], blobs: Mapping[str, str]) -> set[str]:
        """Write files, and return those whose contents the git directory lacks."""
        request = "".join(f"{blobs[path]}\n" for path in paths).encode()
        command = [*self._git, "cat-file", "--batch"]
        objects = io.BytesIO(
            subprocess.run(command, check=True, input=request, capture_output=True).stdout
        )
        missing = set()
        for path in paths:
            about = objects.readline().split()
            if about[1] == b"missing":
                missing.add(path)
                if path in self.files:
                    self._remove(path)
                continue
            self._write_file(path, blobs[path], objects.read(int(about[2])))
            objects.readline()
        return missing

    def _remove(self, path: str) -> None:
        """Remove a file, and the folders that it leaves empty, which may be files next."""
        file = self.folder / path
        file.unlink()
        for parent in file.parents:
            if parent == self.folder or any(parent.iterdir()):
                break
            parent.rmdir()

    def _write_file(self, path: str, blob: str, data: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        changed_ns = self._second_ns + int(blob[:7], 16)  # below a third of a second
        os.utime(file, ns=(changed_ns, changed_ns))
