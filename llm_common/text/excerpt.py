"""Excerpts: what to show of a result that is longer than its room.

JSON stays JSON: whole items are kept where they fit, long members share the room of their object, and what is missing
is counted in the place where it stood. Text keeps its head and its tail.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from llm_common.text.canonical import encode_json

__all__ = ["Excerpt", "excerpt_json", "excerpt_text", "fair_shares", "head_end", "to_json"]

_GAP = '"…"'  # stands for a value that there is no room for
_LEAST_VALUE = 16
_DEEPEST = 8
_HEAD_SHARE = 2 / 3
_BOUNDARIES = ("\n", "},", ", ", " ")
_LONGEST_CLUSTER = 16
_LINE_SEPARATORS = (("\x85", r"\u0085"), ("\u2028", r"\u2028"), ("\u2029", r"\u2029"))  # JSON escapes the others
_ZERO_WIDTH_JOINER = "\u200d"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What is shown, and how many of its characters are the original's rather than marks of what is missing."""

    text: str
    chars_shown: int


def to_json(value: object) -> str:
    """Compact JSON on one line, escaped no more than that takes.

    Raises:
        UnserialisableError: JSON cannot stand for the value.
    """
    text = encode_json(value).data.decode()
    for separator, escape in _LINE_SEPARATORS:
        text = text.replace(separator, escape)
    return text


