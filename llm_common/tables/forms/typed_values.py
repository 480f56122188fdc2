"""Values that stand within the names of their types, as APIs of databases return them."""

from collections.abc import Sequence
from typing import Final

from llm_common.text.canonical import Json

_SAMPLE: Final = 50
_MAX_LEVELS: Final = 3  # of objects within a record
# Of Firestore, OpenTelemetry and MongoDB.
_PLAIN_TAGS: Final = frozenset(
    (  # noqa: SIM905
        "stringValue integerValue intValue doubleValue booleanValue boolValue nullValue"
        " timestampValue bytesValue referenceValue geoPointValue"
        " $oid $date $numberInt $numberLong $numberDouble $numberDecimal"
    ).split()
)
_NESTED_TAGS: Final = {"arrayValue": "values", "mapValue": "fields"}
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
    if not any(_has_tags(record) for record in records[:_SAMPLE]):
        return list(records)
    return [_without_tags(record) for record in records]


def _has_tags(members: dict[str, Json], level: int = 0) -> bool:
    if _are_tagged(members) or any(map(_is_tagged, members.values())):
        return True
    inner = [value for value in members.values() if isinstance(value, dict)]
    return level < _MAX_LEVELS and any(_has_tags(value, level + 1) for value in inner)


def _are_tagged(members: dict[str, Json]) -> bool:
    return bool(members) and all(_may_be_tagged(value) for value in members.values())


def _is_tagged(value: Json) -> bool:
    if not isinstance(value, dict) or len(value) != 1:
        return False
    [(tag, inner)] = value.items()
    return tag in _PLAIN_TAGS or (tag in _NESTED_TAGS and isinstance(inner, dict))


def _may_be_tagged(value: Json) -> bool:
    if not isinstance(value, dict):
        return False
    if len(value) == 1:
        [(tag, inner)] = value.items()
        return _is_tagged(value) or isinstance(inner, _SHORT_TAGS.get(tag, ()))
    return {"type", "value"} <= value.keys() <= _TYPE_FIELDS and isinstance(value["type"], str)


def _without_tags(members: dict[str, Json]) -> dict[str, Json]:
    are_tagged = _are_tagged(members)
    values: dict[str, Json] = {}
    for name, value in members.items():
        if are_tagged or _is_tagged(value):
            values[name] = _value_of(value)
        elif isinstance(value, dict) and _has_tags(value):
            values[name] = _without_tags(value)
        else:
            values[name] = value
    return values


def _value_of(value: Json) -> Json:
    """Return the value within the name of its type, and those within it."""
    if not isinstance(value, dict):
        return value
    if "value" in value:
        return value["value"]
    [(tag, inner)] = value.items()
    if tag in _NESTED_TAGS and isinstance(inner, dict):
        inner = inner.get(_NESTED_TAGS[tag])
    if tag in ("NULL", "nullValue"):
        return None
    if isinstance(inner, dict):
        return _without_tags(inner)
    if isinstance(inner, list):
        return [_value_of(item) if _may_be_tagged(item) else item for item in inner]
    return inner
