"""Describe the records of a result by a sample: where they are, and which values fields share.

Takes about a millisecond for any size, because a save waits for it. `tables/` reads whole results.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from llm_common.redaction.patterns import REDACTED
from llm_common.redaction.redactor import Redactor
from llm_common.text.canonical import Json, encode_json

# Fewer records are described by their texts, which hold most of their values.
_MIN_RECORDS: Final = 5
_CHECKED: Final = 3  # items that decide whether a list holds records
_MAX_VISITED: Final = 400
_MAX_LEVELS: Final = 4
_SAMPLE_RECORDS: Final = 100
# Multiples of the golden ratio spread evenly, and share no period with the records.
_GOLDEN_RATIO: Final = (5**0.5 - 1) / 2
_MAX_FIELDS: Final = 40  # of a record and of each object in it
_MAX_VALUE_CHARS: Final = 40  # a longer value is no category
_MAX_VALUES: Final = 12


class RecordList(NamedTuple):
    """A list of records in a result.

    Attributes:
        path: Dotted path of the list, "" for the result itself.
        records: The list. Its first items are objects.
    """

    path: str
    records: list[object]


def longest_record_list(value: object) -> RecordList | None:
    """Return the longest list of at least five records in the upper levels of a result."""
    longest: RecordList | None = None
    queue: deque[tuple[str, object, int]] = deque([("", value, 0)])
    for _ in range(_MAX_VISITED):
        if not queue:
            break
        path, part, level = queue.popleft()
        if isinstance(part, list) and len(part) >= _MIN_RECORDS:
            are_records = all(isinstance(item, Mapping) for item in part[:_CHECKED])
            if are_records and (longest is None or len(part) > len(longest.records)):
                longest = RecordList(path, part)
        elif isinstance(part, Mapping) and level < _MAX_LEVELS:
            # Copied, because the tool may still change the dict in another thread.
            for name, member in list(islice(part.items(), _MAX_FIELDS)):
                inner = f"{path}.{name}" if path else str(name)
                queue.append((inner, member, level + 1))
    return longest


def facets_of(records: list[object], redactor: Redactor) -> str:
    """Return the values that records share, such as `state open paid, city Bern Oslo`.

    Fields with the fewest values come first. Values of a sample of 100 records count, which are
    spread over the list. Secrets are left out.

    Args:
        records: The records.
        redactor: Finds the secrets.
    """
    sample: list[Json] = []
    for index in _sampled(len(records)):
        record = records[index]
        if isinstance(record, Mapping):
            sample.append(_short_texts(record))
    # As a structure, because a key or a neighbour can mark a value as a secret.
    redacted = redactor.data(sample, encoded=encode_json(sample).data)
    values: dict[str, dict[str, int]] = {}
    for record in redacted if isinstance(redacted, list) else ():
        if isinstance(record, dict):
            _count_values(record, values)
    facets = []
    for name, counts in values.items():
        is_category = 1 < len(counts) <= _MAX_VALUES and len(counts) < sum(counts.values())
        if is_category and REDACTED not in counts:
            facets.append((len(counts), f"{name} {' '.join(counts)}"))
    facets.sort(key=lambda facet: facet[0])  # stable, so ties stay in the order of the fields
    return ", ".join(text for _, text in facets)


def _sampled(total: int) -> Sequence[int]:
    """Return at most 100 indexes below a number, in ascending order."""
    if total <= _SAMPLE_RECORDS:
        return range(total)
    return sorted({int(number * _GOLDEN_RATIO % 1 * total) for number in range(_SAMPLE_RECORDS)})


def _short_texts(record: Mapping[object, object], *, is_nested: bool = False) -> dict[str, Json]:
    """Return the short texts of a record, and of the objects in it."""
    texts: dict[str, Json] = {}
    for name, value in list(islice(record.items(), _MAX_FIELDS)):
        if isinstance(value, str) and len(value) <= _MAX_VALUE_CHARS:
            texts[str(name)] = str(value)
        elif isinstance(value, Mapping) and not is_nested:
            texts[str(name)] = _short_texts(value, is_nested=True)
    return texts


def _count_values(record: dict[str, Json], values: dict[str, dict[str, int]]) -> None:
    """Add the values of a record to the counts by field."""
    for name, value in record.items():
        if isinstance(value, dict):
            _count_values(value, values)
        elif isinstance(value, str) and value.strip():
            counts = values.setdefault(name, {})
            counts[value] = counts.get(value, 0) + 1
