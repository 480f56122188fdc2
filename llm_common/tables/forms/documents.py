"""Documents of data in Python's notation, XML and YAML, as plain data.

`find_records` looks for records in it as in JSON. Texts stay texts, so that the columns of a table
decide what they mean, and not the rules of a notation.
"""

import ast
import json
import re
from contextlib import suppress
from typing import Any, Final
from xml.etree import ElementTree as ET

from llm_common.tables.forms.fit import MOST, SAMPLE_LINES, share_of
from llm_common.tables.table import unused_name
from llm_common.text.canonical import DECODER, Json

_MAX_CHARS: Final = 5_000_000
_MAX_LEVELS: Final = 50
_MAX_NODES: Final = 200_000  # of YAML, with the copies that its aliases stand for

# The escapes are those that Python writes.
_ESCAPE: Final = r"\\(?:[\\'\"nrt]|x[\da-f]{2}|u[\da-f]{4}|U[\da-f]{8})"
_STRING: Final = rf"'(?:[^'\\\n]|{_ESCAPE})*+'|\"(?:[^\"\\\n]|{_ESCAPE})*+\""
_PYTHON: Final = re.compile(
    rf"(?P<string>{_STRING})"
    r"|datetime\.(?:date|datetime)\((?P<moment>[\d, ]{5,60})\)"
    # A number or a text of a class, such as Decimal('1.50') or np.float64(1.5).
    r"|(?:[a-z]{1,20}\.)?(?:[A-Z]\w{1,60}|float\d{2}|u?int\d{1,2}|str_)"
    rf"\((?P<inner>{_STRING}|[-+.\deE]{{1,40}})\)"
    r"|\b(?P<word>None|True|False|nan)\b|(?P<open>\()|(?P<close>,?\s{0,9}\))"
)
_WORDS: Final = {"None": "null", "nan": "null", "True": "true", "False": "false"}
_TUPLES: Final = re.compile(r"\[\s*\(")


def python_data(text: str) -> Json:
    """Return the data of a text in Python's notation, such as `[{'id': 1}]`, or None."""
    if not text.lstrip().startswith(("[", "{", "(")) or len(text) > _MAX_CHARS:
        return None
    with suppress(ValueError, RecursionError, SyntaxError):
        value: Json = DECODER.decode(_PYTHON.sub(_json_of, text).strip())
        if isinstance(value, list) and _TUPLES.match(text.lstrip()):
            return _records_of_rows(value)  # no row of tuples names the columns
        return value
    return None


def _json_of(token: re.Match[str]) -> str:
    literal = token["string"] or token["inner"]
    if literal:
        if literal[0] not in "'\"":
            return literal
        return json.dumps(ast.literal_eval(literal) if "\\" in literal else literal[1:-1])
    if token["moment"]:
        numbers = [number.strip().zfill(2) for number in token["moment"].split(",")]
        clock = ":".join([*numbers[3:], "00"][:3])
        moment = "-".join(numbers[:3]) + (f"T{clock}" if numbers[3:] else "")
        return f'"{moment}"'
    if token["word"]:
        return _WORDS[token["word"]]
    return "[" if token["open"] else "]"


def _records_of_rows(rows: list[Json]) -> Json:
    records: list[Json] = []
    for row in rows:
        if not isinstance(row, list):
            return rows
        records.append({f"column_{number}": cell for number, cell in enumerate(row, start=1)})
    return records


_XML: Final = re.compile(r"\s*<(?:\?xml|!--|[A-Za-z_])")
_HTML: Final = frozenset({"html", "body", "table", "div", "section", "ul", "ol", "svg", "p"})


def xml_data(text: str) -> Json:
    """Return the data of a text in XML, or None.

    An element is an object of its attributes and the elements in it, and a text if it has none.
    """
    # Without entities of its own, a document is not larger than it looks.
    if len(text) > _MAX_CHARS or not _XML.match(text) or "<!ENTITY" in text:
        return None
    with suppress(ET.ParseError, ValueError):
        root = ET.fromstring(text.strip())  # noqa: S314
        if _local(root.tag).lower() not in _HTML:
            return _content(root, 0)
    return None


