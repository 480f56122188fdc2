"""Blocks of `key: value` lines."""

import re
from itertools import groupby
from typing import Final

from llm_common.tables.forms.fit import MAX_LINE_CHARS, MIN_LINES
from llm_common.tables.table import Table, table_of_records
from llm_common.text.canonical import Json

_KEY_LINE: Final = re.compile(
    r"\s*+[-*]?\s*+\**(?P<key>[^\s:*][^:*\n]{0,50})\**\s*+:\**\s++(?P<value>\S.*)"
)
_HEADING: Final = re.compile(r"#{1,6}\s++(?P<text>.*\S)")
_RULE: Final = re.compile(r"[-=*_]{3,}\s*")


def blocks(text: str, _: list[str]) -> Table | None:
    """Return the table of blocks of `key: value` lines, or None."""
    records: list[dict[str, Json]] = []
    plain_lines = 0
    for is_gap, lines in groupby(text.split("\n"), key=_is_gap):
        if is_gap:
            continue
        record: dict[str, Json] = {}
        key, value_column = "", MAX_LINE_CHARS
        for line in lines:
            if line[:value_column].isspace():  # goes on below the value
                record[key] = f"{record[key]}\n{line.strip()}"
                continue
            match = _KEY_LINE.match(line[:MAX_LINE_CHARS])
            heading = _HEADING.match(line[:MAX_LINE_CHARS])
            if heading:
                if len(record) > 1:  # a heading begins the next record
                    records.append(record)
                    record = {}
                record["heading"] = heading["text"]
                value_column = MAX_LINE_CHARS
            elif match:
                key, value_column = match["key"].strip(), match.start("value")
                record[key] = match["value"].strip()
            else:
                plain_lines += 1
        if len(record) > 1:
            records.append(record)
    values = sum(map(len, records))
    names = {name for record in records for name in record}
    # The same keys come again in records, and differ in a document.
    is_regular = len(records) >= MIN_LINES and len(names) <= 2.5 * values / len(records)
    if not is_regular or plain_lines > values / 4:
        return None
    return table_of_records("", records)


def _is_gap(line: str) -> bool:
    return not line.strip() or _RULE.fullmatch(line.strip()) is not None
