"""`Catalogue`: a registry's tools, as a prompt shows them and as they rank."""

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import orjson

from llm_common._threads import in_thread
from llm_common.core.tokens import UpperBoundCounter
from llm_common.errors import ConfigError, ToolFailedError
from llm_common.ranking.fusion import reciprocal_rank_fusion
from llm_common.ranking.lexical import LexicalIndex
from llm_common.text.canonical import json_text, stable_json
from llm_common.text.display import in_fence, one_line, printable, without_headings
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import third_party_code
from llm_common.tools.validation import Problem, find_problems

_WORDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "null"}
_MAX_NAME_CHARS = 64
_MAX_TOOL_NAME_CHARS = 256  # names of third-party tools are longer than ours, and have to come back whole
_MAX_VALUE_CHARS = 24
_MAX_VALUES = 8
_MAX_NESTED = 8
_MAX_LEVELS = 3
_MAX_TYPES = 1_000
_MAX_SENTENCE_CHARS = 160
_MAX_REFS = 8

_PREFIX = re.compile(r"^(?:functions?|tools?|default_api)[.:/]")
_SEPARATORS = re.compile(r"[\W_]+")
_PARAMETERS = ("parameters", "inputSchema", "input_schema")
_REGISTRY = "the tool registry"
_CACHED_CATALOGUES = 8
_PLAIN_ONLY = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_FIELDS = {"name": 3.0, "description": 1.0, "parameters": 0.5}
_CACHED_INDEXES = 4
_DEPTH = 2
_K = 1  # sub-tasks need different tools: the first of each ranking outweighs agreement
_RANKED_PER_TEXT = 100
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])")

LATE = "the tools could not be read and described before the deadline; raise it, or offer fewer tools"
"""The problem of a selection whose deadline passed before anything was asked."""

Schema = Mapping[str, Any]
ValueT = TypeVar("ValueT")


class _Computed(Generic[ValueT]):
    """A property that is computed once; without the lock that `cached_property` of Python 3.11 shares among objects."""

    def __init__(self, compute: Callable[[Any], ValueT]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, owner: Any, kind: type) -> ValueT:
        value = vars(owner)[self._compute.__name__] = self._compute(owner)
        return value


def signature(name: str, description: str, parameters: Schema) -> str:
    """The tool on one line: name, typed parameters, first sentence of the description.

    A question mark marks an optional parameter. Names at most eight enum values or alternatives, and the parameters of
    objects one level deep; types nested more than three levels deep are `any`, and so are those after the first 1,000.
    Removes line breaks and control characters.

    Args:
        name: The tool's name.
        description: Cut to its first sentence and 160 characters.
        parameters: JSON Schema of the arguments.
    """
    sentence = _SENTENCE_END.split(one_line(description, max_chars=_MAX_SENTENCE_CHARS), maxsplit=1)[0]
    listed = ", ".join(_Types(parameters).parameters(parameters, limit=None, nested=True))
    shown = f"{without_headings(one_line(name, max_chars=_MAX_TOOL_NAME_CHARS))}({listed})"
    return f"{shown} - {sentence}" if sentence else shown


def properties_of(schema: Schema, root: Schema) -> dict[str, Schema]:
    """The properties of an object schema, resolved; an invalid one becomes empty."""
    found: dict[str, Schema] = {}
    for part in _parts(schema, root):
        properties = part.get("properties")
        if isinstance(properties, Mapping):
            found |= {name: resolve(value, root) for name, value in properties.items()}
    return found


def required_of(schema: Schema, root: Schema) -> frozenset[str]:
    """The names that an object schema requires, with `$ref` and `allOf` resolved."""
    lists = [part.get("required") for part in _parts(schema, root)]
    return frozenset(name for names in lists if isinstance(names, list) for name in names if isinstance(name, str))


def resolve(schema: object, root: Schema) -> Schema:
    """The target of a local `$ref`, or the schema itself; else an empty one."""
    for _ in range(_MAX_REFS):
        if not isinstance(schema, Mapping):
            return {}
        target = schema.get("$ref")
        if not isinstance(target, str):
            return schema
        schema = _at(root, target)
    return {}


