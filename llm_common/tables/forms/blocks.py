"""Blocks of `key: value` lines."""

import re
from collections import Counter
from collections.abc import Sequence, Set as AbstractSet
from dataclasses import replace
from typing import Final, TypeAlias

from llm_common.tables.forms.fit import MAX_LINE_CHARS, MIN_LINES, MOST, share_of
from llm_common.tables.table import Table, table_of_records, table_of_rows
from llm_common.text.canonical import Json

_PAIR: Final = re.compile(
    r"[-*]?\s*+\**(?P<key>[^\s:*#][^:*\n]{0,50})\**\s*+:\**(?:\s++(?P<value>.*)|$)"
)
# Several pairs stand in one line, as `stat` prints them.
_NEXT_PAIR: Final = re.compile(r"(?:\t|\s{2,})(?=[^\s:(](?:[^\s:(]| (?! )){0,30}: )")
_APART: Final = re.compile(r"([^\s(]+)\s{2,}(.+)")
_HEADING: Final = re.compile(r"#{1,6}\s++(?P<text>.*\S)")
_FIRST_WORD: Final = re.compile(r"\s*+[^\W\d_][^\s:]*+(?:\s*:)?\s+")
_RULE: Final = re.compile(r"[-=*_]{3,}\s*")
_KEY_AND_VALUE: Final = re.compile(
    r"(?:[*-] | ){0,4}(?P<key>[^\s:=]{1,80}(?: ?=(?!=)|:(?!\S))|[^\s:=][^\t:=]{0,80}:(?!\S))"
    r"\s*+(?P<value>(?!&\w|\*\w|[\[{].*[\]}]$).*)"  # which YAML and JSON have
)
_MIN_KEYS: Final = 5
_TEXT: Final = "text"
_TITLE: Final = "heading"
_SAMPLE_LINES: Final = 200
_MIN_PAIRS: Final = 0.2  # share of lines with a pair
Pair: TypeAlias = tuple[str, str]
Line: TypeAlias = tuple[str, Sequence[Pair]]
"""A line, and the pairs in it."""


def blocks(text: str, lines: list[str]) -> Table | None:
    """Return the table of blocks of `key: value` lines, or None."""
    if share_of(lines[:_SAMPLE_LINES], lambda line: bool(_pairs_of(line))) < _MIN_PAIRS:
        return None
    read = [(line, _pairs_of(line)) for line in text.strip("\n").split("\n")]
    return _between_gaps(read) or _from_one_word(read)


def key_values(lines: Sequence[str]) -> Table | None:
    """Return the table of lines of a key and its value, as `env` and `file` print them, or None."""
    first = lines[:_SAMPLE_LINES]
    if len(first) < len(lines) and key_values(first) is None:
        return None  # soon told of a long text
    rows: list[tuple[str, str]] = []
    places: set[int] = set()
    values: set[int] = set()
    for line in lines:
        match = _KEY_AND_VALUE.fullmatch(line[:MAX_LINE_CHARS])
        if match is None:
            return None
        rows.append((match["key"].rstrip(" :="), line[match.start("value") :]))
        places.add(match.start("key"))
        values.add(match.start("value"))
    keys = {key for key, _ in rows}
    # Several words before a colon are a key where blanks behind it align the values.
    are_aligned = len(values) == 1 < len(set(map(len, keys)))
    are_keys = are_aligned or not any(" " in key for key in keys)
    if len(places) > 1 or not are_keys or len(keys) < max(MOST * len(rows), _MIN_KEYS):
        return None
    return replace(table_of_rows("line 1", ("key", "value"), rows), is_log=True)


