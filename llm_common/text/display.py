"""Prepare untrusted text for a prompt: cut it to size, and fence it.

An excerpt shows part of a result that exceeds its limit of characters. An excerpt of JSON is valid
JSON. It keeps whole items while they fit, long members share the limit of their object, and each
gap states its size. An excerpt of text is its head and its tail.

A fence is a pair of delimiters, and a prompt states that the text between them is data. This is the
delimiting form of spotlighting (Hines et al., 2024, https://arxiv.org/abs/2403.14720). A delimiter
that an attacker can guess or copy protects nothing, so ours contains a nonce. The nonce derives
from the text, and is derived again while the text contains it. The same text yields the same bytes,
which keeps prompts cacheable. A fence protects the structure of a prompt, but the model may still
follow an instruction inside it.
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from llm_common.text.canonical import MAX_READ_DEPTH, encode_json

PLACEHOLDER_NONCE = "g" * 12
"""As long as a nonce, to measure a fenced text before its nonce is derived."""
# The ids of pointers are hexadecimal. A nonce shares no character with them, because a model that
# sees both would otherwise try to read a result by the nonce.
_NONCE_LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")
# The literal comes before the look-behind, because the engine searches for literals quickly.
# A heading may follow invisible characters, and have any white space after it.
_HEADING = re.compile(
    r"###[^\S\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
    r"(?<![^\n\r\v\f\x1c-\x1e\x85\u2028\u2029\0\x08\xad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]###.)"
)
_LINE_BREAKERS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
# Control characters, characters that change the direction of text (Unicode's Bidi_Control), and
# lone surrogates.
CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Tags of Unicode copy ASCII. Models read them, and no font shows them.
_TAGS = re.compile("[\U000e0000-\U000e007f]")
_HEAD_SHARE = 2 / 3  # of the characters of an excerpt, while the tail gets the others
_BOUNDARIES = ("\n", "},", ", ", " ")  # best first
_MAX_CLUSTER_CHARS = 16  # a hostile text may consist of combining marks
# JSON already escapes all other line separators.
_LINE_SEPARATORS = (("\x85", r"\u0085"), ("\u2028", r"\u2028"), ("\u2029", r"\u2029"))
_ZERO_WIDTH_JOINER = "\u200d"
_MAX_SEEDED_NONCES = 8  # only a hostile text contains eight nonces of a seed


def fence_nonce(text: str, *, seed: str | None = None) -> str:
    """Return twelve letters from g to v that do not occur in the text, in upper or lower case.

    Args:
        text: The content of the fence, or of all fences that share the nonce.
        seed: Source of the nonce. None derives it from the text. A seed yields the same nonce until
            a text contains it, so the beginning of a growing prompt stays the same. If a text
            contains the first eight nonces of a seed, the nonce is derived from that text, which
            cannot contain it.
    """
    origin = text if seed is None else seed
    source = hashlib.sha256(origin.encode("utf-8", "surrogatepass")).digest()
    folded = text.lower()
    attempt = 0
    while True:
        digits = hashlib.sha256(source + b"%d" % attempt).hexdigest()[: len(PLACEHOLDER_NONCE)]
        nonce = digits.translate(_NONCE_LETTERS)
        if nonce not in folded:
            return nonce
        attempt += 1
        if attempt == _MAX_SEEDED_NONCES:
            source = hashlib.sha256(source + text.encode("utf-8", "surrogatepass")).digest()


def fenced(text: str, nonce: str) -> str:
    """Return the text between an opening and a closing delimiter, each on a separate line.

    Args:
        text: The content, of one or more lines.
        nonce: From `fence_nonce`, for a text that includes this one.
    """
    return f"<<<{nonce}\n{text}\n{nonce}>>>"


def in_fence(text: str) -> str:
    """Return the text, made printable, in a fence that it cannot close."""
    sendable = printable(text)
    return fenced(sendable, fence_nonce(sendable))


def one_line(text: str, *, max_chars: int) -> str:
    """Return the text as one line of at most `max_chars` characters, cut with `…` if needed.

    Each run of white space, control characters, and line and direction marks becomes one space.
    """
    # Bounds the work for a long text. The factor is slack for runs of white space.
    line = " ".join(text[: 4 * max_chars].split())
    if not line.isprintable():
        line = _LINE_BREAKERS.sub(" ", printable(line)).strip()
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 file`, `2 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def inert(text: str) -> str:
    """Replace the characters that control a terminal or change the direction of text."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def visible(text: str) -> str:
    """Replace what `inert` replaces, and letters that a model reads and a person cannot see."""
    if text.isascii() and text.isprintable():
        return text
    return _TAGS.sub("\N{REPLACEMENT CHARACTER}", inert(text.replace("\r\n", "\n")))


