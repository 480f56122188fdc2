"""Documents of data in JSON lines, Python's notation, XML and YAML, as plain data.

`find_records` looks for records in it as in JSON. Texts stay texts, so that the columns of a table
decide what they mean, and not the rules of a notation.
"""

import ast
import json
import re
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from typing import Final
from xml.etree import ElementTree as ET

import orjson

from llm_common.tables.forms.fit import MAX_TEXT_CHARS, MOST, SAMPLE_LINES, share_of
from llm_common.tables.table import unused_name
from llm_common.text.canonical import Json

_MAX_CHARS: Final = 5_000_000
_MAX_PYTHON_CHARS: Final = 500_000  # its parser takes some 100 times as many bytes
_MAX_LEVELS: Final = 50


def json_lines(text: str) -> tuple[list[Json], list[str]] | None:
    """Return the objects of a text with one JSON object per line, and its other lines, or None.

    At most a tenth of the lines may be something else, such as a cut last one.
    """
    lines = text.split("\n") if len(text) <= MAX_TEXT_CHARS else []
    lines = [line for line in lines if line.strip()]
    if len(lines) < 2 or not lines[0].lstrip().startswith("{"):  # noqa: PLR2004
        return None
    if share_of(lines[:SAMPLE_LINES], lambda line: _object_in(line) is not None) < MOST:
        return None
    objects: list[Json] = []
    others: list[str] = []
    for line in lines:
        value = _object_in(line)
        if value is not None:
            objects.append(value)
        else:
            others.append(line)
    return (objects, others) if len(objects) >= MOST * len(lines) else None


def _object_in(line: str) -> dict[str, Json] | None:
    try:
        value = orjson.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


_STRING: Final = r"'(?:[^'\\\n]|\\.)*+'" + r'|"(?:[^"\\\n]|\\.)*+"'
# Strings stay. Of a class, such as Decimal('1.50') or np.float64(1.5), its number or text stays.
_CALL: Final = re.compile(
    rf"(?P<string>{_STRING})"
    r"|datetime\.(?:date|datetime)\((?P<moment>\d{1,4}(?:, \d{1,6}){2,6})\)"
    r"|(?:[a-z]{1,20}\.)?(?:[A-Z]\w{1,60}|float\d{2}|u?int\d{1,2}|str_)"
    rf"\((?P<inner>{_STRING}|[-+.\deE]{{1,40}})\)"
)
# In brackets before the entry of a log, where Python's parser would warn of its numbers.
_TIME: Final = re.compile(r"\[[^\[\]'\"]*\]\s*\w")
_TUPLES: Final = re.compile(r"\[\s*\(")


def python_data(text: str) -> Json:
    """Return the data of a text in Python's notation, such as `[{'id': 1}]`, or None."""
    text = text.strip()
    if not text.startswith(("[", "{", "(")) or len(text) > _MAX_PYTHON_CHARS or "'" not in text:
        return None
    if _TIME.match(text):
        return None
    with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        value = json.loads(json.dumps(ast.literal_eval(_CALL.sub(_literal_of, text))))
        if not _TUPLES.match(text):
            return value  # type: ignore[no-any-return]
        # No row of a query's tuples names the columns.
        records: list[Json] = []
        for row in value:
            records.append({f"column_{n}": cell for n, cell in enumerate(row, start=1)})
        return records
    return None


def _literal_of(call: re.Match[str]) -> str:
    if not call["moment"]:
        return str(call["string"] or call["inner"])
    numbers = [int(number) for number in call["moment"].split(",")]
    moment = datetime(*numbers)  # type: ignore[arg-type]  # noqa: DTZ001
    return repr(str(moment if numbers[3:] else moment.date()))


_XML: Final = re.compile(r"\s*<(?:\?xml|!--|!DOCTYPE\s|[A-Za-z_])")
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
            return _content(root, 0, _repeated(root))
    return None


def _repeated(root: ET.Element) -> set[tuple[str, str]]:
    """Return the names of elements that stand several times in one, with the name of that one.

    They are a list also where there is one.
    """
    repeated = set()
    for element in root.iter():
        names = Counter(child.tag for child in element)
        repeated |= {(element.tag, name) for name, count in names.items() if count > 1}
    return repeated


def _content(element: ET.Element, level: int, repeated: Collection[tuple[str, str]]) -> Json:
    if level > _MAX_LEVELS:
        raise ValueError("too many levels")
    children: dict[str, list[Json]] = {}
    for child in element:
        if child.tail and child.tail.strip():
            raise ValueError("a text with marks in it is a document, and no data")
        children.setdefault(child.tag, []).append(_content(child, level + 1, repeated))
    members: dict[str, Json] = {_local(name): value for name, value in element.items()}
    for name, values in children.items():
        is_list = (element.tag, name) in repeated
        members[unused_name(_local(name), members)] = values if is_list else values[0]
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
_MAX_EVENTS: Final = 200_000
_MAX_ALIASES: Final = 20  # as 20 of them can stand for a thousand times the text


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
    # It leaves texts as they are. The parser in C is not in every build.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    with suppress(yaml.YAMLError, ValueError):
        level = aliases = 0
        for number, event in enumerate(yaml.parse(text, Loader=loader)):
            level += isinstance(event, yaml.CollectionStartEvent)
            level -= isinstance(event, yaml.CollectionEndEvent)
            aliases += isinstance(event, yaml.AliasEvent)
            if level > _MAX_LEVELS or aliases > _MAX_ALIASES or number > _MAX_EVENTS:
                return None
        documents: list[Json] = list(yaml.load_all(text, Loader=loader))
        # Refuses an alias within the node that it stands for.
        json.dumps(documents)
        return documents[0] if len(documents) == 1 else documents
    return None
