"""Fills a tool's arguments from plain text and known values, without a model."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_common.ranking.lexical import STOP_WORDS, split_identifiers
from llm_common.selection.catalogue import ToolDefinition
from llm_common.selection.tool_calls import DroppedCall
from llm_common.tools.signature import properties_of, required_of, resolve
from llm_common.tools.validation import Problem

Schema = Mapping[str, Any]

_MAX_CHARS = 10_000
_QUOTED = re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|\u201c([^\u201c\u201d\n]+)\u201d|(?<!\w)'((?:[^'\n]|\b'\b)+)'(?!\w)")
_QUOTES = re.compile("[\"`\u201c\u201d]|(?<!\\w)'|'(?!\\w)")
_URL = re.compile(r"https?://[^\s<>()\[\]{}]+")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")
_DATE = re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?Z?)?(?![\w-])")
_NUMBER = re.compile(r"(?<![\w.,-])-?\d{1,15}(?:,\d{3})*(?:\.\d{1,15})?(?![\w-]|[.,]\d)")
_EXTENSION = re.compile(r"(?:\w\w|/\w)\.[A-Za-z][A-Za-z0-9]{0,7}$")
_WORD = re.compile(r"[^\W_](?:[\w.&'/-]*[^\W_])?")
_AROUND = "()[]{}<>,;:!?."
_ENDS = (".", "!", "?")
_PAUSES = (*_ENDS, ",", ";", ":")
_QUERY_NAMES = frozenset(
    {"keyword", "keywords", "pattern", "phrase", "q", "query", "question", "search", "term", "terms", "text", "topic"}
)
_PROPER_NAMES = frozenset(
    {"artist", "author", "city", "company", "country", "location", "name", "person", "place", "symbol", "ticker"}
)
_KINDS = {
    "urls": frozenset({"href", "link", "links", "uri", "uris", "url", "urls", "website"}),
    "paths": frozenset({"dir", "directory", "file", "filename", "files", "folder", "path", "paths"}),
    "emails": frozenset({"email", "emails"}),
    "dates": frozenset({"date", "day"}),
}
_FORMATS = {"uri": "urls", "email": "emails", "date": "dates", "date-time": "dates"}
_MEASURES = frozenset({"count", "max", "maximum", "min", "minimum", "n", "num", "number", "of", "total"})
_NUMBERS = frozenset({"integer", "number"})
_STRINGS = frozenset({"string"})
_CLOSED = frozenset({"anyOf", "enum", "oneOf", "properties"})
_PLAIN_NUMBER = r"-?\d{1,15}(?:\.\d{1,15})?"


@dataclass(frozen=True, slots=True)
class TextValues:
    """A text and the values that it names, by kind, in order, without repeats.

    A value counts as one kind only: the digits of a date are not numbers. Only a quoted string may also be a URL, an
    email, a date or a path.
    """

    text: str
    quoted: tuple[str, ...]
    urls: tuple[str, ...]
    emails: tuple[str, ...]
    dates: tuple[str, ...]
    paths: tuple[str, ...]
    numbers: tuple[int | float, ...]
    proper_names: tuple[str, ...]


def read_values(text: str) -> TextValues:
    """The values that the first 10,000 characters of the text name, in linear time."""
    text = text[:_MAX_CHARS]
    quoted = ("".join(filter(None, match.groups())) for match in _QUOTED.finditer(text))
    unquoted, bare = _QUOTES.sub(" ", text), _QUOTED.sub(" . ", text)
    found: list[tuple[str, ...]] = []
    for pattern in (_URL, _EMAIL, _DATE):
        found.append(_distinct(match.group().rstrip(_AROUND) for match in pattern.finditer(unquoted)))
        unquoted, bare = pattern.sub(" ", unquoted), pattern.sub(" ", bare)
    paths = _distinct(filter(_is_path, filter(None, map(_trimmed, unquoted.split()))))
    words = " ".join(token for token in bare.split() if not _is_path(_trimmed(token)))
    found_numbers = (match.group().replace(",", "") for match in _NUMBER.finditer(words))
    numbers = dict.fromkeys(float(number) if "." in number else int(number) for number in found_numbers)
    return TextValues(
        text=text,
        quoted=_distinct(quoted),
        urls=found[0],
        emails=found[1],
        dates=found[2],
        paths=paths,
        numbers=tuple(numbers),
        proper_names=_distinct(_proper_names(words)),
    )


def informative_words(text: str, *, without: Collection[str]) -> str:
    """The words of the text except stop words and those in `without` (lower case)."""
    words = _WORD.findall(text[:_MAX_CHARS])
    return " ".join(word for word in words if word.lower() not in STOP_WORDS and word.lower() not in without)


def _proper_names(text: str) -> Iterator[str]:
    """Runs of capitalised words; the first word of a sentence counts only if it is all capitals."""
    run: list[str] = []
    starts = True
    for token in text.split():
        trimmed = _trimmed(token)
        word = trimmed.removesuffix("'s")
        if len(word) > 1 and word[0].isupper() and (not starts or word.isupper()):
            run.append(word)
        elif run:
            yield " ".join(run)
            run = []
        if run and (token.endswith(_PAUSES) or word != trimmed):
            yield " ".join(run)
            run = []
        starts = token.endswith(_ENDS)
    if run:
        yield " ".join(run)


def _is_path(token: str) -> bool:
    if token.startswith(("/", "./", "../", "~/")) or (token.endswith("/") and token[0].isalnum()):
        return len(token) > 1
    return _EXTENSION.search(token) is not None


def _trimmed(token: str) -> str:
    return token.lstrip("([{<,;:!?").rstrip(_AROUND)


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in map(str.strip, values) if value))


@dataclass(frozen=True, slots=True)
class Filled:
    """The arguments that were found, and the required ones that were not."""

    args: dict[str, Any]
    missing: tuple[str, ...]


def fill_arguments(
    parameters: Schema, *, tool: str, texts: Sequence[str], context: Mapping[str, Any] | None = None
) -> Filled:
    """The arguments that the context or the texts hold. Deterministic.

    Any parameter takes, in this order: the context's value of that name; an enum value that a text names; a URL, path,
    email or date, if its name or format asks for one; a value beside its name (`limit 5`, `5 days`, `city: Paris`).
    Required ones that are still open then take: the text's other numbers in order, if there are as many as open
    numbers; its quoted strings likewise; the informative words of the first text, if the parameter is called query, q,
    text, pattern, search or the like; the only proper name of a text, if it is called name, city, ticker or the like.
    Optional parameters without evidence keep their defaults. Objects and flags are never filled.

    Args:
        parameters: JSON Schema of the arguments.
        tool: The tool's name; its own words (`search` in `search_files`) are not part of a query.
        texts: The texts to search, the most specific first; the first one with a value of the right kind counts.
        context: Known values by parameter name.
    """
    properties = {name: _plain(schema, parameters) for name, schema in properties_of(parameters, parameters).items()}
    source = _Source([read_values(text) for text in texts], properties)
    args = {name: context[name] for name in properties if name in context} if context else {}
    for name in properties:
        if name not in args:
            args |= _first(name, source.named(name))
    required = required_of(parameters, parameters)
    needed = [name for name in properties if name in required]
    for kinds, values in ((_NUMBERS, "numbers"), (_STRINGS, "quoted")):
        open_names = [name for name in needed if name not in args and source.takes(name, kinds)]
        args |= source.in_order(open_names, values)
    for name in needed:
        if name not in args and source.takes(name, _STRINGS):
            args |= _first(name, source.worded(name, tool))
    return Filled(args, tuple(name for name in needed if name not in args))


def filled_call(
    tool: ToolDefinition, texts: Sequence[str], context: Mapping[str, Any] | None, *, reasoning: str
) -> dict[str, Any] | DroppedCall:
    """A call of the tool with the arguments that the texts hold, or why there is none.

    Args:
        tool: Its schema checks the arguments.
        texts: As for `fill_arguments`.
        context: As for `fill_arguments`.
        reasoning: Why the tool was chosen.
    """
    filled = fill_arguments(tool.parameters, tool=tool.name, texts=texts, context=context)
    if filled.missing:
        problems = tuple(Problem(name, "required", "no text names a value for it") for name in filled.missing)
        return DroppedCall(tool.name, "unfilled", problems)
    if found := tool.find_problems(filled.args):
        return DroppedCall(tool.name, "invalid_args", found)
    return {"tool": tool.name, "args": filled.args, "reasoning": reasoning}


class _Source:
    """The values of some texts for the parameters of one tool; each quoted string, path and so on is used once."""

    def __init__(self, texts: Sequence[TextValues], properties: Mapping[str, Schema]) -> None:
        self._texts = texts
        self._properties = properties
        self._given: set[object] = set()

    def named(self, name: str) -> Iterator[Any]:
        """Values that a text relates to this parameter."""
        schema = self._properties[name]
        options = schema.get("enum")
        if isinstance(options, list):
            yield from self._options(options)
        elif kind := _kind(name, schema):
            yield from self._next(kind, many=schema.get("type") == "array")
        elif schema.get("type") in _NUMBERS:
            yield from self._numbers_beside(name, whole=schema["type"] == "integer")
        elif schema.get("type", "string") == "string":
            yield from self._texts_beside(name)

    def takes(self, name: str, kinds: Collection[str]) -> bool:
        """Whether the parameter is of one of the kinds or an array of it; text by default."""
        schema = self._properties[name]
        if schema.get("type") == "array":
            schema = schema["items"] if isinstance(schema.get("items"), Mapping) else {}
        return not _CLOSED & schema.keys() and schema.get("type", "string") in kinds and not _kind(name, schema)

    def in_order(self, names: Sequence[str], values: str) -> dict[str, Any]:
        """One value for each name if there are as many; all of them for a single array."""
        left: list[Any] = next(self._next(values, many=True), [])
        if len(names) == 1 and self._properties[names[0]].get("type") == "array":
            return {names[0]: left} if left else {}
        return dict(zip(names, left, strict=True)) if len(names) == len(left) else {}

    def worded(self, name: str, tool: str) -> Iterator[str]:
        """The first text's words for a query; a text's only proper name for a name."""
        if _words(name) & _QUERY_NAMES and self._texts:
            text = self._texts[0].text
            yield informative_words(text, without=_words(tool)) or informative_words(text, without=()) or text
        elif _words(name) & _PROPER_NAMES:
            names = next((values.proper_names for values in self._texts if values.proper_names), ())
            yield from names if len(names) == 1 else ()

    def _next(self, kind: str, *, many: bool) -> Iterator[Any]:
        for values in self._texts:
            left = [value for value in getattr(values, kind) if value not in self._given]
            if left:
                taken = left if many else left[:1]
                self._given.update(taken)
                yield taken if many else taken[0]

    def _options(self, options: Sequence[object]) -> Iterator[object]:
        spelled = {str(option): option for option in options if isinstance(option, (str, int, float))}
        longest_first = sorted(spelled, key=len, reverse=True)
        for values in self._texts:
            hits = [(match.start(), option) for option in longest_first if (match := _mention(option, values.text))]
            if hits:
                yield spelled[min(hits, key=lambda hit: hit[0])[1]]

    def _numbers_beside(self, name: str, *, whole: bool) -> Iterator[int | float]:
        others = set[str]().union(*(_words(other) for other in self._properties if other != name))
        own = {word for word in _words(name) if not word.isdecimal()}
        word = "|".join(map(re.escape, sorted(own - _MEASURES - others or {name})))
        pattern = re.compile(
            rf"(?<![\w.])({_PLAIN_NUMBER})\s+(?:{word})s?\b|\b(?:{word})s?\s*(?:is|of|to|=|:)?\s*({_PLAIN_NUMBER})(?![\w.]*\w)",
            re.IGNORECASE,
        )
        for values in self._texts:
            for match in pattern.finditer(values.text):
                number = float(match[1] or match[2])
                value = int(number) if number.is_integer() else number
                if isinstance(value, int) or not whole:
                    self._given.add(value)
                    yield value

    def _texts_beside(self, name: str) -> Iterator[str]:
        spaced = r"[\s_-]?".join(map(re.escape, name.split("_")))
        quoted = re.compile(rf"\b{spaced}\s*(?:=|:|is|named|called)?\s*([\"'`])([^\"'`\n]+)\1", re.IGNORECASE)
        assigned = re.compile(rf"\b{spaced}\s*[=:]\s*([^\s,;\"'`]+)", re.IGNORECASE)
        for values in self._texts:
            for text in [match[2] for match in quoted.finditer(values.text)] or assigned.findall(values.text):
                self._given.add(text)
                yield text


def _first(name: str, values: Iterator[Any]) -> dict[str, Any]:
    value = next(values, None)
    return {} if value is None else {name: value}


def _plain(schema: Schema, root: Schema) -> Schema:
    """The schema, or the first of its alternatives that is not null."""
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list):
            resolved = [resolve(option, root) for option in options]
            return next((option for option in resolved if option.get("type") != "null"), {})
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return {**schema, "type": next((kind for kind in kinds if kind != "null"), None)}
    return {**schema, "enum": [schema["const"]]} if "const" in schema else schema


def _kind(name: str, schema: Schema) -> str | None:
    """The kind of a string parameter: `urls`, `paths`, `emails` or `dates`; None for free text and other types."""
    items = schema.get("items") if schema.get("type") == "array" else schema
    if not isinstance(items, Mapping) or _CLOSED & items.keys() or items.get("type", "string") != "string":
        return None
    by_format = _FORMATS.get(str(items.get("format")))
    return by_format or next((kind for kind, words in _KINDS.items() if _words(name) & words), None)


def _words(name: str) -> set[str]:
    return set(split_identifiers(name).lower().split())


def _mention(option: str, text: str) -> re.Match[str] | None:
    spaced = r"[\s_-]+".join(map(re.escape, re.split(r"[\s_-]+", option)))
    return re.search(rf"(?<!\w){spaced}(?!\w)", text, re.IGNORECASE) if option.strip() else None
