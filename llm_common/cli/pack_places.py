"""The folders and files that a pack reads, and the paths that it shows them by."""

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["packed_places", "shown_file"]


def packed_places(paths: Sequence[Path]) -> tuple[dict[str, Path], dict[str, Path]]:
    """The folders by what their paths are shown with in front, and the other paths by the path to show.

    A folder within another one goes without saying. Paths are shown as they can be opened from the working directory;
    below a single folder elsewhere they are relative to it, below several the folder's name stands in front.

    Args:
        paths: Existing folders and files.
    """
    roots = {path.resolve() for path in paths if path.is_dir()}
    outermost = sorted(root for root in roots if roots.isdisjoint(root.parents))
    folders: dict[str, Path] = {}
    for root in outermost:
        folders[_prefix(root, folders, alone=len(outermost) == 1)] = root
    files = [path.resolve() for path in paths if not path.is_dir()]
    return folders, {shown_file(file, folders): file for file in files}


def shown_file(file: Path, folders: Mapping[str, Path]) -> str:
    """The path to show for a file.

    Args:
        file: Resolved.
        folders: By what their paths are shown with in front.
    """
    for prefix, root in folders.items():
        if file.is_relative_to(root):
            return prefix + file.relative_to(root).as_posix()
    here = Path.cwd()
    return file.relative_to(here).as_posix() if file.is_relative_to(here) else file.as_posix()


def _prefix(root: Path, taken: Mapping[str, Path], *, alone: bool) -> str:
    if root.is_relative_to(here := Path.cwd()):
        below = root.relative_to(here).as_posix()
        return "" if below == "." else f"{below}/"
    if alone:
        return ""
    return f"{root.as_posix()}/" if f"{root.name}/" in taken else f"{root.name}/"