def _at(root: Schema, pointer: str) -> object:
    found: object = root
    for step in pointer.removeprefix("#").strip("/").split("/"):
        if step:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
    return found if pointer.startswith("#") else None


def _parts(schema: Schema, root: Schema) -> list[Schema]:
    resolved = resolve(schema, root)
    return [resolved, *(resolve(part, root) for part in _schemas(resolved.get("allOf")))]


class _Types:
    """The types of one tool's parameters in words; the work is bounded, also for recursive schemas."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MAX_TYPES

    def parameters(self, schema: Schema, *, limit: int | None, nested: bool, level: int = 0) -> list[str]:
        """Each parameter with its type."""
        needed = required_of(schema, self._root)
        properties = properties_of(schema, self._root)
        shown = [
            f"{one_line(name, max_chars=_MAX_NAME_CHARS)}{mark}: {self._type(properties[name], nested, level)}"
            for name in list(properties)[:limit]
            for mark in ["" if name in needed else "?"]
        ]
        return shown if limit is None or len(properties) <= limit else [*shown, "…"]

    def _type(self, schema: object, nested: bool, level: int) -> str:
        """The type, alternatives joined by a bar."""
        schema = resolve(schema, self._root)
        self._left -= 1
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and values:
            texts = [value if isinstance(value, str) else json.dumps(value) for value in values[:_MAX_VALUES]]
            shown = [one_line(text, max_chars=_MAX_VALUE_CHARS) or '""' for text in texts]
            return "|".join([*shown, "…"] if len(values) > _MAX_VALUES else shown)
        alternatives = _schemas(schema.get("anyOf")) or _schemas(schema.get("oneOf"))
        if alternatives:
            if level > _MAX_LEVELS or self._left < 0:
                return "any"
            types = [self._type(alternative, nested, level + 1) for alternative in alternatives[:_MAX_VALUES]]
            return "|".join(dict.fromkeys([*types, "…"] if len(alternatives) > _MAX_VALUES else types))
        kinds = schema.get("type")
        if isinstance(kinds, list):
            plain = (self._plain({**schema, "type": kind}, nested, level) for kind in kinds[:_MAX_VALUES])
            return "|".join(plain) or "any"
        return self._plain(schema, nested, level)

    def _plain(self, schema: Schema, nested: bool, level: int) -> str:
        kind = schema.get("type")
        deep = level > _MAX_LEVELS or self._left < 0
        if kind == "array":
            items = "any" if deep else self._type(schema.get("items"), nested, level + 1)
            return f"({items})[]" if "|" in items else f"{items}[]"
        if kind == "object" or "properties" in schema or "allOf" in schema:
            shown = nested and not deep
            inner = self.parameters(schema, limit=_MAX_NESTED, nested=False, level=level + 1) if shown else []
            return f"{{{', '.join(inner)}}}" if inner else "{…}"
        return _WORDS.get(kind, "any") if isinstance(kind, str) else "any"


def _schemas(value: object) -> list[Schema]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


class OffersTools(Protocol):
    """Lists its tools: our `ToolRegistry`, or an application's own registry."""

    def get_tools_schema(self) -> Any:
        """The tools as text or as a list of definitions, or an awaitable of either."""


