"""Token counts: an upper bound, or exact with the extra `tokens`."""

import json
import operator
import re
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from functools import cache, partial
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Literal, Protocol, SupportsIndex, cast, runtime_checkable
from unicodedata import category

import orjson

from llm_common._threads import ForkSafeLock
from llm_common.errors import ConfigError, install_command, missing_extra

EncodingName = Literal["cl100k_base", "o200k_base"]

# The pieces into which both tokenizers cut a text, in their order: an apostrophe's ending, a word
# without a change from small to capital letters, three digits, blanks that end in line ends, blanks
# but the last one (which may join the next piece), marks with the space before and the line ends
# after them, non-ASCII with the space before it, and a single blank. A space that joins a word is
# left out. Matching takes linear time, since a later alternative consumes what an earlier one
# rejects.
_PIECE = re.compile(
    r"'(?:[sdmtSDMT]|[lL][lL]|[vV][eE]|[rR][eE])"
    r"|[a-z]+|[A-Z]+[a-z]*|[0-9]{1,3}"
    r"|[ \t\f\v]*+[\r\n]+|[ \t\f\v]+(?=[ \t\f\v])"
    r"| ?[\0-\x08\x0e-\x1f!-/:-@\[-`{-\x7f]+(?:[\r\n]+/*)?"
    r"| ?[^\0-\x7f]+| (?![A-Za-z])|[\t\f\v]"
)
# Pairs that cl100k_base joins first, across the change of case where o200k_base cuts.
_ACROSS_CASE = re.compile(r"x[A-F]|d[BT]|k[BJ]|u[CD]|aN|gL|iT|mA|nP|oS|zM")
# Both tokenizers join line ends and slashes to a symbol before them, and count a digit of another
# script among the three of a number. So the piece that follows begins later than after `_PIECE`.
_SLASH_AFTER_SYMBOL = re.compile(r"[^\0-\x7f][\r\n]+/")
_BEFORE_DIGIT = re.compile(r"[^\0-\x7f](?=[0-9])")
# A digit of a newer Unicode than Python's is not assigned.
_DIGITS = ("Nd", "Nl", "No", "Cn")
_MAX_SPACES = 79  # both vocabularies have every run of spaces up to this length
# No piece crosses the end of a line, apart from adjacent line ends and slashes that begin a line.
_LINES = re.compile(r"[^\r\n]*[\r\n]+(?:/[^\r\n]*[\r\n]*)*|[^\r\n]+")
# Together they bound the text in the cache of lines to 13 MB.
_MAX_LINE_CHARS = 200
_MAX_CACHED = 65_536
# Where both tokenizers always cut: after a letter or digit before a blank or a mark, after a digit
# before a letter, and at the end of a line before one that begins with neither blank nor slash.
_CUT = re.compile(r"(?<=[a-z0-9])(?=[ \",:;.()<>\[\]{}])|(?<=[0-9])(?=[A-Za-z])|(?<=\n)(?=[^\s/])")
# The tokenizer holds the interpreter's lock while it counts: about 3 ms for a slice.
_SLICE_CHARS = 65_536
_CUT_SEARCH_CHARS = 4_096
_BINDINGS = "bpe_openai._bindings"
_LOADING = ForkSafeLock()
# https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken: three around a message and
# one for its role
_MESSAGE_TOKENS = 4
# The most that an image takes in most models: Claude scales one down to some 1,600 tokens
# (https://docs.claude.com/en/docs/build-with-claude/vision), OpenAI's GPT-4o to 8 tiles of 170
# tokens and 85 more, and GPT-4.1 to 1,536 patches
# (https://platform.openai.com/docs/guides/images-vision). A page of a PDF takes 1,500 to 3,000
# (https://docs.claude.com/en/docs/build-with-claude/pdf-support).
_MEDIA_TOKENS = 1_600
# Tuples, since the type of a block may be anything, also an object without a hash.
_MEDIA = (
    *("audio", "document", "file", "image", "image_url"),
    *("input_audio", "input_file", "input_image"),
)
_DATA_FIELDS = ("base64", "data", "file_data")
_DATA_URL = re.compile(r"data:[^\s,]{0,200};base64,", re.IGNORECASE)


