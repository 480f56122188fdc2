"""Fills a tool's arguments from plain text and known values, without a model."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from llm_common.ranking.lexical import STOP_WORDS, split_identifiers
from llm_common.selection.results import DroppedCall
from llm_common.tools.definitions import ToolDefinition
from llm_common.tools.signature import properties_of, required_of, resolve
from llm_common.tools.validation import Problem

Schema = Mapping[str, Any]

_MAX_CHARS = 10_000
_QUOTED = re.compile(
    r"\"([^\"\n]+)\"|`([^`\n]+)`|\u201c([^\u201c\u201d\n]+)\u201d|(?<!\w)'((?:[^'\n]|\b'\b)+)'(?!\w)"
)
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
    {
        "keyword",
        "keywords",
        "pattern",
        "phrase",
        "q",
        "query",
        "question",
        "search",
        "term",
        "terms",
        "text",
        "topic",
    }
)
_PROPER_NAMES = frozenset(
    {
        "artist",
        "author",
        "city",
        "company",
        "country",
        "location",
        "name",
        "person",
        "place",
        "symbol",
        "ticker",
    }
)
_KINDS = {
    "urls": frozenset({"href", "link", "links", "uri", "uris", "url", "urls", "website"}),
    "paths": frozenset(
        {"dir", "directory", "file", "filename", "files", "folder", "path", "paths"}
    ),
    "emails": frozenset({"email", "emails"}),
    "dates": frozenset({"date", "day"}),
}
_FORMATS = {"uri": "urls", "email": "emails", "date": "dates", "date-time": "dates"}
_FROM = frozenset({"after", "base", "departure", "from", "origin", "since", "source", "start"})
_TO = frozenset(
    {"arrival", "before", "destination", "end", "into", "target", "till", "to", "until"}
)
_BETWEEN = frozenset({"as", "by", "in", "is", "of", "the"})
_NAME = re.compile(r"\w+")
_NAME_CHARS = 60
_PARTING = re.compile(r"[\s_-]+")
_MEASURES = frozenset(
    {"count", "max", "maximum", "min", "minimum", "n", "num", "number", "of", "total"}
)
_NUMBERS = frozenset({"integer", "number"})
_STRINGS = frozenset({"string"})
_CLOSED = frozenset({"anyOf", "enum", "oneOf", "properties"})
_PLAIN_NUMBER = r"-?\d{1,15}(?:\.\d{1,15})?"


@dataclass(frozen=True, slots=True)
class TextValues:
    """A text and the values that it names, by kind, in order, without repeats.

    A value counts as one kind only: the digits of a date are not numbers. Only a quoted string may
    also be a URL, an email, a date or a path.
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
        found.append(
            _distinct(match.group().rstrip(_AROUND) for match in pattern.finditer(unquoted))
        )
        unquoted, bare = pattern.sub(" ", unquoted), pattern.sub(" ", bare)
    paths = _distinct(filter(_is_path, filter(None, map(_trimmed, unquoted.split()))))
    words = " ".join(token for token in bare.split() if not _is_path(_trimmed(token)))
    found_numbers = (match.group().replace(",", "") for match in _NUMBER.finditer(words))
    numbers = dict.fromkeys(
        float(number) if "." in number else int(number) for number in found_numbers
    )
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
    return " ".join(
        word for word in words if word.lower() not in STOP_WORDS and word.lower() not in without
    )


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

    Any parameter takes, in this order: the context's value of that name; an enum value that a text
    names; a URL, path, email or date, if its name or format asks for one; a value beside its name
    (`limit 5`, `5 days`, `city: Paris`). Parameters that could take the same value are told apart
    by the word before it: their own (`target EUR`), or one of their direction (`to EUR`). Required
    ones that are still open then take: the text's other numbers in order, if there are as many as
    open numbers; its quoted strings likewise; the informative words of the first text, if the only
    one called query, q, text, pattern, search or the like; the only proper name of a text, if the
    only one called name, city, ticker or the like. Optional parameters without evidence keep their
    defaults. Objects and flags are never filled.

    Args:
        parameters: JSON Schema of the arguments.
        tool: The tool's name; its own words (`search` in `search_files`) are not part of a query.
        texts: The texts to search, the most specific first; the first one with a value of the right
            kind counts.
        context: Known values by parameter name.
    """
    properties = {
        name: _plain(schema, parameters)
        for name, schema in properties_of(parameters, parameters).items()
    }
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
    args |= source.worded(
        [name for name in needed if name not in args and source.takes(name, _STRINGS)], tool
    )
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
        problems = tuple(
            Problem(name, "required", "no text names a value for it") for name in filled.missing
        )
        return DroppedCall(tool.name, "unfilled", problems)
    if found := tool.find_problems(filled.args):
        return DroppedCall(tool.name, "invalid_args", found)
    return {"tool": tool.name, "args": filled.args, "reasoning": reasoning}


class _Source:
    """The values of some texts for the parameters of one tool.

    Each quoted string, path and so on is used once.
    """

    def __init__(self, texts: Sequence[TextValues], properties: Mapping[str, Schema]) -> None:
        self._texts = texts
        self._properties = properties
        self._given: set[object] = set()
        self._named: dict[tuple[tuple[str, ...], TextValues], dict[str, str]] = {}

    def named(self, name: str) -> Iterator[Any]:
        """Values that a text relates to this parameter."""
        schema = self._properties[name]
        if options := _options(schema):
            rivals = [
                other
                for other in self._properties
                if options.keys() & _options(self._properties[other]).keys()
            ]
            yield from (
                self._mentioned(options)
                if rivals == [name]
                else self._told_apart(name, options, rivals)
            )
        elif kind := _kind(name, schema):
            yield from (
                self._unused(kind) if schema.get("type") == "array" else self._next_for(name, kind)
            )
        elif schema.get("type") in _NUMBERS:
            yield from self._numbers_beside(name, whole=schema["type"] == "integer")
        elif schema.get("type", "string") == "string":
            yield from self._texts_beside(name)

    def takes(self, name: str, kinds: Collection[str]) -> bool:
        """Whether the parameter is of one of the kinds or an array of it; text by default."""
        schema = self._properties[name]
        if schema.get("type") == "array":
            schema = schema["items"] if isinstance(schema.get("items"), Mapping) else {}
        return (
            not _CLOSED & schema.keys()
            and schema.get("type", "string") in kinds
            and not _kind(name, schema)
        )

    def in_order(self, names: Sequence[str], values: str) -> dict[str, Any]:
        """One value for each name if there are as many; all of them for a single array."""
        left: list[Any] = next(self._unused(values), [])
        if len(names) == 1 and self._properties[names[0]].get("type") == "array":
            return {names[0]: left} if left else {}
        return dict(zip(names, left, strict=True)) if len(names) == len(left) else {}

    def worded(self, names: Sequence[str], tool: str) -> dict[str, str]:
        """The first text's words for the only query of the names.

        A text's only proper name for the only name.
        """
        queries = [name for name in names if _words(name) & _QUERY_NAMES]
        named = [name for name in names if name not in queries and _words(name) & _PROPER_NAMES]
        found: dict[str, str] = {}
        if len(queries) == 1 and self._texts:
            text = self._texts[0].text
            words = (
                informative_words(text, without=_words(tool))
                or informative_words(text, without=())
                or text
            )
            found |= {queries[0]: words} if words else {}
        proper_names = next(
            (values.proper_names for values in self._texts if values.proper_names), ()
        )
        return found | ({named[0]: proper_names[0]} if len(named) == len(proper_names) == 1 else {})

    def _unused(self, kind: str) -> Iterator[list[Any]]:
        """The values of the kind in each text that no parameter has yet; they count as given."""
        for values in self._texts:
            if left := [value for value in getattr(values, kind) if value not in self._given]:
                self._given.update(left)
                yield left

    def _mentioned(self, options: Mapping[str, object]) -> Iterator[object]:
        """The option that each text names first."""
        for values in self._texts:
            if hits := _mentions(options, values.text):
                yield options[hits[0]]

    def _told_apart(
        self, name: str, options: Mapping[str, object], rivals: Sequence[str]
    ) -> Iterator[object]:
        """The option that stands after the name.

        Or the one that is left, where every rival has one after its name.
        """
        for values in self._texts:
            named = self._after_names(rivals, [], values)
            left = [each for each in _mentions(options, values.text) if each not in named.values()]
            is_last = [rival for rival in rivals if rival not in named] == [name]
            found = named.get(name) or (left[0] if is_last and len(left) == 1 else None)
            if found is not None:
                yield options[found]

    def _next_for(self, name: str, kind: str) -> Iterator[str]:
        """The value of the kind after the name, or the first that is after no other's name and not used yet."""
        rivals = [
            other for other, schema in self._properties.items() if _kind(other, schema) == kind
        ]
        for values in self._texts:
            found: tuple[str, ...] = getattr(values, kind)
            named = self._after_names(rivals, found, values)
            left = (
                each for each in found if each not in self._given and each not in named.values()
            )
            value = named.get(name) or next(left, None)
            if value is not None:
                self._given.add(value)
                yield value

    def _after_names(
        self, rivals: Sequence[str], found: Sequence[str], values: TextValues
    ) -> Mapping[str, str]:
        """The first value after each parameter's name: after a word that no rival's has, or one of its direction.

        Args:
            rivals: Parameters that could take the same value.
            found: The values; of an enum its options.
            values: Of the text.
        """
        if len(rivals) == 1:
            return {}
        key = (tuple(rivals), values)
        if key not in self._named:
            options = {
                rival: _options(self._properties[rival]) or dict.fromkeys(found) for rival in rivals
            }
            forms = {_form(each): each for some in options.values() for each in some}
            owners = _owners(rivals)
            named: dict[str, str] = {}
            for match in _pattern(forms.values()).finditer(values.text) if forms else ():
                owner = next(
                    filter(None, map(owners.get, _words_before(values.text, match.start()))), ""
                )
                value = forms.get(_form(match[0]), "")
                if value in options.get(owner, ()):
                    named.setdefault(owner, value)
            self._named[key] = named
        return self._named[key]

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
        quoted = re.compile(
            rf"\b{spaced}\s*(?:=|:|is|named|called)?\s*([\"'`])([^\"'`\n]+)\1", re.IGNORECASE
        )
        assigned = re.compile(rf"\b{spaced}\s*[=:]\s*([^\s,;\"'`]+)", re.IGNORECASE)
        for values in self._texts:
            for text in [match[2] for match in quoted.finditer(values.text)] or assigned.findall(
                values.text
            ):
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
    """The kind of a string parameter: `urls`, `paths`, `emails` or `dates`.

    None for free text and other types.
    """
    items = schema.get("items") if schema.get("type") == "array" else schema
    if (
        not isinstance(items, Mapping)
        or _CLOSED & items.keys()
        or items.get("type", "string") != "string"
    ):
        return None
    by_format = _FORMATS.get(str(items.get("format")))
    return by_format or next((kind for kind, words in _KINDS.items() if _words(name) & words), None)


