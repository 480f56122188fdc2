"""Untrusted text as a prompt shows it: cut to size, and between delimiters that it cannot contain.

Excerpts show part of a result that is longer than its quota of characters. An excerpt of JSON is
JSON: it keeps whole items while they fit, long members share the quota of their object, and each
gap says how much it leaves out. An excerpt of text is its head and its tail.

Fences are delimiters; a prompt states that the text between them is data. This is the delimiting
form of spotlighting (Hines et al., 2024, https://arxiv.org/abs/2403.14720). A delimiter that an
attacker can guess or copy protects nothing, so ours holds a nonce: derived from the text, and
derived again while the text contains it. The same text gives the same bytes, which keeps prompts
cacheable. A fence protects the structure of a prompt; the model may still follow what it reads.
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from llm_common.text.canonical import MAX_READ_DEPTH, encode_json

PLACEHOLDER_NONCE = "0" * 12
"""As long as a nonce; measures a text before its nonce is known."""
# The literal comes before the lookbehind, because the engine searches for a literal prefix quickly.
# A heading may hide behind characters without a width, and have another space after it.
_HEADING = re.compile(
    r"###[^\S\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
    r"(?<![^\n\r\v\f\x1c-\x1e\x85\u2028\u2029\0\x08\xad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]###.)"
)
_LINE_BREAKERS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
# Control characters, those that change the direction of text (Unicode's Bidi_Control), and halves
# of characters.
CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_GAP = '"…"'  # replaces a value that does not fit
_MIN_VALUE_CHARS = 16
_MAX_DEPTH = 8
_HEAD_SHARE = 2 / 3
_BOUNDARIES = ("\n", "},", ", ", " ")
_MAX_CLUSTER_CHARS = 16  # a hostile text may consist of combining marks
# JSON escapes the others
_LINE_SEPARATORS = (("\x85", r"\u0085"), ("\u2028", r"\u2028"), ("\u2029", r"\u2029"))
_ZERO_WIDTH_JOINER = "\u200d"
_MAX_SEEDED_NONCES = 8


def fence_nonce(text: str, *, seed: str | None = None) -> str:
    """Twelve hexadecimal digits that do not occur in the text, in upper or lower case.

    Args:
        text: The content of the fence, or of all fences that share the nonce.
        seed: Source of the nonce; None derives it from the text. The same seed gives the same nonce
            until a text contains it, so the beginning of a growing prompt stays the same. A text
            that contains the first eight nonces of a seed was made to; its nonce is derived from
            the text, which cannot contain that too.
    """
    source = hashlib.sha256(
        (text if seed is None else seed).encode("utf-8", "surrogatepass")
    ).digest()
    folded = text.lower()
    number = 0
    while (
        nonce := hashlib.sha256(source + b"%d" % number).hexdigest()[: len(PLACEHOLDER_NONCE)]
    ) in folded:
        number += 1
        if number == _MAX_SEEDED_NONCES:
            source = hashlib.sha256(source + text.encode("utf-8", "surrogatepass")).digest()
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
    # a bound on the work, with slack for white space
    line = " ".join(text[: 4 * max_chars].split())
    if not line.isprintable():
        line = _LINE_BREAKERS.sub(" ", printable(line)).strip()
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def inert(text: str) -> str:
    """Replace the characters that could drive a terminal or turn the direction of what follows."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def without_headings(text: str) -> str:
    """Put a space before every line that looks like the heading of a block: none is forged."""
    return _HEADING.sub(r" \g<0>", text)