@runtime_checkable
class TokenCounter(Protocol):
    """An object that counts tokens. Its method must be safe to call from any task or thread."""

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, or an upper bound."""


def count_tokens(counter: TokenCounter, text: str) -> int:
    """Count the tokens of a text with a caller's counter, and return an int.

    Raises:
        TypeError: If the counter returned anything but a whole number. `5.0` is one.
    """
    tokens = cast("SupportsIndex | float", counter.count(text))
    if isinstance(tokens, float) and tokens.is_integer():
        return int(tokens)
    try:
        return operator.index(tokens)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"the token counter {type(counter).__name__} returned {str(tokens)[:40]} "
            f"({type(tokens).__name__}); "
            "return a whole number, rounded up, such as math.ceil(len(text) / 4)"
        ) from None


class CountedOnce:
    """A counter that counts each text once, for a text that is measured at many steps.

    Assumes only that the counter counts equal texts alike.

    Args:
        counter: Counts a text that was not counted yet.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self.count = cache(partial(count_tokens, counter))
        """Returns the tokens of a text."""


def message_tokens(fields: Mapping[str, object], count: Callable[[str], int]) -> int:
    """Count the tokens of a chat message: its text, its other fields as JSON, and four more.

    The four are those of OpenAI's chat format for the role and its marks. The data of an image, a
    sound or a file counts as 1,600 tokens, whatever its size. That is the most an image takes in
    most models, and less than a long PDF takes.

    Args:
        fields: The message as a dict of plain data. Fields with None are not sent.
        count: Counts a text.
    """
    sent = {name: value for name, value in fields.items() if value is not None}
    sent.pop("role", None)
    tokens = _MESSAGE_TOKENS
    content = sent.get("content")
    if isinstance(content, str):
        del sent["content"]
        tokens += count(content)
    elif content is not None:
        sent["content"], media_tokens = without_media(content)
        tokens += media_tokens
    if sent:
        tokens += count(json.dumps(sent))
    return tokens


def without_media(content: object) -> tuple[object, int]:
    """Return the content of a message without the data of media, and the tokens of that data.

    Media are images, sounds and files that the message has in base64, in the shapes of OpenAI,
    Anthropic, MCP and LangChain. An address remains, since nothing tells what is behind it.
    """
    if not isinstance(content, list):
        return content, 0
    blocks: list[object] = []
    tokens = 0
    for block in content:
        remaining = block
        if isinstance(block, Mapping) and block.get("type") in _MEDIA:
            remaining = _without_data(block)
            if remaining != block:
                tokens += _MEDIA_TOKENS
        elif isinstance(block, Mapping) and isinstance(block.get("content"), list):
            # The output of a tool in Anthropic's messages.
            output, output_tokens = without_media(block["content"])
            remaining = {**block, "content": output}
            tokens += output_tokens
        blocks.append(remaining)
    return blocks, tokens


def _without_data(block: Mapping[str, object]) -> dict[str, object]:
    """Return a block of media without its data, which is in the block or in one of its fields."""
    remaining: dict[str, object] = {}
    for name, value in block.items():
        if isinstance(value, Mapping):
            remaining[name] = _without_data(value)
        # A document of Anthropic may have plain text as its data.
        elif name in _DATA_FIELDS and block.get("type") != "text":
            continue
        elif not (isinstance(value, str) and _DATA_URL.match(value)):
            remaining[name] = value
    return remaining


