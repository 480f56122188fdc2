"""The numbers that a preview states, and whether they are true of the records."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from llm_common.text.canonical import Json

Record = dict[str, Json]

_CLAIM: Final = re.compile(r"(?P<condition>.+): (?P<count>[\d,]+) of (?P<total>[\d,]+) records")
_ALL: Final = "All of these"
_HEADLINE: Final = re.compile(r"Table \S+: (?P<rows>[\d,]+) records?, (?P<fields>[\d,]+) fields?: ")
_RANGE: Final = re.compile(r"(?P<name>\w+) \((?P<low>-?[\d.]+) to (?P<high>-?[\d.]+)\)")
_COUNT: Final = re.compile(r"(?P<value>[\w @.-]+?) \((?P<count>[\d,]+)\)(?:, | …|$)")
_MORE_RECORDS: Final = re.compile(r"… (?P<count>[\d,]+) more of these records")


@dataclass(frozen=True, slots=True)
class Claim:
    """A line `CONDITION: n of m records`."""

    condition: str
    count: int
    total: int


def claims_in(preview: str) -> list[Claim]:
    """Return the claims of a preview, in their order."""
    claims = []
    for line in preview.splitlines():
        match = _CLAIM.fullmatch(line)
        if match is not None:
            claims.append(
                Claim(match["condition"], _number(match["count"]), _number(match["total"]))
            )
    return claims


def claimed_count(claims: list[Claim]) -> int | None:
    """Return how many records are claimed to be meant, or None."""
    if not claims:
        return None
    [*_, last] = claims
    return last.count if len(claims) == 1 or last.condition == _ALL else None


def false_numbers(preview: str, records: list[Record]) -> Iterator[str]:
    """Yield each number about all records that is not true: sizes, ranges and counts of values."""
    flat = list(map(_flattened, records))
    lines = preview.splitlines()
    headline = next((match for line in lines if (match := _HEADLINE.match(line))), None)
    if headline is None:
        yield "no headline"
        return
    names = {name for record in flat for name in record}
    if _number(headline["rows"]) != len(records) or _number(headline["fields"]) != len(names):
        yield headline[0]
    for match in _RANGE.finditer(headline.string):
        numbers = [
            value for value in _values(flat, match["name"]) if isinstance(value, (int, float))
        ]
        if numbers and (min(numbers), max(numbers)) != (float(match["low"]), float(match["high"])):
            yield match[0]
    for claim in claims_in(preview):
        if claim.total != len(records):
            yield claim.condition
    for line in lines:
        label, colon, rest = line.removeprefix("Of all records, ").partition(": ")
        if colon and label in names | {name.rpartition(".")[2] for name in names}:
            yield from _false_counts(rest, flat, label)


def shown_and_left(preview: str) -> int | None:
    """Return how many of the records asked for are shown or counted, or None if it is not said."""
    lines = preview.splitlines()
    heads = [index for index, line in enumerate(lines) if line.startswith("Records: ")]
    if not heads:
        return None
    for offset, line in enumerate(lines[heads[0] + 1 :]):
        match = _MORE_RECORDS.fullmatch(line)
        if match is not None:
            return offset + _number(match["count"])
    return None


def _false_counts(text: str, flat: list[Record], label: str) -> Iterator[str]:
    truth: Counter[str] = Counter()
    for value in _values(flat, label):
        elements: Sequence[Json] = value if isinstance(value, list) else [value]
        if isinstance(value, str) and label == "features":
            elements = value.split(", ")
        truth.update(_text(element) for element in elements if element not in (None, ""))
    for match in _COUNT.finditer(text):
        if truth[match["value"]] != _number(match["count"]):
            yield f"{label}: {match[0]}"


def _values(flat: list[Record], name: str) -> list[Json]:
    """Return the values of a field that is named by its path or the end of it."""
    paths = {
        path for record in flat for path in record if path == name or path.endswith(f".{name}")
    }
    return [record[path] for record in flat for path in paths if path in record]


def _flattened(record: Record) -> Record:
    flat: Record = {}
    for name, value in record.items():
        if isinstance(value, dict) and value:
            for inner, member in _flattened(value).items():
                flat[f"{name}.{inner}"] = member
        else:
            flat[name] = value
    return flat


def _text(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _number(text: str) -> int:
    return int(text.replace(",", ""))
