"""Fences: delimiters around untrusted text that the text itself cannot contain.

A prompt states that the text between the delimiters is data. This is the delimiting form of spotlighting (Hines et
al., 2024, https://arxiv.org/abs/2403.14720). A delimiter that an attacker can guess or copy protects nothing, so ours
holds a nonce: derived from the text, and derived again while the text contains it. The same text gives the same bytes,
which keeps prompts cacheable. A fence protects the structure of a prompt; the model may still follow what it reads.
"""

import hashlib
import re

__all__ = ["PLACEHOLDER_NONCE", "fence_nonce", "fenced", "in_fence", "one_line", "printable", "without_headings"]

PLACEHOLDER_NONCE = "0" * 12
"""As long as a nonce; measures a text before its nonce is known."""

# The literal comes before the lookbehind, because the engine searches for a literal prefix quickly.
_HEADING = re.compile(r"### (?<![^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]### )")
_LINE_BREAKERS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")


def fence_nonce(text: str, *, seed: str | None = None) -> str:
    """Twelve hexadecimal digits that do not occur in the text, in upper or lower case.

    Args:
        text: The content of the fence, or of all fences that share the nonce.
        seed: Source of the nonce; None derives it from the text. The same seed gives the same nonce until a text
            contains it, so the beginning of a growing prompt stays the same.
    """
    source = hashlib.sha256((text if seed is None else seed).encode("utf-8", "surrogatepass")).digest()
    folded = text.lower()
    number = 0
    while (nonce := hashlib.sha256(source + b"%d" % number).hexdigest()[: len(PLACEHOLDER_NONCE)]) in folded:
        number += 1
    return nonce


def fenced(text: str, nonce: str) -> str:
    """The text between an opening and a closing delimiter, each on a separate line.

    Args:
        text: The content; may have several lines.
        nonce: From `fence_nonce`, of a text that includes this one.
    """
    return f"<<<{nonce}\n{text}\n{nonce}>>>"


def in_fence(text: str) -> str:
    """The text, made printable, in a fence that it cannot close."""
    sendable = printable(text)
    return fenced(sendable, fence_nonce(sendable))


def one_line(text: str, *, max_chars: int) -> str:
    """The text as one line of at most `max_chars` characters, cut with `…` if it is longer.

    Each run of white space, control characters, and line and direction marks becomes one space.
    """
    line = " ".join(text[: 4 * max_chars].split())  # a bound on the work, with slack for white space
    if not line.isprintable():
        line = _LINE_BREAKERS.sub(" ", printable(line)).strip()
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def without_headings(text: str) -> str:
    """The text with a space before every line that looks like the heading of a block, so that none is forged."""
    return _HEADING.sub(r" \g<0>", text)


def printable(text: str) -> str:
    r"""The text with lone surrogates written as `\udXXX`, so that it can be encoded and sent."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