def _words(name: str) -> set[str]:
    return set(split_identifiers(name).lower().split())


def _options(schema: Schema) -> dict[str, object]:
    """The values of an enum by their spelling."""
    options = schema.get("enum")
    named = options if isinstance(options, list) else ()
    return {
        str(option): option
        for option in named
        if isinstance(option, (str, int, float)) and str(option).strip()
    }


def _mentions(options: Iterable[str], text: str) -> list[str]:
    """The options that a text names, in order; of two that begin at one place the longer one."""
    found: dict[int, str] = {}
    for option in sorted(options, key=len):
        if match := _pattern([option]).search(text):
            found[match.start()] = option
    return [option for _, option in sorted(found.items())]


def _pattern(values: Iterable[str]) -> re.Pattern[str]:
    """Finds values whose words may be parted by spaces or dashes, the longer first."""
    parts = (
        map(re.escape, _PARTING.split(value)) for value in sorted(values, key=len, reverse=True)
    )
    return re.compile(
        rf"(?<!\w)(?:{'|'.join(map(_PARTING.pattern.join, parts))})(?!\w)", re.IGNORECASE
    )


def _form(value: str) -> str:
    return _PARTING.sub("_", value).lower()


def _owners(names: Sequence[str]) -> dict[str, str]:
    """The name to which each word belongs that only one of them has, or a word of the same direction."""
    words = {name: {word for word in _words(name) if not word.isdecimal()} for name in names}
    for own, direction in product(words.values(), (_FROM, _TO)):
        own.update(direction if own & direction else ())
    counts = Counter(word for each in words.values() for word in each)
    return {word: name for name, each in words.items() for word in each if counts[word] == 1}


def _words_before(text: str, end: int) -> Iterator[str]:
    """The words of the name that stands before a place, the nearest first."""
    for token in reversed(_NAME.findall(text[max(end - _NAME_CHARS, 0) : end])):
        yield from sorted(_words(token))
        if token.lower() not in _BETWEEN:
            return
