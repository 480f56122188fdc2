"""`Workspace`: the text files of one folder, and the tools of the demo that read nothing else."""

import re
from collections import Counter
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from llm_common.folders.contained_file import ContainedFile
from llm_common.folders.exclusion import is_binary, is_hidden, usually_holds_secrets
from llm_common.folders.file_listing import ListedFile, list_paths, stat_files
from llm_common.ranking import folded, query_terms, scan, stem
from llm_common.redaction.redactor import DEFAULT_REDACTOR
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import Tool

_MAX_SEEN = 20_000
_MAX_FILES = 5_000
_MAX_FILE_BYTES = 512 * 1024
_MAX_TOTAL_BYTES = 24 * 1024 * 1024
_MAX_LISTED = 200
_MAX_LINES = 20
_MAX_LINES_PER_FILE = 5
_MAX_LINE_CHARS = 100
_MAX_SEARCHED_LINE_CHARS = 500  # a longer line is data, which holds any word
_MAX_READ_CHARS = 1_700
_MIN_PASSAGE_LINES = 6
_MAX_PASSAGE_LINES = 28


class Workspace:
    """The text files of a folder, found once and read at most once each.

    In a git checkout these are the files that git tracks or would track; elsewhere, every file
    below the folder except those that `.gitignore` files exclude. Skips, and counts in `skipped`:
    hidden files and folders, generated folders, files that usually hold secrets, binary files,
    files over 512 KB, links that lead out of the folder, and files beyond 5,000 or beyond 24 MB of
    text. Looks at the first 20,000 files of a very large folder. Keys and tokens that their shape
    gives away are redacted.

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
        """Text of a file when the workspace was opened.

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
        bytes_left = _MAX_TOTAL_BYTES
        for path, file in stat_files(self.root, islice(list_paths(self.root), _MAX_SEEN)):
            content = self._content(file) if file and len(self._texts) < _MAX_FILES else None
            if content is None or len(content) > bytes_left:
                self.skipped += 1
                continue
            bytes_left -= len(content)
            self._texts[path] = DEFAULT_REDACTOR.shapes(content.decode("utf-8", errors="replace"))

    def _content(self, file: ListedFile) -> bytes | None:
        """The bytes of a file worth showing, else None."""
        paths = (file.path, file.target or file.path)
        if is_hidden(file.path) or any(map(usually_holds_secrets, paths)):
            return None
        content = ContainedFile(self.root, file.path).read(max_bytes=_MAX_FILE_BYTES)
        return None if content is None or is_binary(content.data) else content.data


class WorkspaceTools:
    """Four tools over a workspace, as ordinary functions; every answer is bounded.

    Args:
        workspace: What they read.
        question: What the agent asks: `read_file` shows the passages nearest to it.
    """

    def __init__(self, workspace: Workspace, question: str) -> None:
        self._workspace = workspace
        self._question = question

    def registry(self) -> ToolRegistry:
        """The four tools, ready to be chosen from."""
        functions = (self.list_files, self.file_stats, self.grep, self.read_file)
        return ToolRegistry([Tool(function, read_only=True) for function in functions])

    def list_files(self) -> str:
        """List the files of the folder with their sizes."""
        paths = self._workspace.paths
        lines = [
            f"{path}  {len(self._workspace.text(path)):,} chars" for path in paths[:_MAX_LISTED]
        ]
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
            "by_kind": {
                kind: {"files": files[kind], "lines": count}
                for kind, count in lines.most_common(12)
            },
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
                (
                    -len({match.lower() for match in matches}),
                    path,
                    number,
                    line.strip()[:_MAX_LINE_CHARS],
                )
                for number, line in enumerate(self._workspace.text(path).splitlines(), start=1)
                if len(line) <= _MAX_SEARCHED_LINE_CHARS and (matches := pattern.findall(line))
            ]
            found += sorted(rows)[:_MAX_LINES_PER_FILE]
        files = len({path for _, path, _, _ in found})
        shown = [f"{path}:{number}: {line}" for _, path, number, line in sorted(found)[:_MAX_LINES]]
        return "\n".join(
            [f"{files} files have {' or '.join(beginnings)}; best {len(shown)} lines:", *shown]
        )

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
        return "\n\n".join(
            [f"{name}, {lines} lines; nearest to the question, best first:", *blocks]
        )


def word_beginnings(words: str) -> list[str]:
    """The words without English endings and stop words, so that "escaped" also finds "escape" and "ESCAPES"."""
    return list(dict.fromkeys(map(stem, query_terms(words))))


class Passage(NamedTuple):
    """Neighbouring lines of a text, which counts its lines from 1."""

    first_line: int
    last_line: int
    text: str


def split_passages(text: str) -> list[Passage]:
    """The text in passages of 6 to 28 lines that begin at an unindented line, where there is one.

    Together they are the whole text, in order; only the last one may be shorter.
    """
    passages: list[Passage] = []
    lines = text.splitlines()
    start = 0
    for number in range(1, len(lines) + 1):
        long_enough = number - start >= _MIN_PASSAGE_LINES
        after_gap = (
            number < len(lines)
            and not lines[number - 1].strip()
            and not lines[number][:1].isspace()
        )
        if (
            number == len(lines)
            or number - start >= _MAX_PASSAGE_LINES
            or (long_enough and after_gap and lines[number])
        ):
            passages.append(Passage(start + 1, number, "\n".join(lines[start:number])))
            start = number
    return passages


def nearest_passages(text: str, question: str, *, max_chars: int) -> list[Passage]:
    """The passages that share most with the question, best first.

    Skips a passage that does not fit.

    Args:
        text: What to read.
        question: What to look for. Where no passage has a word of it, the first passage is taken.
        max_chars: Limit for the sum of their characters; only the best passage may exceed it.
    """
    passages = split_passages(text)
    matches = scan(question, [(folded(passage.text),) for passage in passages], weights=(1.0,))
    found = sorted(zip(passages, matches, strict=True), key=lambda each: -each[1])
    ranked = [passage for passage, match in found if match] or passages[:1]
    chosen: list[Passage] = []
    chars_left = max_chars
    for passage in ranked:
        if len(passage.text) <= chars_left or not chosen:
            chosen.append(passage)
            chars_left -= len(passage.text)
    return chosen