def printable(text: str) -> str:
    r"""The text with lone surrogates written as `\udXXX`, so that it can be encoded and sent."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """An excerpt, and how many of its characters come from the original."""

    text: str
    chars_shown: int


def to_json(value: object) -> str:
    """The value as compact JSON on one line, with no more escapes than that needs.

    Raises:
        UnserialisableError: JSON cannot represent the value.
    """
    text = encode_json(value, max_depth=MAX_READ_DEPTH).data.decode()
    for separator, escape in _LINE_SEPARATORS:
        text = text.replace(separator, escape)
    return text


def fair_shares(wants: Sequence[int], max_chars: int) -> list[int]:
    """Share `max_chars`: small wants are met in full, the others get equal shares of the rest.

    The sum never exceeds `max_chars`, nor a share its want (max-min fairness, also known as
    water-filling).
    """
    shares = [0] * len(wants)
    left = max(max_chars, 0)
    for served, index in enumerate(sorted(range(len(wants)), key=lambda index: wants[index])):
        shares[index] = min(wants[index], left // (len(wants) - served))
        left -= shares[index]
    return shares


def excerpt_text(text: str, max_chars: int) -> Excerpt:
    """Return a text, or its head and tail around the count of missing characters.

    Cuts at the end of a line, an item or a word if one is near, and never before a combining mark.
    If `max_chars` is too small for the count, a head and `…` remain.
    """
    if len(text) <= max_chars:
        return Excerpt(text, len(text))
    reserved = len(_missing_characters(len(text)))
    if max_chars < 3 * reserved:
        head = text[: head_end(text, max(max_chars - 1, 0))]
        return Excerpt(f"{head}…"[: max(max_chars, 0)], len(head))
    head = text[: head_end(text, int((max_chars - reserved) * _HEAD_SHARE))]
    tail = text[_tail_start(text, len(text) - (max_chars - reserved - len(head))) :]
    shown = len(head) + len(tail)
    return Excerpt(head + _missing_characters(len(text) - shown) + tail, shown)


def excerpt_json(value: object, max_chars: int) -> Excerpt:
    """Return valid JSON of a value, or of as much of it as fits `max_chars` (3 or more).

    A list keeps its first items whole, then `"… 31 of 40 items left out"`. An object keeps every
    key, and its long members share the characters. A string keeps head and tail. `"…"` replaces a
    value below the eighth level, and one that does not fit.
    """
    return _excerpt_json(value, to_json(value), max_chars, depth=0)


def _excerpt_json(value: object, whole: str, max_chars: int, depth: int) -> Excerpt:
    if len(whole) <= max_chars:
        return Excerpt(whole, len(whole))
    shorter = Excerpt(_GAP, 0)
    if depth < _MAX_DEPTH:
        if isinstance(value, str):
            shorter = _excerpt_string(value, max_chars)
        elif isinstance(value, list):
            shorter = _excerpt_list(value, max_chars, depth)
        elif isinstance(value, dict):
            shorter = _excerpt_object(value, max_chars, depth)
    return shorter if len(shorter.text) <= max_chars else Excerpt(_GAP, 0)


def _excerpt_list(items: list[object], max_chars: int, depth: int) -> Excerpt:
    inner = max_chars - len(_bracketed("[]", [], _missing_of(len(items), len(items), "items")).text)
    shown: list[Excerpt] = []
    used = 0
    for item in items:
        text = to_json(item)
        left = inner - used - 1
        if len(text) > left:
            if left > max(inner // 2, _MIN_VALUE_CHARS):  # a shorter cut item would add little
                shown.append(_excerpt_json(item, text, left, depth + 1))
            break
        shown.append(Excerpt(text, len(text)))
        used += len(text) + 1
    return _bracketed("[]", shown, _missing_of(len(items) - len(shown), len(items), "items"))


def _excerpt_object(members: dict[str, object], max_chars: int, depth: int) -> Excerpt:
    keys = [to_json(key) + ":" for key in members]
    texts = [to_json(value) for value in members.values()]
    frames = [len(key) + 1 for key in keys]
    inner, count = max_chars - 2, len(keys)
    sizes = list(
        accumulate(
            frame + min(len(text), _MIN_VALUE_CHARS)
            for frame, text in zip(frames, texts, strict=True)
        )
    )
    if sizes[-1] > inner:
        inner -= len(_missing_members(count, count))
        count = sum(total <= inner for total in sizes)
    shares = fair_shares([len(text) for text in texts[:count]], inner - sum(frames[:count]))
    shown = [
        _excerpt_json(value, text, share, depth + 1)
        for value, text, share in zip(members.values(), texts, shares, strict=False)
    ]
    parts = [
        Excerpt(key + part.text, len(key) + part.chars_shown)
        for key, part in zip(keys, shown, strict=False)
    ]
    return _bracketed("{}", parts, _missing_members(len(keys) - count, len(keys)))


def _excerpt_string(text: str, max_chars: int) -> Excerpt:
    budget = max_chars - 2
    while budget > 0:
        part = excerpt_text(text, budget)
        encoded = to_json(part.text)
        if len(encoded) <= max_chars:
            return Excerpt(encoded, part.chars_shown + 2)
        budget = min(budget - 1, budget * max_chars // len(encoded))  # escapes take characters too
    return Excerpt(_GAP, 0)


def _bracketed(brackets: str, parts: Sequence[Excerpt], mark: str) -> Excerpt:
    texts = [part.text for part in parts] + [mark] * bool(mark)
    shown = len(brackets) + len(texts) - 1 + sum(part.chars_shown for part in parts)
    return Excerpt(f"{brackets[0]}{','.join(texts)}{brackets[1]}", shown)


def _missing_characters(count: int) -> str:
    # the space: a cut must not make a heading of the tail
    return f"\n[… {count:,} characters left out …] "


def _missing_of(count: int, total: int, noun: str) -> str:
    return f'"… {count:,} of {total:,} {noun} left out"' if count else ""


def _missing_members(count: int, total: int) -> str:
    return f'"…":{_missing_of(count, total, "members")}' if count else ""


def head_end(text: str, end: int) -> int:
    """Return where a head of at most `end` characters ends: at a boundary in its last quarter.

    Without one, between two clusters.

    The text must be longer than `end`.
    """
    for boundary in _BOUNDARIES:
        found = text.rfind(boundary, end - end // 4, end)
        if found > 0:
            return found + len(boundary.rstrip())
    stop = max(end - _MAX_CLUSTER_CHARS, 0)
    while end > stop and _attaches(text, end):
        end -= 1
    return end


def _tail_start(text: str, start: int) -> int:
    """The start of a tail: after the first boundary in its first quarter, else between clusters."""
    for boundary in _BOUNDARIES:
        found = text.find(boundary, start, start + (len(text) - start) // 4)
        if found >= 0:
            return found + len(boundary)
    stop = min(start + _MAX_CLUSTER_CHARS, len(text))
    while start < stop and _attaches(text, start):
        start += 1
    return start


def _attaches(text: str, at: int) -> bool:
    """Whether the character at a position belongs to the cluster of the one before it."""
    return (
        unicodedata.category(text[at])[0] == "M"
        or text[at] == _ZERO_WIDTH_JOINER
        or text[at - 1] == _ZERO_WIDTH_JOINER
    )
