"""Draw the tree of the searched files within a budget of tokens: `FileTree`."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from llm_common.parts.fill import fill
from llm_common.text.display import one_line, printable, without_headings

_MAX_NAME_CHARS: Final = 100
_INDENT: Final = "  "

# The parts of a path. Those of a folder are a prefix of those of its files.
_Node = tuple[str, ...]


class FileTree:
    """The folders of the searched files, with the number of files in each.

    The tree shows the packed files with their folders, best file first, and then as many other
    folders as fit, those with the shortest paths first. A line says how many it leaves out.

    Args:
        paths: The displayed paths of the searched files.
        named: The displayed paths of files that the caller named, searched or not.

    Attributes:
        total: Number of searched files.
    """

    def __init__(self, paths: Iterable[str], named: Iterable[str] = ()) -> None:
        self.total = 0
        self._files: Counter[_Node] = Counter()
        for path in paths:
            self.total += 1
            self._files.update(_folders(path))
        for path in named:
            self._files.update(dict.fromkeys(_folders(path), 0))
        self._by_depth = sorted(self._files, key=lambda folder: (len(folder), folder))

    def lines(
        self, packed: Sequence[str], *, max_tokens: int, frame: str, count: Callable[[str], int]
    ) -> str:
        """Return the lines of the tree, or "" if none fits.

        Args:
            packed: The displayed paths of the packed files, best first.
            max_tokens: The limit for the lines and the frame.
            frame: The text around the lines.
            count: Counts the tokens of a text.
        """
        nodes = [*self._nodes(packed)]

        def text_of(shown: Sequence[_Node]) -> str:
            lines = [self._line(node) for node in sorted(shown)]
            if len(shown) < len(nodes):
                lines.append(self._left_out(len(nodes) - len(shown)))
            return without_headings(printable("\n".join(lines)))

        frame_tokens = count(frame + self._left_out(len(self._files) + len(packed)))
        shown = fill(
            max_tokens - frame_tokens,
            nodes,
            lambda node: count(self._line(node) + "\n"),
            whole=lambda shown: count(frame + text_of(shown)) - frame_tokens,
        )
        return text_of(shown) if shown else ""

    def _nodes(self, packed: Sequence[str]) -> Iterator[_Node]:
        """Yield the packed files with their folders, and then the other folders, each once."""
        nodes: dict[_Node, None] = {}
        for path in packed:
            for folder in _folders(path):
                nodes[folder] = None
            nodes[tuple(path.split("/"))] = None
        yield from nodes
        for folder in self._by_depth:
            if folder not in nodes:
                yield folder

    def _line(self, node: _Node) -> str:
        name = _INDENT * (len(node) - 1) + one_line(node[-1], max_chars=_MAX_NAME_CHARS)
        if node not in self._files:
            return name
        files = self._files[node]
        if not files:
            return f"{name}/"
        return f"{name}/ ({files:,} {'file' if files == 1 else 'files'})"

    def _left_out(self, count: int) -> str:
        return f"[… {count:,} lines left out …]"


def _folders(path: str) -> list[_Node]:
    """Return the folders of a file, outermost first."""
    parts = path.split("/")
    return [tuple(parts[:depth]) for depth in range(1, len(parts))]
