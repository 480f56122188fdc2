"""The numbers that a preview states, and whether they are true of the records."""

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from llm_common.text.canonical import Json

Record = dict[str, Json]

_CLAIM: Final = re.compile(r"(?P<condition>.+): (?P<count>[\d,]+) of (?P<total>[\d,]+) records")
_ALL: Final = "All of these"
_HEADLINE: Final = re.compile(r"Table \S+: (?P<rows>[\d,]+) records?, (?P<fields>[\d,]+) fields?: ")
_COUNT: Final = re.compile(r"(?P<value>[\w @.-]+?) \((?P<count>[\d,]+)\)(?:, | …|$)")
_COMPARED: Final = re.compile(r"(?P<name>[\w.]+) (?P<sign>[<>]=?) (?P<number>-?[\d.]+)")
_EQUAL: Final = re.compile(r"(?P<name>[\w.]+) (?P<sign>=|is not) (?P<values>(?!present).+)")
_SIGNS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_OTHER_CONDITION: Final = re.compile(r" (?:and|=|is|has|in|[<>]=?|before|after|from) ")
_YES: Final = {"true", "True", "yes", "Yes", "Y", "1"}
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
    """Yield each number about all records that is not true: sizes and counts of values."""
    flat = list(map(_flattened, records))
    lines = preview.splitlines()
    headline = next((match for line in lines if (match := _HEADLINE.match(line))), None)
    if headline is None:
        yield "no headline"
        return
    names = {name for record in flat for name in record}
    if _number(headline["rows"]) != len(records) or _number(headline["fields"]) != len(names):
        yield headline[0]
    for claim in claims_in(preview):
        if claim.total != len(records):
            yield claim.condition
    for line in lines:
        label, colon, rest = line.removeprefix("Of all records, ").partition(": ")
        if colon and label in names | {name.rpartition(".")[2] for name in names}:
            yield from _false_counts(rest, flat, label)


def false_conditions(claims: list[Claim], records: list[Record]) -> Iterator[Claim]:
    """Yield the claims about one field whose number is not that of the condition as it reads.

    Reads amounts that are compared, and values with their alternatives.
    """
    flat = list(map(_flattened, records))
    for claim in claims:
        meets = _meaning_of(claim.condition)
        if meets is not None and sum(map(meets, flat)) != claim.count:
            yield claim


def _meaning_of(condition: str) -> Callable[[Record], bool] | None:
    """Return what a condition says of a record, or None for a condition of another form."""
    compared = _COMPARED.fullmatch(condition)
    if compared is not None:
        compare, limit, field = (
            _SIGNS[compared["sign"]],
            float(compared["number"]),
            compared["name"],
        )

        def is_in_range(record: Record) -> bool:
            amounts = map(_amount, _values([record], field))
            return any(amount is not None and compare(amount, limit) for amount in amounts)

        return is_in_range
    equal = _EQUAL.fullmatch(condition)
    if equal is None or _OTHER_CONDITION.search(equal["values"]):
        return None
    wanted = set(equal["values"].split(" or "))
    if wanted == {"yes"}:
        wanted |= _YES
    is_negated, name = equal["sign"] == "is not", equal["name"]

    def has_value(record: Record) -> bool:
        texts = {_text(value) for value in _values([record], name)}
        return texts.isdisjoint(wanted) is is_negated

    return has_value


def _amount(value: Json) -> float | None:
    try:
        return float(str(value).replace(",", "").strip("$€ kgm%"))
    except ValueError:
        return None


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