class UpperBoundCounter:
    """A counter of at least the tokens in cl100k_base and o200k_base, which needs no extra.

    A text is cut where both tokenizers cut it. A piece that is in both vocabularies is one token.
    For other words and runs of marks the bound is the longest cut in which no two neighbours form a
    known piece. Byte pair encoding stops only when no two neighbours join (Sennrich et al. 2016,
    https://arxiv.org/abs/1508.07909). A non-ASCII character that is not a token counts as its UTF-8
    bytes.

    The bound is proven for single pieces, and sampled for adjacent ones. About one in 100,000
    random joins of words across a change of case (`untoEquality`) needs one token more in
    cl100k_base. No text of more than a few words did.

    The bound was divided by the larger of the two exact counts. The results: English prose 1.25 to
    1.6, code 1.1 to 1.4, JSON 1.2, base64 1.1, Chinese 1.2, French 1.6, Russian 2.2. The time is
    linear, about 5 MB a second, and ten times as fast for cached lines (65,536 of at most 200
    characters). Other models' tokenizers differ, so use the model's own counter for an exact
    budget.
    """

    def __init__(self) -> None:
        self._of_lines = _BoundCache(_lines_bound, max_chars=_MAX_LINE_CHARS)

    def count(self, text: str) -> int:
        """Return at least the number of tokens of a text in cl100k_base and o200k_base."""
        return sum(map(self._of_lines.__getitem__, _LINES.findall(text)))


class ExactCounter:
    """A counter of exact tokens in one encoding. Works offline, and needs the extra `tokens`.

    Special tokens such as `<|endoftext|>` count as plain text, as in a message to an endpoint. The
    first counter of a process takes about 60 ms and 67 MB.

    Args:
        encoding: `o200k_base` for GPT-4o and later, `cl100k_base` for GPT-4 and GPT-3.5.

    Raises:
        ConfigError: If the extra is not installed.
    """

    def __init__(self, encoding: EncodingName = "o200k_base") -> None:
        try:
            bindings = _bindings()
        except ImportError as exc:
            raise missing_extra("exact token counts need an extra", "tokens") from exc
        self._tokenizer = bindings.tokenizer_for_encoding(encoding)

    def count(self, text: str) -> int:
        """Return the number of tokens of a text. A lone surrogate is sent and counted as `?`.

        A long text is counted in slices, so that other threads can run. Text in which no token
        surely ends for 4,000 characters, such as one long word, may count a token more a slice.
        """
        return sum(map(self._tokenizer.count, _slices(text.encode(errors="replace").decode())))


def _slices(text: str) -> Iterator[str]:
    """Yield a text in slices between which no token lies."""
    begin = 0
    while len(text) - begin > _SLICE_CHARS:
        end = begin + _SLICE_CHARS
        for cut in _CUT.finditer(text, end - _CUT_SEARCH_CHARS, end):
            end = cut.start()
        yield text[begin:end]
        begin = end
    yield text[begin:]


