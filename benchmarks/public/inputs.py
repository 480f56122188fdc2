"""The public files that are measured: found in a folder, and checked by their SHA-256.

`inputs.toml` names each file by its repository, commit, path and hash. The folder has one entry
`{owner}+{name}` for a repository: a checkout, or a folder with the git directory `repo`.
"""

import hashlib
import io
import json
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["MANIFEST", "Input", "InputError", "Inputs", "manifest_of"]

MANIFEST: Final = Path(__file__).with_name("inputs.toml")


class InputError(Exception):
    """An input is missing, or is not the file that the manifest names."""


@dataclass(frozen=True)
class Input:
    """One file of a public repository.

    Attributes:
        repository: The owner and the name, as `owner/name`.
        commit: The full hash of the commit.
        path: The path within the repository.
        sha256: The SHA-256 of its bytes, in hexadecimal.
        licence: The licence of the data.
    """

    repository: str
    commit: str
    path: str
    sha256: str
    licence: str

    def __str__(self) -> str:
        return f"{self.path} of {self.repository} at {self.commit[:12]}"


def manifest_of(path: Path) -> dict[str, Input]:
    """Return the inputs of a manifest by name."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    inputs = {}
    for row in rows["source"]:
        for name, (file, sha256) in row["files"].items():
            inputs[name] = Input(row["repository"], row["commit"], file, sha256, row["licence"])
    return inputs


class Inputs:
    """Reads the files of a manifest from a folder.

    Args:
        folder: The folder with an entry for each repository.
        manifest: The inputs by name.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Input]) -> None:
        self.folder = folder
        self._manifest = manifest

    def read(self, name: str) -> bytes:
        """Return the bytes of an input.

        Raises:
            InputError: If the file is missing, or differs from the one in the manifest.
        """
        source = self._manifest[name]
        entry = self.folder / source.repository.replace("/", "+")
        data = _plain_file(entry / source.path)
        if data is None:
            data = _file_of_commit(entry / "repo", source)
        if data is None:
            raise InputError(f"missing: {source} is not in {entry}")
        _check(source, data)
        return data

    def files(self, name: str) -> dict[str, bytes]:
        """Return the bytes of the files of a folder by their names.

        Its SHA-256 is that of the lines that `sha256sum` prints for the files in their order.

        Raises:
            InputError: If the folder is missing, or differs from the one in the manifest.
        """
        source = self._manifest[name]
        entry = self.folder / source.repository.replace("/", "+")
        files = _plain_files(entry / source.path) or _files_of_commit(entry / "repo", source)
        if not files:
            raise InputError(f"missing: {source} is not in {entry}")
        lines = []
        for file, data in files.items():
            lines.append(f"{hashlib.sha256(data).hexdigest()}  {file}\n")
        _check(source, "".join(lines).encode())
        return files

    def json(self, name: str) -> Any:
        """Return the value of a JSON input."""
        return json.loads(self.read(name))

    def json_lines(self, name: str) -> list[dict[str, Any]]:
        """Return the values of an input with one JSON value a line."""
        return [json.loads(line) for line in self.text(name).splitlines() if line.strip()]

    def text(self, name: str) -> str:
        """Return the text of an input."""
        return self.read(name).decode("utf-8")

    def git_directory(self, repository: str) -> Path | None:
        """Return the git directory of a repository, or None if there is none.

        Names are compared without case, since data sets differ from GitHub in it.
        """
        wanted = repository.replace("/", "+").lower()
        for entry in self.folder.iterdir():
            if entry.name.lower() == wanted and (entry / "repo" / "HEAD").is_file():
                return entry / "repo"
        return None


def _plain_file(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _check(source: Input, data: bytes) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != source.sha256:
        raise InputError(f"different: {source} has the SHA-256 {found}, not {source.sha256}")


def _plain_files(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def _files_of_commit(git_directory: Path, source: Input) -> dict[str, bytes]:
    if not (git_directory / "HEAD").is_file():
        return {}
    command = ["git", "--git-dir", str(git_directory), "archive", f"{source.commit}:{source.path}"]
    packed = subprocess.run(command, check=False, capture_output=True).stdout
    files = {}
    if packed:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for member in sorted(archive, key=lambda member: member.name):
                file = archive.extractfile(member)
                if file is not None:
                    files[member.name] = file.read()
    return files


def _file_of_commit(git_directory: Path, source: Input) -> bytes | None:
    if not (git_directory / "HEAD").is_file():
        return None
    command = ["git", "--git-dir", str(git_directory), "cat-file", "blob"]
    shown = subprocess.run(
        [*command, f"{source.commit}:{source.path}"], check=False, capture_output=True
    )
    return shown.stdout if shown.returncode == 0 else None
