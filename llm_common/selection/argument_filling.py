"""Fills a tool's arguments without a model, where the schema and the texts admit one value only.

Nothing is guessed: a value that could belong to two parameters, two values for one parameter, and
words of prose are left to a model.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_common.ranking.lexical import split_identifiers
from llm_common.selection.results import DroppedCall
from llm_common.tools.definitions import ToolDefinition
from llm_common.tools.signature import properties_of, required_of, resolve
from llm_common.tools.validation import Problem

Schema = Mapping[str, Any]

_MAX_CHARS = 10_000
# In this order: what one pattern matches is not searched again, so the digits of a date and the
# dots of an address are not numbers and paths.
_VALUES = {
    "url": re.compile(r"https?://[^\s<>()\[\]{}\"'`]*[^\s<>()\[\]{}\"'`.,;:!?]"),
    "email": re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"),
    "date": re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?Z?)?(?![\w-])"),
    "path": re.compile(
        r"(?<![\w./~-])"
        r"(?:(?:\.{0,2}|~)/[\w./-]*\w|(?:[\w-]+/)*[\w-]{2,}\.[A-Za-z]\w{0,7})(?![\w/])"
    ),
    "quoted": re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|“([^“”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)"),
    "number": re.compile(r"(?<![\w.,-])-?\d{1,15}(?:\.\d{1,15})?(?![\w-]|[.,]\d)"),
}
_KIND_WORDS = {
    "url": {"href", "link", "links", "uri", "uris", "url", "urls", "website"},
    "path": {"dir", "directory", "file", "filename", "files", "folder", "path", "paths"},
    "email": {"email", "emails"},
    "date": {"date", "day"},
}
_KIND_FORMATS = {"uri": "url", "email": "email", "date": "date", "date-time": "date"}
_KIND_TYPES = {"string": "quoted", "integer": "number", "number": "number"}
_PARTING = re.compile(r"[\s_-]+")


@dataclass(frozen=True, slots=True)
class Filled:
    """The arguments that have a value, and the names of the required ones that have none."""

    args: dict[str, Any]
    missing: tuple[str, ...]


def fill_arguments(
    parameters: Schema, *, texts: Sequence[str], context: Mapping[str, Any] | None = None
) -> Filled:
    """Fill the arguments that have one possible value. Deterministic.

    Any parameter takes, in this order: the context's value of its name; the value after its name
    (`limit: 5`, `city=Paris`, `limit 5`); the only option of its enum that a text names, if no
    other parameter has the option. Required parameters that are still open then take: their
    `const` or `default`; the only value of their kind in a text, if no other of them is of that
    kind. Kinds are URL, email, date and path, by the parameter's format or name, a quoted text
    for other strings, and numbers. An array takes all values of its kind.

    Args:
        parameters: JSON Schema of the arguments.
        texts: The texts to search, the most specific first. The first one with a value counts.
        context: Known values by parameter name.
    """
    properties = {
        name: _without_null(schema, parameters)
        for name, schema in properties_of(parameters, parameters).items()
    }
    texts = [text[:_MAX_CHARS] for text in texts]
    args: dict[str, Any] = {}
    for name in properties:
        value = _evidence(name, properties, texts, context or {})
        if value is not None:
            args[name] = value
    required = required_of(parameters, parameters)
    needed = [name for name in properties if name in required and name not in args]
    for name in needed:
        schema = properties[name]
        if "const" in schema or "default" in schema:
            args[name] = schema.get("const", schema.get("default"))
    args |= _only_values(
        {name: properties[name] for name in needed if name not in args},
        texts,
        taken=list(args.values()),
    )
    return Filled(args, tuple(name for name in needed if name not in args))


def filled_call(
    tool: ToolDefinition, texts: Sequence[str], context: Mapping[str, Any] | None, *, reasoning: str
) -> dict[str, Any] | DroppedCall:
    """Return a call of the tool with the arguments that can be filled, or why there is none.

    Args:
        tool: Its schema checks the arguments.
        texts: As for `fill_arguments`.
        context: As for `fill_arguments`.
        reasoning: Why the tool was chosen.
    """
    filled = fill_arguments(tool.parameters, texts=texts, context=context)
    if filled.missing:
        problems = tuple(
            Problem(name, "required", "no text names a value for it") for name in filled.missing
        )
        return DroppedCall(tool.name, "unfilled", problems)
    problems = tool.find_problems(filled.args)
    if problems:
        return DroppedCall(tool.name, "invalid_args", problems)
    return {"tool": tool.name, "args": filled.args, "reasoning": reasoning}


def _without_null(schema: Schema, root: Schema) -> Schema:
    """Return the schema, or its only alternative that is not null. Of several, none is admitted."""
    for keyword in ("anyOf", "oneOf"):
        alternatives = schema.get(keyword)
        if isinstance(alternatives, list):
            resolved = [resolve(alternative, root) for alternative in alternatives]
            others = [part for part in resolved if part.get("type") != "null"]
            return others[0] if len(others) == 1 else {"type": None}
    types = schema.get("type")
    if isinstance(types, list):
        others = [kind for kind in types if kind != "null"]
        return {**schema, "type": others[0] if len(others) == 1 else None}
    return schema


def _evidence(
    name: str, properties: Mapping[str, Schema], texts: Sequence[str], context: Mapping[str, Any]
) -> object | None:
    """Return the value that context, name or enum give to a parameter, or None."""
    if name in context:
        known: object = context[name]
        return known
    value = _named_value(name, properties[name], texts)
    if value is None:
        return _mentioned_option(name, properties, texts)
    return value


def _only_values(
    schemas: Mapping[str, Schema], texts: Sequence[str], *, taken: Sequence[object]
) -> dict[str, Any]:
    """Return the values of the parameters that alone are of their kind, if a text has one value."""
    kinds = {name: _kind(name, schema) for name, schema in schemas.items()}
    values = [_values_of(text) for text in texts]
    filled: dict[str, Any] = {}
    for name, kind in kinds.items():
        if list(kinds.values()).count(kind) > 1:
            continue
        found = next((of_text[kind] for of_text in values if of_text.get(kind)), [])
        found = [value for value in found if value not in taken]
        if found and schemas[name].get("type") == "array":
            filled[name] = found
        elif len(found) == 1:
            filled[name] = found[0]
    return filled


def _named_value(name: str, schema: Schema, texts: Sequence[str]) -> object | None:
    """Return the value that the first text assigns to the parameter by its name, or None."""
    spaced = r"[\s_-]?".join(map(re.escape, name.split("_")))
    kind = schema.get("type", "string")
    options = _options(schema)
    if options:
        alternatives = "|".join(map(re.escape, sorted(options, key=len, reverse=True)))
        pattern = rf"\b{spaced}(?:\s*[=:]\s*|\s+)({alternatives})(?!\w)"
    elif kind in ("integer", "number"):
        pattern = rf"\b{spaced}\s*(?:[=:]\s*)?(-?\d{{1,15}}(?:\.\d{{1,15}})?)(?![\w.]*\w)"
    elif kind == "string":
        pattern = rf"\b{spaced}\s*[=:]\s*(?:\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`|([^\s,;\"'`]+))"
    else:
        return None
    for text in texts:
        match = re.search(pattern, text, re.IGNORECASE)
        if match is None:
            continue
        value: str = next(filter(None, match.groups()))
        if options:
            return _option(value, options)
        if kind == "string":
            return value.rstrip(".!?")
        return _number(value)
    return None


def _mentioned_option(
    name: str, properties: Mapping[str, Schema], texts: Sequence[str]
) -> object | None:
    """Return the only option of an enum that the first text with one names, or None."""
    options = _options(properties[name])
    for other, schema in properties.items():
        if other != name and options.keys() & _options(schema).keys():
            return None
    if not options:
        return None
    words = sorted(options, key=len, reverse=True)  # of `new` and `newest first` the longer one
    parts = [_PARTING.pattern.join(map(re.escape, _PARTING.split(word))) for word in words]
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(parts)})(?!\w)", re.IGNORECASE)
    for text in texts:
        mentioned = {_form(match) for match in pattern.findall(text)}
        if len(mentioned) > 1:
            return None
        if mentioned:
            return _option(mentioned.pop(), options)
    return None


def _options(schema: Schema) -> dict[str, object]:
    """Return the texts and numbers of an enum by their spelling."""
    options: dict[str, object] = {}
    enum = schema.get("enum")
    if not isinstance(enum, list):
        return options
    for option in enum:
        if isinstance(option, str | int | float) and str(option).strip():
            options[str(option)] = option
    return options


def _option(spelling: str, options: Mapping[str, object]) -> object | None:
    return next((options[key] for key in options if _form(key) == _form(spelling)), None)


def _form(value: str) -> str:
    return _PARTING.sub("_", value).lower()


def _kind(name: str, schema: Schema) -> str:
    """Return the kind of value that a parameter takes, or "" if it takes none that a text has."""
    if schema.get("type") == "array":
        items = schema.get("items")
        schema = items if isinstance(items, Mapping) else {}
    if not {"anyOf", "enum", "oneOf", "properties"}.isdisjoint(schema):
        return ""
    kind = _KIND_TYPES.get(schema.get("type", "string"), "")
    if kind != "quoted":
        return kind
    words = set(split_identifiers(name).lower().split())
    by_format = _KIND_FORMATS.get(str(schema.get("format")))
    if by_format is not None:
        return by_format
    for special, kind_words in _KIND_WORDS.items():
        if words & kind_words:
            return special
    return kind


def _values_of(text: str) -> dict[str, list[Any]]:
    """Return the values in a text by their kind, in order, without repeats."""
    values: dict[str, list[Any]] = {}
    for kind, pattern in _VALUES.items():
        matches: dict[Any, None] = {}
        for match in pattern.finditer(text):
            value = next(filter(None, (*match.groups(), match[0])))
            if value.strip():
                matches[_number(value) if kind == "number" else value] = None
        values[kind] = list(matches)
        text = pattern.sub(" ", text)
    return values


def _number(digits: str) -> int | float:
    return float(digits) if "." in digits else int(digits)