def without_headings(text: str) -> str:
    """Indent every line that looks like the heading of a block, so that none can be forged."""
    return _HEADING.sub(r" \g<0>", text)


def printable(text: str) -> str:
    r"""Write lone surrogates as `\udXXX`, so that the text can be encoded and sent."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """An excerpt, and how many of its characters come from the original."""

    text: str
    chars_shown: int


def to_json(value: object) -> str:
    """Write a value as compact JSON on one line, with as few escapes as possible.

    Raises:
        UnserialisableError: If the value has no JSON form.
    """
    text = encode_json(value, max_depth=MAX_READ_DEPTH).data.decode()
    for separator, escape in _LINE_SEPARATORS:
        text = text.replace(separator, escape)
    return text


def fair_shares(demands: Sequence[int], max_chars: int) -> list[int]:
    """Divide `max_chars` by max-min fairness, also known as water-filling.

    Small demands are met in full. Large ones get equal shares of the remaining characters. The sum
    never exceeds `max_chars`, and a share never exceeds its demand.
    """
    shares = [0] * len(demands)
    remaining = max(max_chars, 0)
    for served, index in enumerate(sorted(range(len(demands)), key=demands.__getitem__)):
        shares[index] = min(demands[index], remaining // (len(demands) - served))
        remaining -= shares[index]
    return shares


def excerpt_text(text: str, max_chars: int) -> Excerpt:
    """Return a text, or its head and tail around a mark that counts the missing characters.

    Cuts at the end of a nearby line, item or word, and never before a combining mark. If
    `max_chars` is too small for the mark, returns a head and `…`.
    """
    if len(text) <= max_chars:
        return Excerpt(text, len(text))
    reserved = len(_missing_characters(len(text)))
    if max_chars < 3 * reserved:
        head = text[: head_end(text, max(max_chars - 1, 0))]
        return Excerpt(f"{head}…"[: max(max_chars, 0)], len(head))
    head = text[: head_end(text, int((max_chars - reserved) * _HEAD_SHARE))]
    tail = text[_tail_start(text, len(text) - (max_chars - reserved - len(head))) :]
    chars_shown = len(head) + len(tail)
    return Excerpt(head + _missing_characters(len(text) - chars_shown) + tail, chars_shown)


def _missing_characters(count: int) -> str:
    # Ends with a space, so that the tail cannot begin a line and look like a heading.
    return f"\n[… {count:,} characters left out …] "


def head_end(text: str, end: int) -> int:
    """Return the end of a head of at most `end` characters: a boundary in its last quarter.

    Without a boundary, the head ends between two clusters. The text must be longer than `end`.
    """
    for boundary in _BOUNDARIES:
        index = text.rfind(boundary, end - end // 4, end)
        if index > 0:
            return index + len(boundary.rstrip())
    stop = max(end - _MAX_CLUSTER_CHARS, 0)
    while end > stop and _attaches(text, end):
        end -= 1
    return end


def _tail_start(text: str, start: int) -> int:
    """Return the start of a tail: a boundary in its first quarter, else between two clusters."""
    for boundary in _BOUNDARIES:
        index = text.find(boundary, start, start + (len(text) - start) // 4)
        if index >= 0:
            return index + len(boundary)
    stop = min(start + _MAX_CLUSTER_CHARS, len(text))
    while start < stop and _attaches(text, start):
        start += 1
    return start


def _attaches(text: str, index: int) -> bool:
    """Return whether the character at an index belongs to the cluster of its predecessor."""
    if _ZERO_WIDTH_JOINER in text[index - 1 : index + 1]:
        return True
    return unicodedata.category(text[index])[0] == "M"
