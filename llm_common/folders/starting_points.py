"""Which files introduce a folder, told by their names."""

from pathlib import PurePosixPath

__all__ = ["starting_point"]

_STEMS = ("readme", "__init__", "index", "main", "app", "lib")


def starting_point(path: str) -> int:
    """How early one should look into a file to learn what a folder is about; low for a readme, an entry point."""
    stem = PurePosixPath(path).stem.lower()
    return _STEMS.index(stem) if stem in _STEMS else len(_STEMS)