class DefaultCounter:
    """A counter that is exact for o200k_base with the extra `tokens`, else an upper bound.

    The first count of a process loads the extra, which takes about 60 ms and 67 MB. Other models'
    tokenizers may need more tokens than o200k_base. For such a model use its own counter, or
    `UpperBoundCounter`.
    """

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, exact or as an upper bound."""
        return _default().count(text)


def counter_label() -> str:
    """Describe how `DefaultCounter` counts here, and how to get exact counts."""
    if isinstance(_default(), ExactCounter):
        return "counted exactly, as o200k_base"
    return f"an upper bound; for exact counts {install_command('tokens')}"


@cache
def _default() -> TokenCounter:
    try:
        return ExactCounter()
    except ConfigError:
        return UpperBoundCounter()


def _bindings() -> ModuleType:
    """Load the compiled module of bpe-openai without its package.

    Importing the package unpacks more vocabularies, which takes 0.5 s and 80 MB.
    """
    # Two threads would execute the compiled module twice.
    with _LOADING:
        if _BINDINGS not in sys.modules:
            # Not the dotted name, for which `find_spec` would import the package.
            package = find_spec(_BINDINGS.partition(".")[0])
            if package is None:
                raise ModuleNotFoundError(_BINDINGS)
            spec = PathFinder.find_spec(_BINDINGS, package.submodule_search_locations)
            if spec is None or spec.loader is None:
                raise ModuleNotFoundError(_BINDINGS)
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[_BINDINGS] = module  # a later import of the package uses it
        # None is how Python marks a module whose import is blocked.
        if sys.modules[_BINDINGS] is None:
            raise ModuleNotFoundError(_BINDINGS)
        return sys.modules[_BINDINGS]


@cache
def _known_pieces() -> tuple[Mapping[str, None], Mapping[str, None]]:
    """Return the words and marks, and the non-ASCII characters, that are one token in both."""
    pieces = orjson.loads(Path(__file__).with_name("token_pieces.json").read_bytes())
    # Dicts and not sets: the garbage collector skips a dict of strings, but visits every element of
    # a set.
    words_and_marks = dict.fromkeys([*pieces["words"].split(), *pieces["marks"]])
    return words_and_marks, dict.fromkeys(pieces["characters"])


class _BoundCache(dict[str, int]):
    """A cache of the bounds of texts.

    A dict subclass, since the lookup of a cached text then runs no Python code.

    Args:
        bound: Computes the bound of a text.
        max_chars: Maximum length of a cached text.
    """

    def __init__(self, bound: Callable[[str], int], *, max_chars: int) -> None:
        super().__init__()
        self._bound = bound
        self._max_chars = max_chars

    def __missing__(self, text: str) -> int:
        bound = self._bound(text)
        if len(text) <= self._max_chars:
            if len(self) >= _MAX_CACHED:
                self.clear()  # an LRU cache would run Python code at each lookup
            self[text] = bound
        return bound


def _lines_bound(text: str) -> int:
    bound = sum(map(_OF_PIECES.__getitem__, _PIECE.findall(text)))
    bound += len(_ACROSS_CASE.findall(text))
    if not text.isascii():
        bound += len(_SLASH_AFTER_SYMBOL.findall(text))
        bound += sum(category(char) in _DIGITS for char in _BEFORE_DIGIT.findall(text))
    return bound


def _bound(piece: str) -> int:
    pieces, characters = _known_pieces()
    # `_PIECE` cuts after three digits, and every number of up to three digits is one token.
    if piece in pieces or (piece.isdecimal() and piece.isascii()):
        return 1
    if not piece.isascii():
        return _bytes_bound(piece, characters)
    if not piece.strip(" "):
        return -(-len(piece) // _MAX_SPACES)  # rounded up
    # A word may carry the space before it as its first character.
    return _max_parts(" " + piece if piece.isalpha() else piece, pieces)


_OF_PIECES = _BoundCache(_bound, max_chars=32)


def _bytes_bound(piece: str, characters: Container[str]) -> int:
    """Count one for each character that is a token, and the bytes of all other characters."""
    text = piece.removeprefix(" ")
    tokens = 0
    for char in text:
        tokens += 1 if char in characters else _size(char)
    if text == piece:
        return tokens
    # The space may join the first byte of a token, whose other bytes then count singly.
    if text[0] in characters:
        return tokens + _size(text[0]) - 1
    return tokens + 1


def _size(char: str) -> int:
    return len(char.encode(errors="surrogatepass"))


def _max_parts(text: str, pieces: Container[str]) -> int:
    """Return a bound on the parts of a text in which no two neighbours form a known piece.

    `most[i]` bounds the parts of `text[i:]`. Two parts that start at i reach at least to the first
    end at which `text[i:end]` is not known.
    """
    size = len(text)
    most = [0] * (size + 1)
    most[size - 1] = 1
    for start in range(size - 2, -1, -1):
        end = start + 2
        while end <= size and _joins(text[start:end], pieces):
            end += 1
        most[start] = max(most[start + 1], 2 + most[end]) if end <= size else most[start + 1]
    return most[0]


def _joins(text: str, pieces: Container[str]) -> bool:
    # The pieces are stored without the space that joins a word.
    if text[0] == " " and text[1].isalpha():
        return text[2:] == "" or text[1:] in pieces
    return text in pieces