def fair_shares(wants: Sequence[int], room: int) -> list[int]:
    """How much of the room each gets: the modest get all they want, the others the same amount each.

    The sum never exceeds the room, nor a share its want (max-min fairness, also known as water-filling).
    """
    shares = [0] * len(wants)
    left = max(room, 0)
    for served, index in enumerate(sorted(range(len(wants)), key=lambda index: wants[index])):
        shares[index] = min(wants[index], left // (len(wants) - served))
        left -= shares[index]
    return shares


def excerpt_text(text: str, room: int) -> Excerpt:
    """The text, or its head and tail with the count of what is missing between them, in at most `room` characters.

    Cuts fall on the end of a line, an item or a word where one is near, and never before a combining mark. Where the
    room is too small for the count, a head and `…` remain.
    """
    if len(text) <= room:
        return Excerpt(text, len(text))
    reserved = len(_missing_characters(len(text)))
    if room < 3 * reserved:
        head = text[: head_end(text, max(room - 1, 0))]
        return Excerpt(f"{head}…"[: max(room, 0)], len(head))
    head = text[: head_end(text, int((room - reserved) * _HEAD_SHARE))]
    tail = text[_tail_start(text, len(text) - (room - reserved - len(head))) :]
    shown = len(head) + len(tail)
    return Excerpt(head + _missing_characters(len(text) - shown) + tail, shown)


def excerpt_json(value: object, room: int) -> Excerpt:
    """Valid JSON in at most `room` characters, three or more: the whole value, or as much of it as fits.

    Of a list the first items stand whole, then `"… 31 of 40 items left out"`; of an object every member keeps its key
    while the long ones share the room; of a string, head and tail. Deeper than eight levels, and where nothing fits,
    `"…"` stands for the value.
    """
    return _excerpt_json(value, to_json(value), room, depth=0)


def _excerpt_json(value: object, whole: str, room: int, depth: int) -> Excerpt:
    if len(whole) <= room:
        return Excerpt(whole, len(whole))
    shorter = Excerpt(_GAP, 0)
    if depth < _DEEPEST:
        if isinstance(value, str):
            shorter = _excerpt_string(value, room)
        elif isinstance(value, list):
            shorter = _excerpt_list(value, room, depth)
        elif isinstance(value, dict):
            shorter = _excerpt_object(value, room, depth)
    return shorter if len(shorter.text) <= room else Excerpt(_GAP, 0)


def _excerpt_list(items: list[object], room: int, depth: int) -> Excerpt:
    inner = room - len(_bracketed("[]", [], _missing_of(len(items), len(items), "items")).text)
    shown: list[Excerpt] = []
    used = 0
    for item in items:
        text = to_json(item)
        left = inner - used - 1
        if len(text) > left:
            if left > max(inner // 2, _LEAST_VALUE):  # else a cut item adds little to the whole ones
                shown.append(_excerpt_json(item, text, left, depth + 1))
            break
        shown.append(Excerpt(text, len(text)))
        used += len(text) + 1
    return _bracketed("[]", shown, _missing_of(len(items) - len(shown), len(items), "items"))


def _excerpt_object(members: dict[str, object], room: int, depth: int) -> Excerpt:
    keys = [to_json(key) + ":" for key in members]
    texts = [to_json(value) for value in members.values()]
    frames = [len(key) + 1 for key in keys]
    inner, count = room - 2, len(keys)
    least = list(accumulate(frame + min(len(text), _LEAST_VALUE) for frame, text in zip(frames, texts, strict=True)))
    if least[-1] > inner:
        inner -= len(_missing_members(count, count))
        count = sum(total <= inner for total in least)
    shares = fair_shares([len(text) for text in texts[:count]], inner - sum(frames[:count]))
    shown = [
        _excerpt_json(value, text, share, depth + 1)
        for value, text, share in zip(members.values(), texts, shares, strict=False)
    ]
    parts = [Excerpt(key + part.text, len(key) + part.chars_shown) for key, part in zip(keys, shown, strict=False)]
    return _bracketed("{}", parts, _missing_members(len(keys) - count, len(keys)))


def _excerpt_string(text: str, room: int) -> Excerpt:
    budget = room - 2
    while budget > 0:
        part = excerpt_text(text, budget)
        encoded = to_json(part.text)
        if len(encoded) <= room:
            return Excerpt(encoded, part.chars_shown + 2)
        budget = min(budget - 1, budget * room // len(encoded))  # escapes take room of their own
    return Excerpt(_GAP, 0)


def _bracketed(brackets: str, parts: Sequence[Excerpt], mark: str) -> Excerpt:
    texts = [part.text for part in parts] + [mark] * bool(mark)
    shown = len(brackets) + len(texts) - 1 + sum(part.chars_shown for part in parts)
    return Excerpt(f"{brackets[0]}{','.join(texts)}{brackets[1]}", shown)


def _missing_characters(count: int) -> str:
    return f"\n[… {count:,} characters left out …] "  # what follows must not begin a line that it did not begin


def _missing_of(count: int, total: int, noun: str) -> str:
    return f'"… {count:,} of {total:,} {noun} left out"' if count else ""


def _missing_members(count: int, total: int) -> str:
    return f'"…":{_missing_of(count, total, "members")}' if count else ""


def head_end(text: str, end: int) -> int:
    """Where to end a head of at most `end` characters: at the last boundary in its last quarter, else between clusters.

    The text must be longer than `end`.
    """
    for boundary in _BOUNDARIES:
        found = text.rfind(boundary, end - end // 4, end)
        if found > 0:
            return found + len(boundary.rstrip())
    stop = max(end - _LONGEST_CLUSTER, 0)
    while end > stop and _attaches(text, end):
        end -= 1
    return end


def _tail_start(text: str, start: int) -> int:
    """Where to start the tail: after the first boundary in its first quarter, else at a whole character cluster."""
    for boundary in _BOUNDARIES:
        found = text.find(boundary, start, start + (len(text) - start) // 4)
        if found >= 0:
            return found + len(boundary)
    stop = min(start + _LONGEST_CLUSTER, len(text))
    while start < stop and _attaches(text, start):
        start += 1
    return start


def _attaches(text: str, at: int) -> bool:
    """Whether the character at that place belongs to the one before it."""
    return (
        unicodedata.category(text[at])[0] == "M" or text[at] == _ZERO_WIDTH_JOINER or text[at - 1] == _ZERO_WIDTH_JOINER
    )
