"""Token counts: an upper bound, and exact ones with the extra `tokens`."""

import json
import operator
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Container, Mapping
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from math import ceil
from pathlib import Path
from types import ModuleType
from typing import Literal, Protocol, SupportsIndex, cast, runtime_checkable

import orjson

from llm_common.errors import ConfigError, install_command, missing_extra

EncodingName = Literal["cl100k_base", "o200k_base"]

# Where both tokenizers cut a text, in their order: an apostrophe's ending; a word without a change
# from small to capital letters; three digits; blanks that end in line ends; blanks but the last
# one, which may join the next piece; marks with the space before and the line ends after them;
# non-ASCII with the space before it; a single blank. A space that joins a word is left out. A later
# alternative consumes what an earlier one rejects: linear time.
_PIECE = re.compile(
    r"'(?:[sdmtSDMT]|[lL][lL]|[vV][eE]|[rR][eE])"
    r"|[a-z]+|[A-Z]+[a-z]*|[0-9]{1,3}"
    r"|[ \t\f\v]*+[\r\n]+|[ \t\f\v]+(?=[ \t\f\v])"
    r"| ?[\0-\x08\x0e-\x1f!-/:-@\[-`{-\x7f]+(?:[\r\n]+/*)?"
    r"| ?[^\0-\x7f]+| (?![A-Za-z])|[\t\f\v]"
)
# Pairs that cl100k_base joins first, across the change of case where o200k_base cuts.
_ACROSS_CASE = re.compile(r"x[A-F]|d[BT]|k[BJ]|u[CD]|aN|gL|iT|mA|nP|oS|zM")
_MAX_SPACES = 79  # both vocabularies hold every run of spaces up to here
# No piece crosses the end of a line, except for adjacent line ends, and slashes at the beginning of
# a line.
_LINES = re.compile(r"[^\r\n]*[\r\n]+(?:/[^\r\n]*[\r\n]*)*|[^\r\n]+")
_MAX_LINE_CHARS = 200
_MAX_CACHED = 65_536
_BINDINGS = "bpe_openai._bindings"
_LOADING = threading.Lock()
_MESSAGE_TOKENS = 4
_RATIO_MARGIN = 1.03  # a text of another kind may have more tokens a word than those before it
_RATIOS = 8
_MIN_LEARNT_TOKENS = 200  # of a shorter prompt the marks around messages are a large part
_MIN_RATIO, _MAX_RATIO = 0.2, 4.0


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens; one method, safe to share between tasks and threads."""

    def count(self, text: str) -> int:
        """The number of tokens of the text, or an upper bound."""


def count_tokens(counter: TokenCounter, text: str) -> int:
    """The tokens of a text by a caller's counter, as an int.

    Raises:
        TypeError: The counter returned anything but a whole number; `5.0` is one.
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


def message_tokens(fields: Mapping[str, object], count: Callable[[str], int]) -> int:
    """Return the tokens of a chat message: its text, its other fields as JSON, and four more.

    The four for the role and its marks are those of OpenAI's chat format:
    https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken.

    Args:
        fields: The message as a dict of plain data; what is None is not sent.
        count: Counts a text.
    """
    rest = {name: value for name, value in fields.items() if value is not None}
    rest.pop("role", None)
    tokens = _MESSAGE_TOKENS
    content = rest.get("content")
    if isinstance(content, str):
        del rest["content"]
        tokens += count(content)
    if rest:
        tokens += count(json.dumps(rest))
    return tokens


class UpperBoundCounter:
    """An upper bound of the tokens in cl100k_base and o200k_base; needs no extra.

    A text is cut where both tokenizers cut it. A piece that both know whole is one token. For other
    words and runs of marks the bound is the longest cut in which no two neighbours join into a
    known piece: byte pair encoding stops only when no two neighbours join (Sennrich et al. 2016,
    https://arxiv.org/abs/1508.07909). A non-ASCII character that is not a token counts as its UTF-8
    bytes.

    This is proven for single pieces, and sampled for adjacent ones: about one of 100,000 random
    joins of words across a change of case (`untoEquality`) takes one token more in cl100k_base; no
    text of more than a few words did.

    Measured against the larger of the two exact counts: English prose 1.25 to 1.6 times, code 1.1
    to 1.4, JSON 1.2, base64 1.1, Chinese 1.2, French 1.6, Russian 2.2. Linear in the length, about
    5 MB a second, and ten times that for lines that the counter has cached, up to 65,536 of at most
    200 characters. Other models' tokenizers differ: for an exact budget use the model's own
    counter.
    """

    def __init__(self) -> None:
        self._of_lines = _BoundCache(_lines_bound, max_chars=_MAX_LINE_CHARS)

    def count(self, text: str) -> int:
        """At least as many tokens as cl100k_base and o200k_base make of the text."""
        return sum(map(self._of_lines.__getitem__, _LINES.findall(text)))


class ExactCounter:
    """The exact number of tokens in one encoding, offline; needs the extra `tokens`.

    Special tokens such as `<|endoftext|>` count as plain text, as in a message to an endpoint. The
    first counter of a process takes some 60 ms and 67 MB.

    Args:
        encoding: `o200k_base` for GPT-4o and later, `cl100k_base` for GPT-4 and GPT-3.5.

    Raises:
        ConfigError: The extra is not installed.
    """

    def __init__(self, encoding: EncodingName = "o200k_base") -> None:
        try:
            bindings = _bindings()
        except ImportError as exc:
            raise missing_extra("exact token counts need an extra", "tokens") from exc
        self._tokenizer = bindings.tokenizer_for_encoding(encoding)

    def count(self, text: str) -> int:
        """The number of tokens; a lone surrogate is sent and counted as `?`."""
        return int(self._tokenizer.count(text.encode(errors="replace").decode()))


