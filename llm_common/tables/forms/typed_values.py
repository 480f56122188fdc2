"""Values that stand within the names of their types, as APIs of databases return them."""

from collections.abc import Sequence
from typing import Final

from llm_common.text.canonical import Json

_SAMPLE: Final = 50
# Of Firestore, OpenTelemetry and MongoDB.
_TAGS: Final = frozenset(
    (  # noqa: SIM905
        "stringValue integerValue intValue doubleValue booleanValue boolValue nullValue arrayValue"
        " mapValue timestampValue bytesValue referenceValue geoPointValue"
        " $oid $date $numberInt $numberLong $numberDouble $numberDecimal"
    ).split()
)
# Of DynamoDB. A name of one letter can be that of a field, so that all fields must have one.
_SHORT_TAGS: Final[dict[str, type]] = {
    "S": str,
    "N": str,
    "B": str,
    "BOOL": bool,
    "NULL": bool,
    "M": dict,
    "L": list,
    "SS": list,
    "NS": list,
}
_TYPE_FIELDS: Final = frozenset({"type", "value", "datatype", "xml:lang"})  # of SPARQL and others


def without_type_tags(records: Sequence[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return records whose fields are values, and not objects such as `{"S": "open"}`."""
    if all(_plain(record) == record for record in records[:_SAMPLE]):
        return list(records)
    return [_plain(record) for record in records]


def _plain(members: dict[str, Json]) -> dict[str, Json]:
    """Return an object with the values within the names of types."""
    are_tagged = all(_inner(value) is not value for value in members.values())
    values: dict[str, Json] = {}
    for name, value in members.items():
        values[name] = value
        if isinstance(value, dict):
            is_tagged = are_tagged or not _TAGS.isdisjoint(value)
            values[name] = _inner(value) if is_tagged else _plain(value)
    return values


def _inner(value: Json) -> Json:
    """Return the value within the name of its type, or the same value if there is none."""
    if not isinstance(value, dict):
        return value
    if {"type", "value"} <= value.keys() <= _TYPE_FIELDS and isinstance(value["type"], str):
        return value["value"]
    tag, inner = next(iter(value.items()), ("", None))
    is_tag = tag in _TAGS or isinstance(inner, _SHORT_TAGS.get(tag, ()))
    if len(value) > 1 or not is_tag:
        return value
    if tag in ("NULL", "nullValue"):
        return None
    if isinstance(inner, dict):
        inner = inner.get("fields", inner.get("values", inner))  # of Firestore
    if isinstance(inner, list):
        return [_inner(item) for item in inner]
    return _plain(inner) if isinstance(inner, dict) else inner