def _content(element: ET.Element, level: int) -> Json:
    if level > _MAX_LEVELS:
        raise ValueError("too many levels")
    children: dict[str, list[Json]] = {}
    for child in element:
        if child.tail and child.tail.strip():
            raise ValueError("a text with marks in it is a document, and no data")
        children.setdefault(_local(child.tag), []).append(_content(child, level + 1))
    members: dict[str, Json] = {_local(name): value for name, value in element.items()}
    for name, values in children.items():
        members[unused_name(name, members)] = values if len(values) > 1 else values[0]
    content = (element.text or "").strip()
    if not members:
        return content or None
    if content:
        members[unused_name("text", members)] = content
    return members


def _local(name: str) -> str:
    """Return a name without its namespace."""
    return name.rpartition("}")[2]


_YAML_LINE: Final = re.compile(
    r"\s{2,}|\s*(?:#|---|\.\.\.$|-(?:\s|$)|[\"']?[\w./$@ -]{1,80}[\"']?:(?:\s|$))"
)


def yaml_data(text: str) -> Json:
    """Return the data of a text in YAML, or None, also without the package that reads it."""
    lines = [line for line in text[:_MAX_CHARS].split("\n") if line.strip()]
    if not lines or lines[0][0].isspace() or len(text) > _MAX_CHARS:
        return None
    if share_of(lines[:SAMPLE_LINES], lambda line: _YAML_LINE.match(line) is not None) < MOST:
        return None
    try:
        import yaml  # noqa: PLC0415 - of the extra `formats`
    except ImportError:
        return None
    with suppress(yaml.YAMLError, ValueError, LookupError):
        return _YamlReader(yaml, text).documents()
    return None


class _YamlReader:
    """The nodes of a text in YAML, without the types that YAML gives them.

    Args:
        yaml: The package.
        text: The text.
    """

    def __init__(self, yaml: Any, text: str) -> None:
        self._yaml = yaml
        # The parser in C is not in every build.
        self._parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        self._nodes_left = _MAX_NODES
        self._anchors: dict[str, tuple[Json, int]] = {}

    def documents(self) -> Json:
        """Return the only document, or all of them."""
        documents: list[Json] = []
        self._parser.get_event()
        while not self._parser.check_event(self._yaml.StreamEndEvent):
            self._parser.get_event()
            documents.append(self._node(0))
            self._parser.get_event()
            self._anchors.clear()
        return documents[0] if len(documents) == 1 else documents

    def _node(self, level: int) -> Json:
        event = self._parser.get_event()
        left = self._nodes_left
        if left <= 0 or level > _MAX_LEVELS:
            raise ValueError("too many nodes or levels")
        self._nodes_left -= 1
        value: Json
        if isinstance(event, self._yaml.AliasEvent):
            # An alias of a node that contains it is not there yet.
            value, size = self._anchors[event.anchor]
            self._nodes_left -= size
            return value
        if isinstance(event, self._yaml.ScalarEvent):
            is_missing = event.implicit[0] and event.value in ("", "~", "null")
            value = None if is_missing else event.value
        elif isinstance(event, self._yaml.SequenceStartEvent):
            value = self._items(level)
        else:
            value = self._members(level)
        if event.anchor:
            self._anchors[event.anchor] = value, left - self._nodes_left
        return value

    def _items(self, level: int) -> list[Json]:
        items: list[Json] = []
        while not self._parser.check_event(self._yaml.SequenceEndEvent):
            items.append(self._node(level + 1))
        self._parser.get_event()
        return items

    def _members(self, level: int) -> dict[str, Json]:
        members: dict[str, Json] = {}
        inherited: dict[str, Json] = {}
        while not self._parser.check_event(self._yaml.MappingEndEvent):
            key, value = self._node(level + 1), self._node(level + 1)
            if key == "<<" and isinstance(value, dict):
                inherited |= value
            elif isinstance(key, str) and key not in members:
                members[key] = value
            else:
                raise ValueError("a key that is a list, or that is there twice")
        self._parser.get_event()
        return {**inherited, **members}
