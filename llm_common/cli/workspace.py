"""`Workspace`: the text files of one folder, and nothing outside it."""

from itertools import islice
from pathlib import Path, PurePosixPath

from llm_common.folders.exclusion import is_binary, is_hidden
from llm_common.folders.file_listing import ListedFile, list_paths, stat_files

__all__ = ["Workspace"]

_MAX_SEEN = 20_000
_MAX_FILES = 5_000
_MAX_FILE_BYTES = 512 * 1024
_MAX_TOTAL_BYTES = 24 * 1024 * 1024


class Workspace:
    """The text files of a folder, found once and read at most once each.

    In a git checkout these are the files that git tracks or would track, so `.gitignore` is respected; elsewhere
    every file below the folder except in generated folders. Left out and counted in `skipped`: hidden files and
    folders (they may hold secrets), binary files, files over 512 KB, links that lead out of the folder, and what
    exceeds 5,000 files or 24 MB of text. Of a very large folder the first 20,000 files are looked at.

    Args:
        root: An existing folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.name = self.root.name or "/"
        self.skipped = 0
        self._texts: dict[str, str] = {}
        self._load()
        self.paths = tuple(sorted(self._texts))

    def text(self, path: str) -> str:
        """Text of a file, as it was when the workspace was opened.

        Args:
            path: One of `paths`; `./` before it and backslashes are accepted.

        Raises:
            ValueError: The folder has no such text file. Nothing outside `paths` is ever opened.
        """
        key = str(PurePosixPath(path.strip().replace("\\", "/")))
        if key not in self._texts:
            raise ValueError("no such text file in the folder; take a path from list_files")
        return self._texts[key]

    def _load(self) -> None:
        room = _MAX_TOTAL_BYTES
        for path, file in stat_files(self.root, islice(list_paths(self.root), _MAX_SEEN)):
            content = self._content(file) if file and len(self._texts) < _MAX_FILES else None
            if content is None or len(content) > room:
                self.skipped += 1
                continue
            room -= len(content)
            self._texts[path] = content.decode("utf-8", errors="replace")

    def _content(self, file: ListedFile) -> bytes | None:
        """The bytes of a file worth showing, else None."""
        if file.size > _MAX_FILE_BYTES or is_hidden(file.path):
            return None
        try:
            content = (self.root / file.path).read_bytes()
        except OSError:
            return None
        return None if is_binary(content) else content
