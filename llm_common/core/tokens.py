"""How many tokens a text takes: an upper bound that needs nothing, and an exact count behind the extra `tokens`."""

import re
import sys
import threading
from collections.abc import Callable, Container, Mapping
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Literal, Protocol, runtime_checkable

import orjson

from llm_common.errors import ConfigError

__all__ = ["ExactCounter", "TokenCounter", "UpperBoundCounter"]

EncodingName = Literal["cl100k_base", "o200k_base"]

# Where both tokenizers cut a text, in the order in which they try: an apostrophe's ending; a word without a change
# from small to capital letters; three digits; blanks that end in line ends; blanks but the last one, which may join
# what follows; marks with the space before and the line ends after them; anything beyond ASCII with the space before
# it; a blank alone. A space that joins a word is left out. What an alternative looks at and refuses, a later one
# consumes: linear time.
_PIECE = re.compile(
    r"'(?:[sdmtSDMT]|[lL][lL]|[vV][eE]|[rR][eE])"
    r"|[a-z]+|[A-Z]+[a-z]*|[0-9]{1,3}"
    r"|[ \t\f\v]*+[\r\n]+|[ \t\f\v]+(?=[ \t\f\v])"
    r"| ?[\0-\x08\x0e-\x1f!-/:-@\[-`{-\x7f]+(?:[\r\n]+/*)?"
    r"| ?[^\0-\x7f]+| (?![A-Za-z])|[\t\f\v]"
)
# The pairs that cl100k_base joins first, across the change of case at which o200k_base cuts.
_ACROSS_CASE = re.compile(r"x[A-F]|d[BT]|k[BJ]|u[CD]|aN|gL|iT|mA|nP|oS|zM")
_MAX_SPACES = 79  # both vocabularies hold every run of spaces up to here
# No piece reaches over the end of a line, but for line ends that follow each other, and slashes that begin a line.
_LINES = re.compile(r"[^\r\n]*[\r\n]+(?:/[^\r\n]*[\r\n]*)*|[^\r\n]+")
_MAX_LINE_CHARS = 200
_MAX_REMEMBERED = 65_536
_BINDINGS = "bpe_openai._bindings"
_LOADING = threading.Lock()


@runtime_checkable
class TokenCounter(Protocol):
    """Something that counts tokens; one method, safe to share between tasks and threads."""

    def count(self, text: str) -> int:
        """The number of tokens of the text, or a bound that is never below it."""


class UpperBoundCounter:
    """A bound on what cl100k_base and o200k_base make of a text, without vocabulary, network or extra.

    A text is cut where both tokenizers cut it. A piece that both know whole is one token. For other words and runs of
    marks the bound is the longest way to cut them so that no two neighbours join into a known piece: byte pair encoding
    only stops when no two neighbours join (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909), so its own cut is
    one of those. Beyond ASCII, a character that is no token of its own counts as its UTF-8 bytes.

    That is proven for a piece alone. That pieces side by side stay within the sum is checked by sampling: about one of
    100,000 random joins of words across a change of case (`untoEquality`) takes one token more in cl100k_base; no text
    of more than a few words was seen to.

    Measured against the larger of the two exact counts: English prose 1.25 to 1.6 times, code 1.1 to 1.4, JSON 1.2,
    base64 1.1, Chinese 1.2, French 1.6, Russian 2.2. Linear in the length, about 5 MB a second; lines that were counted
    before are remembered by the counter, up to 65,536 of at most 200 characters, and cost a tenth. Other models'
    tokenizers differ: where a budget must be exact, use that model's own counter.
    """

    def __init__(self) -> None:
        self._of_lines = _Remembered(_lines_bound, max_chars=_MAX_LINE_CHARS)

    def count(self, text: str) -> int:
        """At least as many tokens as cl100k_base and o200k_base make of the text."""
        return sum(map(self._of_lines.__getitem__, _LINES.findall(text)))