class DefaultCounter:
    """Exact o200k_base counts where the extra `tokens` is installed, else the upper bound.

    Decides at the first count, which then takes some 60 ms and 67 MB, once in a process. Another
    model's tokenizer may count more than o200k_base: for such a model pass its counter, or
    `UpperBoundCounter`.
    """

    def count(self, text: str) -> int:
        """The number of tokens of the text, exact or bounded."""
        return _default().count(text)


def counter_label() -> str:
    """How a `DefaultCounter` counts, in words, with the way to exact counts."""
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
    """Load the core of bpe-openai without its package.

    The package unpacks more vocabularies, which takes 0.5 s and 80 MB.
    """
    with _LOADING:
        if _BINDINGS not in sys.modules:
            package = find_spec(_BINDINGS.partition(".")[0])
            if package is None:
                raise ModuleNotFoundError(_BINDINGS)
            spec = PathFinder.find_spec(_BINDINGS, package.submodule_search_locations)
            if spec is None or spec.loader is None:
                raise ModuleNotFoundError(_BINDINGS)
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[_BINDINGS] = module  # a later import of the package uses it
        if sys.modules[_BINDINGS] is None:
            raise ModuleNotFoundError(_BINDINGS)
        return sys.modules[_BINDINGS]


@cache
def _known_pieces() -> tuple[Mapping[str, None], Mapping[str, None]]:
    """Words and marks, and single non-ASCII characters, that are one token in both encodings.

    Dict keys and not sets: the garbage collector skips a dict of strings, but visits each element
    of a set.
    """
    pieces = orjson.loads(Path(__file__).with_name("token_pieces.json").read_bytes())
    return dict.fromkeys([*pieces["words"].split(), *pieces["marks"]]), dict.fromkeys(
        pieces["characters"]
    )


class _BoundCache(dict[str, int]):
    """A cache of bounds; a dict, since a lookup of a cached text then runs no Python code.

    Args:
        bound: Computes a bound.
        max_chars: Longer texts are not cached; of the others 65,536 at most.
    """

    def __init__(self, bound: Callable[[str], int], *, max_chars: int) -> None:
        super().__init__()
        self._bound = bound
        self._max_chars = max_chars

    def __missing__(self, text: str) -> int:
        bound = self._bound(text)
        if len(text) <= self._max_chars:
            if len(self) >= _MAX_CACHED:
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
    return _max_parts(" " + piece if piece.isalpha() else piece, known)


_OF_PIECES = _BoundCache(_bound, max_chars=32)


def _bytes_bound(piece: str, characters: Container[str]) -> int:
    """One for a character that is a token, else its bytes.

    A leading space may join a token's first byte.
    """
    text = piece.removeprefix(" ")
    tokens = 0
    for char in text:
        tokens += 1 if char in characters else _size(char)
    if text == piece:
        return tokens
    if text[0] in characters:
        return tokens + _size(text[0]) - 1
    return tokens + 1


def _size(char: str) -> int:
    return len(char.encode(errors="surrogatepass"))


def _max_parts(text: str, known: Container[str]) -> int:
    """At least the most parts of a text of which no two neighbours join into a known piece.

    `most[i]` bounds the parts of `text[i:]`: two parts from i on extend at least to the first end
    that is unknown.
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


class CalibratedCounter:
    """Counts tokens by another counter, corrected by what the endpoint reported so far.

    The first prompts are counted as the other counter does. After each call whose usage is known,
    the factor is the highest of the last eight ratios of reported to counted tokens, and 3% more.
    So English prose, which `UpperBoundCounter` counts half too high, soon gets half as much more
    room, and a model with a smaller vocabulary than OpenAI's less. It is an estimate: a prompt of
    another kind than those before it may take more. Safe to share between tasks and threads; one
    for each model.

    Args:
        counter: What counts; None takes `DefaultCounter`.
    """

    def __init__(self, counter: TokenCounter | None = None) -> None:
        self._counter = counter or DefaultCounter()
        self._ratios: deque[float] = deque(maxlen=_RATIOS)
        self._lock = threading.Lock()
        self._factor = 1.0

    @property
    def factor(self) -> float:
        """By what the other counter's counts are multiplied; 1.0 until a usage was reported."""
        return self._factor

    def count(self, text: str) -> int:
        """The tokens of the text, as the endpoint is expected to count them."""
        return ceil(count_tokens(self._counter, text) * self._factor)

    def observe(self, *, counted_tokens: int, reported_tokens: int) -> None:
        """Learns from one call; a prompt of under 200 tokens teaches nothing.

        Args:
            counted_tokens: What this counter counted for the prompt before it was sent.
            reported_tokens: `usage.prompt_tokens` of the response; 0 where the endpoint reports
                none.
        """
        with self._lock:
            if counted_tokens < _MIN_LEARNT_TOKENS or reported_tokens <= 0:
                return
            ratio = reported_tokens / counted_tokens * self._factor
            self._ratios.append(min(max(ratio, _MIN_RATIO), _MAX_RATIO))
            self._factor = max(self._ratios) * _RATIO_MARGIN