@dataclass(frozen=True)
class ToolDefinition:
    """One tool of a registry; `parameters` is a JSON Schema and must not be changed."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    @_Computed
    def signature(self) -> str:
        """The tool on one line; see `signature`."""
        return signature(self.name, self.description, self.parameters)

    @_Computed
    def signature_tokens(self) -> int:
        """At most this many tokens of a line with the signature."""
        return UpperBoundCounter().count(f"{self.signature}\n")

    @_Computed
    def text(self) -> str:
        """The tool as canonical JSON."""
        return json_text(
            {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}, sort_keys=True
        )

    @_Computed
    def text_tokens(self) -> int:
        """At most this many tokens of a line with the JSON."""
        return UpperBoundCounter().count(f"{self.text}\n")

    def find_problems(self, args: Mapping[str, Any]) -> tuple[Problem, ...]:
        """The problems of arguments for this tool; none under a broken schema."""
        try:
            return find_problems(self._schema, args)
        except ConfigError:
            return ()  # the registry's mistake: its tools must stay usable

    @_Computed
    def _schema(self) -> str:
        return json_text(dict(self.parameters), sort_keys=True)


@dataclass(frozen=True, eq=False)
class Catalogue:
    """A snapshot of a registry's tools; registries of equal content share one.

    Attributes:
        text: The tools as JSON, or the unchanged text of a third-party registry.
        definitions: The tools in canonical order; empty if the text cannot be read as tools.
        checked: Whether calls are checked against `definitions`. False for a registry that offers only text, which
            may leave out valid names.
        empty: Whether there is nothing to choose from: no tools, or blank text.
    """

    text: str
    definitions: tuple[ToolDefinition, ...]
    checked: bool
    empty: bool

    @_Computed
    def signatures(self) -> str:
        """One line per tool, in canonical order."""
        return "\n".join(definition.signature for definition in self.definitions)

    @_Computed
    def signature_tokens(self) -> int:
        """At most this many tokens of `signatures`."""
        return UpperBoundCounter().count(self.signatures)

    @_Computed
    def text_tokens(self) -> int:
        """At most this many tokens of `text`."""
        return UpperBoundCounter().count(self.text)

    @_Computed
    def fenced_signatures(self) -> str:
        """The signatures in a fence that they cannot close."""
        return in_fence(self.signatures)

    @_Computed
    def fenced_text(self) -> str:
        """The text in a fence that it cannot close."""
        return in_fence(self.text)

    @_Computed
    def names(self) -> tuple[str, ...]:
        """The names of the tools, in canonical order."""
        return tuple(definition.name for definition in self.definitions)

    @_Computed
    def digest(self) -> str:
        """SHA-256 of the content, the same in every process."""
        return hashlib.sha256(printable(self.text).encode()).hexdigest()

    def find(self, name: str) -> ToolDefinition | None:
        """The tool of that name, else the only one that differs in case, separators and a prefix like `functions.`."""
        bare = _PREFIX.sub("", name)
        for wanted in dict.fromkeys((name, bare)):
            exact = self._by_name.get(wanted)
            similar = [exact] if exact is not None else self._by_key.get(_key(wanted), [])
            if similar:
                return similar[0] if len(similar) == 1 else None
        return None

    @_Computed
    def _by_name(self) -> dict[str, ToolDefinition]:
        return {definition.name: definition for definition in self.definitions}

    @_Computed
    def _by_key(self) -> dict[str, list[ToolDefinition]]:
        keys: dict[str, list[ToolDefinition]] = {}
        for definition in self.definitions:
            keys.setdefault(_key(definition.name), []).append(definition)
        return keys


async def read_catalogue(registry: OffersTools) -> Catalogue:
    """The registry's tools now; calls `get_tools_schema` exactly once.

    Calls are checked against the names and schemas of a `ToolRegistry`, or of a list of definitions, each either
    `{"name", "description", "parameters"}` or `{"type": "function", "function": {...}}`; under a broken schema only
    the name is checked. Text of another registry is used unchanged.

    Raises:
        ToolFailedError: The registry raised, or returned neither text nor a list of definitions.
        UnserialisableError: The list holds what JSON cannot.
    """
    if not callable(getattr(registry, "get_tools_schema", None)):
        raise ToolFailedError(
            f"the tool registry is a {type(registry).__name__} without get_tools_schema(); pass a ToolRegistry",
            tool=_REGISTRY,
        )
    with third_party_code(_REGISTRY):
        schema = registry.get_tools_schema()
        if inspect.isawaitable(schema):
            schema = await schema
    if not isinstance(schema, (str, list, tuple)):
        raise ToolFailedError(
            f"the tool registry returned a {type(schema).__name__}, neither text nor a list; let get_tools_schema() "
            "return one",
            tool=_REGISTRY,
        )
    # In threads: reading a few thousand tools takes a quarter of a second.
    return await in_thread(_read, schema, checked=isinstance(registry, ToolRegistry))


def _read(schema: str | Sequence[object], *, checked: bool) -> Catalogue:
    try:
        return _from_text(schema, checked=checked) if isinstance(schema, str) else _from_list(schema)
    except RecursionError as exc:
        raise ToolFailedError(
            "the tools of the registry are nested too deeply to be read; use flatter schemas", tool=_REGISTRY
        ) from exc


@lru_cache(maxsize=_CACHED_CATALOGUES)
def _from_text(text: str, *, checked: bool) -> Catalogue:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    entries = data if isinstance(data, list) else []
    definitions = _definitions(entries) or ()
    return Catalogue(text, definitions, checked=checked, empty=not text.strip() or data == [])


def _from_list(schema: Sequence[object]) -> Catalogue:
    """The catalogue of these entries; the encoding is the key of the cache."""
    try:
        encoded = orjson.dumps(schema, option=_PLAIN_ONLY)
    except TypeError:  # not plain JSON, but it may have a canonical form
        encoded = f"[{','.join(map(stable_json, schema))}]".encode()
    return _from_encoded(encoded)


@lru_cache(maxsize=_CACHED_CATALOGUES)
def _from_encoded(encoded: bytes) -> Catalogue:
    """The entries as definitions in canonical form; as unchecked text if one is not a definition."""
    entries = json.loads(encoded)
    definitions = _definitions(entries)
    if definitions is None:
        return _from_text(f"[{','.join(sorted(map(stable_json, entries)))}]", checked=False)
    # By the whole text too: two tools may have one name.
    ordered = sorted(definitions, key=lambda each: (each.name, each.text))
    return _from_text(f"[{','.join(each.text for each in ordered)}]", checked=True)


def _definitions(entries: list[Any]) -> tuple[ToolDefinition, ...] | None:
    """Every entry as a definition, sorted by name; None if one is not."""
    found = [_definition(entry) for entry in entries]
    known = [definition for definition in found if definition is not None]
    return tuple(sorted(known, key=lambda each: each.name)) if len(known) == len(found) else None


def _definition(entry: Any) -> ToolDefinition | None:
    facts = entry.get("function", entry) if isinstance(entry, dict) else None
    if not isinstance(facts, dict):
        return None
    name, description = facts.get("name"), facts.get("description")
    if not isinstance(name, str) or not name.strip():
        return None
    parameters: dict[str, Any] = next((facts[key] for key in _PARAMETERS if isinstance(facts.get(key), dict)), {})
    return ToolDefinition(name, description if isinstance(description, str) else "", parameters)


def _key(name: str) -> str:
    return _SEPARATORS.sub("", name).casefold()


def rank_tools(catalogue: Catalogue, texts: Sequence[str], *, limit: int) -> tuple[ToolDefinition, ...]:
    """The tools that share words with the texts, at most `limit`, best first.

    Ranks each text alone and fuses the rankings by reciprocal rank: a tool that only one sub-task needs ranks beside
    those that the whole request names. Deterministic. Builds the index once per content of the registry, which takes
    70 ms for 500 tools: call it in a thread.

    Args:
        catalogue: What to choose from.
        texts: The task, its sub-tasks and the query; a text without words ranks nothing.
        limit: Most tools to return.
    """
    index = _index(catalogue)
    rankings = [[hit.key for hit in index.search(text, limit=_RANKED_PER_TEXT)] for text in dict.fromkeys(texts)]
    fused = reciprocal_rank_fusion(rankings, k=_K)[:limit]
    return tuple(catalogue.definitions[int(hit.key)] for hit in fused)


@lru_cache(maxsize=_CACHED_INDEXES)
def _index(catalogue: Catalogue) -> LexicalIndex:
    index = LexicalIndex(_FIELDS)
    rows = []
    for number, definition in enumerate(catalogue.definitions):
        texts = _parameter_texts(definition.parameters, definition.parameters, depth=_DEPTH)
        parameters = " ".join(islice(texts, _MAX_TYPES))
        fields = {"name": definition.name, "description": definition.description, "parameters": parameters}
        rows.append((f"{number:06}", fields))  # the key sorts as the catalogue does, which orders ties
    index.add_many(rows)
    return index


def _parameter_texts(schema: Mapping[str, Any], root: Mapping[str, Any], *, depth: int) -> Iterator[str]:
    for name, value in properties_of(schema, root).items():
        yield f"{name} {value.get('description', '')}"
        if depth > 1:
            yield from _parameter_texts(value, root, depth=depth - 1)