class ExactCounter:
    """The exact number of tokens in one encoding, offline; needs the extra `tokens`.

    Special tokens such as `<|endoftext|>` count as ordinary text, as an endpoint treats them inside a message. The
    first counter of a process takes about a second and 80 MB.

    Args:
        encoding: `o200k_base` for GPT-4o and later, `cl100k_base` for GPT-4 and GPT-3.5.

    Raises:
        ConfigError: The extra is not installed.
    """

    def __init__(self, encoding: EncodingName = "o200k_base") -> None:
        try:
            bindings = _bindings()
        except ImportError as exc:
            raise ConfigError(
                "exact token counts need an extra: pip install llm-common[tokens]", variable="tokens"
            ) from exc
        self._tokenizer = bindings.tokenizer_for_encoding(encoding)

    def count(self, text: str) -> int:
        """The number of tokens; a lone surrogate counts as the `?` that is sent for it."""
        return int(self._tokenizer.count(text.encode(errors="replace").decode()))


def _bindings() -> ModuleType:
    """The core of bpe-openai, loaded without its package, which unpacks vocabularies of its own first: 0.5 s, 80 MB."""
    with _LOADING:
        if _BINDINGS not in sys.modules:
            package = find_spec(_BINDINGS.partition(".")[0])
            spec = PathFinder.find_spec(_BINDINGS, package.submodule_search_locations) if package else None
            if spec is None or spec.loader is None:
                raise ModuleNotFoundError(_BINDINGS)
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[_BINDINGS] = module  # the package, imported later, takes it from here
        if sys.modules[_BINDINGS] is None:
            raise ModuleNotFoundError(_BINDINGS)
        return sys.modules[_BINDINGS]


@cache
def _known_pieces() -> tuple[Mapping[str, None], Mapping[str, None]]:
    """Words and marks, and single characters beyond ASCII, that are one token in both encodings.

    They are the keys of dicts, which the garbage collector passes over, while it would visit each element of a set.
    """
    pieces = orjson.loads(Path(__file__).with_name("token_pieces.json").read_bytes())
    return dict.fromkeys([*pieces["words"].split(), *pieces["marks"]]), dict.fromkeys(pieces["characters"])


class _Remembered(dict[str, int]):
    """The bounds of texts, each worked out once; a mapping, so that known texts are looked up without a call of ours.

    Args:
        bound: Works out a bound.
        max_chars: Longer texts are not kept; of the others 65,536 at most.
    """

    def __init__(self, bound: Callable[[str], int], *, max_chars: int) -> None:
        super().__init__()
        self._bound = bound
        self._max_chars = max_chars

    def __missing__(self, text: str) -> int:
        bound = self._bound(text)
        if len(text) <= self._max_chars:
            if len(self) >= _MAX_REMEMBERED:
                self.clear()
            self[text] = bound
        return bound


def _lines_bound(text: str) -> int:
    return sum(map(_OF_PIECES.__getitem__, _PIECE.findall(text))) + len(_ACROSS_CASE.findall(text))


def _bound(piece: str) -> int:
    known, characters = _known_pieces()
    if piece in known or (piece.isdecimal() and piece.isascii()):
        return 1
    if not piece.isascii():
        return _bytes_bound(piece, characters)
    if not piece.strip(" "):
        return -(-len(piece) // _MAX_SPACES)
    # A word may carry the space before it as its first character.
    return _longest_cut(" " + piece if piece.isalpha() else piece, known)


_OF_PIECES = _Remembered(_bound, max_chars=32)


def _bytes_bound(piece: str, characters: Container[str]) -> int:
    """One for a character that is a token, else its bytes; a space in front may take a token's first byte away."""
    text = piece.removeprefix(" ")
    tokens = sum(1 if char in characters else _size(char) for char in text)
    if text == piece:
        return tokens
    return tokens + (_size(text[0]) - 1 if text[0] in characters else 1)


def _size(char: str) -> int:
    return len(char.encode(errors="surrogatepass"))


def _longest_cut(text: str, known: Container[str]) -> int:
    """The most parts of a text of which no two neighbours join into a known piece, or slightly more.

    `most[i]` bounds the parts of `text[i:]`: two parts from i on reach at least to the first end that makes them
    unknown.
    """
    size = len(text)
    most = [0] * (size + 1)
    most[size - 1] = 1
    for start in range(size - 2, -1, -1):
        end = start + 2
        while end <= size and _joins(text[start:end], known):
            end += 1
        most[start] = max(most[start + 1], 2 + most[end]) if end <= size else most[start + 1]
    return most[0]


def _joins(text: str, known: Container[str]) -> bool:
    if text[0] == " " and text[1].isalpha():
        return text[2:] == "" or text[1:] in known
    return text in known
