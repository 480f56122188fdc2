"""Fences: marks around text from outside that the text itself cannot contain.

A prompt tells the model that what stands between the marks is data. The mark is a nonce derived from the text, so the
same text gives the same bytes, and derived again for as long as the text contains it, so no text can close its own
fence. That keeps the structure of a prompt intact; it does not make a model ignore what it reads.
"""

import hashlib
import re

__all__ = ["PLACEHOLDER_NONCE", "fence_nonce", "fenced", "in_fence", "one_line", "printable", "without_headings"]

PLACEHOLDER_NONCE = "0" * 12
"""As long as a nonce, to measure a text by before its nonce is known."""

# The mark comes first, so that the engine can search for it quickly; then what must not stand before it.
_HEADING = re.compile(r"### (?<![^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]### )")
_LINE_BREAKERS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")


def fence_nonce(text: str, *, seed: str | None = None) -> str:
    """Twelve hexadecimal digits that stand nowhere in the text, in no mixture of cases.

    Args:
        text: What the fence will hold.
        seed: What the nonce is derived from; the same seed gives the same nonce until a text contains it, which keeps
            the beginning of a growing prompt as it was. None derives it from the text.
    """
    source = hashlib.sha256((text if seed is None else seed).encode("utf-8", "surrogatepass")).digest()
    folded = text.lower()
    number = 0
    while (nonce := hashlib.sha256(source + b"%d" % number).hexdigest()[: len(PLACEHOLDER_NONCE)]) in folded:
        number += 1
    return nonce


def fenced(text: str, nonce: str) -> str:
    """The text on lines of its own between an opening and a closing mark."""
    return f"<<<{nonce}\n{text}\n{nonce}>>>"


def in_fence(text: str) -> str:
    """The text, made printable, in a fence that it cannot close."""
    sendable = printable(text)
    return fenced(sendable, fence_nonce(sendable))


def one_line(text: str, *, max_chars: int) -> str:
    """The text as one line: control characters, line and direction marks become spaces; cut with `…` where longer."""
    line = " ".join(text[: 4 * max_chars].split())
    if not line.isprintable():
        line = _LINE_BREAKERS.sub(" ", printable(line)).strip()
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def without_headings(text: str) -> str:
    """The text with every line that begins like the heading of a block moved by a space, so that it forges none."""
    return _HEADING.sub(r" \g<0>", text)


def printable(text: str) -> str:
    r"""The text with lone surrogates written as `\udXXX`, so that it can be encoded and sent."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