def _between_gaps(lines: Sequence[Line]) -> Table | None:
    """Return the table of blocks between blank lines, rules or headings, or None."""
    groups: list[list[Line]] = [[]]
    for line, pairs in lines:
        stripped = line.strip()
        is_gap = not stripped or _RULE.fullmatch(stripped) is not None
        if is_gap or (line.startswith("#") and _HEADING.match(line[:MAX_LINE_CHARS])):
            groups.append([])
        if not is_gap:
            groups[-1].append((line, pairs))
    if len(groups) < MIN_LINES:
        return None
    records: list[dict[str, Json]] = []
    others: list[str] = []
    values = text_lines = 0
    read = _records(groups, "")
    # A single key may be that of a note, unless nearly all blocks have more.
    singles = sum(len(record.keys() - {_TEXT, _TITLE}) == 1 for record in read)
    fewest = 1 + (singles > (1 - MOST) * len(read))
    for group, record in zip(groups, read, strict=True):
        if _TEXT in record:
            text_lines += str(record[_TEXT]).count("\n") + 1
        keys = record.keys() - {_TEXT}
        if len(keys) >= fewest and keys != {_TITLE}:
            values += len(record)
            records.append(record)
        else:
            others += [line for line, _ in group if line.strip()]
    # A document has lines around its keys.
    if len(records) < MIN_LINES or text_lines > values / 4:
        return None
    return replace(table_of_records("", records), other_lines=tuple(others))


def _from_one_word(lines: Sequence[Line]) -> Table | None:
    """Return the table of blocks that begin with the same word, as those of `git log`, or None."""
    first = _FIRST_WORD.match(lines[0][0])
    if first is None:
        return None
    groups: list[list[Line]] = []
    for line, pairs in lines:
        if line.startswith(first[0]):
            groups.append([])
        groups[-1].append((line, pairs))
    if len(lines) < MIN_LINES * len(groups):  # pairs of lines are no blocks
        return None
    records = _records(groups, first[0].strip(" :"))
    with_keys = sum(len(record.keys() - {_TEXT}) > 1 for record in records)
    if len(records) < MIN_LINES or with_keys < MOST * len(records):
        return None
    # Lines of a block may be no pairs, such as the message of a commit.
    return replace(table_of_records("line 1", records), is_log=True)


def _records(groups: Sequence[Sequence[Line]], name: str) -> list[dict[str, Json]]:
    """Return blocks as records of their pairs, whose other lines are their text.

    Args:
        groups: The lines of the blocks.
        name: The name of what stands in a first line without a pair. "" for none.
    """
    counts: Counter[str] = Counter()
    for group in groups:
        counts.update({key for _, pairs in group for key, _ in pairs})
    # A key comes again in records. Another word before a colon stands in a text.
    keys = {key for key, count in counts.items() if count > (1 - MOST) * len(groups)}
    return [_record(group, name, keys) for group in groups]


def _record(lines: Sequence[Line], name: str, keys: AbstractSet[str]) -> dict[str, Json]:
    record: dict[str, Json] = {}
    text: list[str] = []
    last, indent, value_column = "", MAX_LINE_CHARS, MAX_LINE_CHARS
    for line, pairs in lines:
        heading = _HEADING.match(line[:MAX_LINE_CHARS])
        is_below = bool(line.strip()) and line[:value_column].isspace()
        if heading:
            record[_TITLE] = heading["text"]
        elif (
            pairs
            and not is_below
            and all(key in keys and f"{key}_2" not in record for key, _ in pairs)
        ):
            for key, value in pairs:
                last = f"{key}_2" if key in record else key
                record[last] = value
            indent = len(line) - len(line.lstrip()) + 1
            value_column = line.index(pairs[0][1], line.index(":"))
        elif name and not record:
            record[name] = line.strip().removeprefix(name).lstrip()
        elif is_below or (line.strip() and line[:indent].isspace()):
            record[last] = f"{record[last]}\n{line.strip()}".strip()
        else:
            text.append(line.strip())
            indent = value_column = MAX_LINE_CHARS
    if any(text):
        record[_TEXT] = "\n".join(text).strip()
    return record


def _pairs_of(line: str) -> list[Pair]:
    """Return the pairs of a line, or [] if a part of it is none."""
    pairs: list[Pair] = []
    parts = _NEXT_PAIR.split(line[:MAX_LINE_CHARS].strip())
    for part in parts:
        match = _PAIR.fullmatch(part)
        if match is None:
            return []
        value = (match["value"] or "").strip()
        # Beside other pairs, what stands apart from a value is a second one.
        apart = _APART.fullmatch(value) if len(parts) > 1 else None
        for text in apart.groups() if apart else [value]:
            pairs.append((match["key"].strip(), text))
    return pairs
