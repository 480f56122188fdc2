"""The tools that the demo gives to an agent: they read one workspace and nothing else, and every answer is bounded."""

import re
from collections import Counter
from pathlib import PurePosixPath

from llm_common.cli.workspace import Workspace
from llm_common.folders.passages import nearest_passages
from llm_common.ranking.lexical import query_terms
from llm_common.tools.registry import ToolRegistry

__all__ = ["WorkspaceTools", "word_beginnings"]

_MAX_LISTED = 200
_MAX_LINES = 20
_MAX_LINES_PER_FILE = 5
_MAX_LINE_CHARS = 100
_LONGEST_LINE = 500  # what is longer is data, which holds any word
_MAX_READ_CHARS = 1_700
_ENDING = re.compile(r"(?<=\w{4})(?:ing|ed|es|e|s)$")


class WorkspaceTools:
    """Four tools over a workspace, as ordinary functions.

    Args:
        workspace: What they read.
        question: What the agent is after: `read_file` shows the passages nearest to it.
    """

    def __init__(self, workspace: Workspace, question: str) -> None:
        self._workspace = workspace
        self._question = question

    def registry(self) -> ToolRegistry:
        """The four tools, ready to be chosen from."""
        return ToolRegistry([self.list_files, self.file_stats, self.grep, self.read_file])

    def list_files(self) -> str:
        """List the files of the folder with their sizes."""
        paths = self._workspace.paths
        lines = [f"{path}  {len(self._workspace.text(path)):,} chars" for path in paths[:_MAX_LISTED]]
        return "\n".join([f"{len(paths)} text files, {len(lines)} shown:", *lines])

    def file_stats(self) -> dict[str, object]:
        """Count files and lines of the folder by kind of file, and name the largest files."""
        texts = {path: self._workspace.text(path) for path in self._workspace.paths}
        files: Counter[str] = Counter()
        lines: Counter[str] = Counter()
        for path, text in texts.items():
            kind = PurePosixPath(path).suffix or PurePosixPath(path).name
            files[kind] += 1
            lines[kind] += text.count("\n")
        largest = sorted(texts, key=lambda path: (-len(texts[path]), path))[:5]
        return {
            "files": len(texts),
            "lines": lines.total(),
            "by_kind": {kind: {"files": files[kind], "lines": count} for kind, count in lines.most_common(12)},
            "largest": {path: len(texts[path]) for path in largest},
        }

    def grep(self, words: str) -> str:
        """Search the text of all files for words and show the lines that hold most of them.

        Args:
            words: Words to find, in any form and case, such as "escape strings".
        """
        beginnings = word_beginnings(words)
        if not beginnings:
            raise ValueError("there is no word to search for; give one or more words")
        pattern = re.compile("|".join(map(re.escape, beginnings)), re.IGNORECASE)
        found: list[tuple[int, str, int, str]] = []
        for path in self._workspace.paths:
            rows = [
                (-len({match.lower() for match in matches}), path, number, line.strip()[:_MAX_LINE_CHARS])
                for number, line in enumerate(self._workspace.text(path).splitlines(), start=1)
                if len(line) <= _LONGEST_LINE and (matches := pattern.findall(line))
            ]
            found += sorted(rows)[:_MAX_LINES_PER_FILE]
        files = len({path for _, path, _, _ in found})
        shown = [f"{path}:{number}: {line}" for _, path, number, line in sorted(found)[:_MAX_LINES]]
        return "\n".join([f"{files} files have {' or '.join(beginnings)}; best {len(shown)} lines:", *shown])

    def read_file(self, name: str) -> str:
        """Read a file: all of it when it is short, else the passages nearest to the question, best first.

        Args:
            name: The file as list_files names it, such as "src/main.py".
        """
        text = self._workspace.text(name)
        if len(text) <= _MAX_READ_CHARS:
            return f"{name}, whole:\n{text}"
        passages = nearest_passages(text, self._question, max_chars=_MAX_READ_CHARS)
        blocks = [
            f"[lines {passage.first_line}-{passage.last_line}]\n{passage.text.rstrip()[:_MAX_READ_CHARS]}"
            for passage in passages
        ]
        lines = len(text.splitlines())
        return "\n\n".join([f"{name}, {lines} lines; nearest to the question, best first:", *blocks])


def word_beginnings(words: str) -> list[str]:
    """The words without English endings and stop words, so that "escaped" also finds "escape" and "ESCAPES"."""
    return list(dict.fromkeys(_ENDING.sub("", word) for word in query_terms(words)))
