"""Which files a request names."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from llm_common.context.pool import ContextFile
from llm_common.context.request import ContextSelectionRequest

__all__ = ["MentionFinder", "mentioned_files"]

_RUN: Final = re.compile(r"[0-9a-z_]+|[^\W0-9a-z_]+")
_SEPARATOR: Final = re.compile(r"[/\\]")
_NO_PATH: Final = re.compile(r"[^\w.@+~$/\\-]")
_LONGEST_PATH: Final = 1_024
# What continues a name: `my-config.ts`, `config.ts.bak`, `config.ts~` and `main.c++` do not name `config.ts`, `main.c`.
_CONTINUED_BEFORE: Final = re.compile(r"[0-9a-z_~.]\Z|[0-9a-z_]-\Z")
_CONTINUED_AFTER: Final = re.compile(r"[0-9a-z_/\\~]|[.@-][0-9a-z_]|\+\+")
_QUOTES: Final = frozenset("'\"`\u2018\u2019\u201c\u201d\u00ab\u00bb")
_ACRONYM_CHARS: Final = 3


def mentioned_files(files: Sequence[ContextFile], request: ContextSelectionRequest) -> frozenset[str]:
    """Ids of the files that the request's text or one of its priority hints names; see `MentionFinder`."""
    hints = "\n".join(f'"{hint}"' for hint in request.priority_hints)
    text = f"{request.intent.text}\n{hints}"
    lowered = text.lower()
    return MentionFinder(file for file in files if any(name.lower() in lowered for name in _spellings(file))).find(text)


class _Named(NamedTuple):
    file_id: str
    path: str


class MentionFinder:
    """Finds the files that a text names by path or by name, at token boundaries, in any case (S1-09).

    A name without an extension that may be a word, such as `build`, counts only within quotes or after a folder;
    `README` and `Makefile` are no such words. A name after a path, as in `src/config.ts`, means the files whose path
    ends that way, or else those whose path the text's ends with, as when it is absolute. One pass over the text,
    however many files.

    Args:
        files: The files to look for.
    """

    def __init__(self, files: Iterable[ContextFile]) -> None:
        self._files: dict[str, list[_Named]] = {}
        self._words: set[str] = set()
        for file in files:
            named = _Named(file.id, file.path.lower())
            for spelling in _spellings(file):
                name = spelling.lower()
                self._files.setdefault(name, []).append(named)
                if _may_be_a_word(spelling):
                    self._words.add(name)
        self._names: dict[str, list[tuple[int, str]]] = {}
        for name in self._files:
            if key := _longest_run(name):
                self._names.setdefault(key.group(), []).append((key.start(), name))

    def find(self, text: str) -> frozenset[str]:
        """Ids of the files that the text names."""
        text = text.lower()
        found: set[str] = set()
        for run in _RUN.finditer(text):
            for offset, name in self._names.get(run.group(), ()):
                start = run.start() - offset
                if start >= 0 and text.startswith(name, start) and _is_whole(text, start, start + len(name)):
                    found.update(self._named_at(text, start, name))
        return frozenset(found)

    def _named_at(self, text: str, start: int, name: str) -> list[str]:
        files, end = self._files[name], start + len(name)
        before, after = text[start - 1 : start], text[end : end + 1]
        if before in {"/", "\\"}:
            return _named_by_path(text, start, end, files)
        if name in self._words and not (before in _QUOTES and after in _QUOTES):
            return []
        return [file.file_id for file in files]


def _spellings(file: ContextFile) -> set[str]:
    return {_basename(file.path), _basename(file.name)}


def _may_be_a_word(name: str) -> bool:
    acronym = name.isupper() and len(name) >= _ACRONYM_CHARS
    return name.isalnum() and not acronym and not (name.endswith("file") and name[0].isupper())


def _longest_run(name: str) -> re.Match[str] | None:
    """The run of word characters that a name is looked up by; an extension is shared by too many names."""
    stem = name.rpartition(".")[0] or name
    return max(_RUN.finditer(stem), key=lambda run: len(run.group()), default=None)


def _is_whole(text: str, start: int, end: int) -> bool:
    return not _CONTINUED_BEFORE.search(text[max(0, start - 2) : start]) and not _CONTINUED_AFTER.match(text, end)


def _named_by_path(text: str, start: int, end: int, files: Sequence[_Named]) -> list[str]:
    """Of files of one name the ones that the path before the name leads to, the closest fit alone."""
    folder = _NO_PATH.split(text[max(0, start - _LONGEST_PATH) : start])[-1]
    components = _components(folder + text[start:end])
    fits = [(_fit(components, file, text, end), file.file_id) for file in files]
    closest = max(fit for fit, _ in fits)
    return [file_id for fit, file_id in fits if fit == closest > 0]


def _fit(components: tuple[str, ...], file: _Named, text: str, end: int) -> float:
    """Best where the text's path ends the file's, then the longer the file's path that ends the text's; else 0."""
    own = _components(file.path)
    if own[-len(components) :] == components:
        return math.inf
    start = end - len(file.path)
    spelled_out = start >= 0 and text.startswith(file.path, start) and _is_whole(text, start, end)
    return len(own) if spelled_out or components[-len(own) :] == own else 0


def _components(path: str) -> tuple[str, ...]:
    return tuple(part for part in _SEPARATOR.split(path) if part not in {"", "."})


def _basename(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
