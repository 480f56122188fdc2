"""`FileReader`: what the index holds of a file."""

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llm_common.folders.exclusion import MAX_FILE_BYTES, LeftOut, left_out_by_content
from llm_common.folders.file_listing import ListedFile
from llm_common.folders.symbols import defined_names
from llm_common.ranking.lexical import split_identifiers

__all__ = ["FileReader", "FileWords"]

_WORD = re.compile(r"\w+")
_INDEXED_BYTES = 250_000  # what follows in so long a file repeats its words
_UNSURE_NS = 2_000_000_000  # a file may change again within one tick of its clock without a trace in its times
_MOST_WORDS = 500_000


@dataclass(frozen=True, slots=True)
class FileWords:
    """A file as the index takes it.

    Attributes:
        file: Its path, and its size and time of change before it was read; time 0 when that tells nothing, so that it
            is read again the next time.
        sha256: Of its content.
        left_out: Why it is not searched, if so.
        words: By `contents`, `paths` and `symbols`; None when it is not searched, or is as the index has it.
    """

    file: ListedFile
    sha256: bytes
    left_out: LeftOut | None
    words: Mapping[str, str] | None


class FileReader:
    """Reads the files of one folder, and splits their words, each word once: a tree repeats its words.

    Args:
        root: The folder.
        generated: Whether generated files are taken in.
    """

    def __init__(self, root: Path, *, generated: bool) -> None:
        self._root = root
        self._generated = generated
        self._split = _SplitWords()

    def read(self, file: ListedFile, known_sha256: bytes | None) -> FileWords:
        """The file as it is now.

        Args:
            file: What to read.
            known_sha256: Of the content that the index has, if any.
        """
        left_out: LeftOut | None = "too large" if file.size > MAX_FILE_BYTES else None
        settled = time.time_ns() - file.mtime_ns > _UNSURE_NS
        try:
            content = b"" if left_out else (self._root / file.path).read_bytes()
        except OSError:
            content, left_out, settled = b"", "unreadable", False
        digest = hashlib.sha256(content + bool(left_out).to_bytes()).digest()
        left_out = left_out or left_out_by_content(content, generated=self._generated)
        words = None
        if left_out is None and digest != known_sha256:
            text = content[:_INDEXED_BYTES].decode("utf-8", errors="replace")
            texts = {"contents": text, "paths": file.path, "symbols": defined_names(file.path, text)}
            words = {name: self._split.of(value) for name, value in texts.items()}
        stamp = file.mtime_ns if settled else 0
        return FileWords(ListedFile(file.path, file.size, stamp), digest, left_out, words)


class _SplitWords(dict[str, str]):
    """`split_identifiers` by word."""

    def of(self, text: str) -> str:
        if len(self) > _MOST_WORDS:
            self.clear()
        return " ".join(map(self.__getitem__, _WORD.findall(text)))

    def __missing__(self, word: str) -> str:
        # Most words have nothing to split, and numbers should not be.
        plain = word.isascii() and ((word.isalpha() and word.islower()) or word[0].isdigit())
        words = self[word] = word if plain else split_identifiers(word)
        return words
