"""`IgnoreRules`: what the `.gitignore` files of a folder leave out, where git itself cannot be asked."""

from collections.abc import Iterable
from pathlib import Path

from pathspec import GitIgnoreSpec

__all__ = ["IgnoreRules"]

_MAX_BYTES = 1024 * 1024


class IgnoreRules:
    """The rules of the `.gitignore` files from one folder down, each applied below the folder that it stands in.

    As in git, the file that is nearest decides, and in it the last rule that matches; what nobody has a rule for is
    kept. Feed every folder to `enter` before asking about what is in it, parents first.

    Args:
        root: The folder that paths are relative to.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._specs: dict[str, GitIgnoreSpec] = {}

    def enter(self, folder: str) -> None:
        """Reads the rules of a folder, "" for the root; one that has none, or none that can be read, adds nothing."""
        file = self._root / folder / ".gitignore"
        try:
            if not file.is_file() or file.stat().st_size > _MAX_BYTES:
                return
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return
        self._specs[folder] = GitIgnoreSpec.from_lines(_valid(lines))

    def ignores(self, path: str) -> bool:
        """Whether a path is left out; a folder's path ends with a slash."""
        folder = path.rstrip("/")
        while folder:
            folder = folder.rpartition("/")[0]
            spec = self._specs.get(folder)
            verdict = spec.check_file(path[len(folder) :].lstrip("/")).include if spec else None
            if verdict is not None:
                return verdict
        return False


def _valid(lines: Iterable[str]) -> Iterable[str]:
    """The lines that are rules; git passes over the others."""
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        yield line
