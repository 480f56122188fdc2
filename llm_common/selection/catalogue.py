"""`Catalogue`: a registry's tools, as a prompt shows them and as they rank."""

import asyncio
import hashlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import orjson

from llm_common.core.tokens import UpperBoundCounter
from llm_common.errors import ConfigError, ToolFailedError
from llm_common.ranking.fusion import reciprocal_rank_fusion
from llm_common.ranking.lexical import LexicalIndex
from llm_common.text.canonical import json_text, stable_json
from llm_common.text.display import in_fence, one_line, printable
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import third_party_code
from llm_common.tools.validation import Problem, find_problems

_WORDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "null"}
_MAX_NAME_CHARS = 64
_MAX_TOOL_NAME_CHARS = 256  # names of third-party tools are longer than ours, and have to come back whole
_MAX_VALUE_CHARS = 24
_MAX_VALUES = 8
_MAX_NESTED = 8
_MAX_SENTENCE_CHARS = 160
_MAX_REFS = 8

_SEPARATORS = re.compile(r"[\W_]+")
_PARAMETERS = ("parameters", "inputSchema", "input_schema")
_CACHED_CATALOGUES = 8
_PLAIN_ONLY = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_FIELDS = {"name": 3.0, "description": 1.0, "parameters": 0.5}
_CACHED_INDEXES = 4
_DEPTH = 2
_K = 1  # sub-tasks need different tools: the first of each ranking outweighs agreement
_RANKED_PER_TEXT = 100
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])")

Schema = Mapping[str, Any]


def signature(name: str, description: str, parameters: Schema) -> str:
    """The tool on one line: name, typed parameters, first sentence of the description.

    A question mark marks an optional parameter. Names at most eight enum values, and the parameters of objects one
    level deep. Removes line breaks and control characters.

    Args:
        name: The tool's name.
        description: Cut to its first sentence and 160 characters.
        parameters: JSON Schema of the arguments.
    """
    sentence = _SENTENCE_END.split(one_line(description, max_chars=_MAX_SENTENCE_CHARS), maxsplit=1)[0]
    listed = ", ".join(_parameters(parameters, parameters, limit=None, nested=True))
    shown = f"{one_line(name, max_chars=_MAX_TOOL_NAME_CHARS)}({listed})"
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


def _parameters(schema: Schema, root: Schema, *, limit: int | None, nested: bool) -> list[str]:
    needed = required_of(schema, root)
    properties = properties_of(schema, root)
    shown = [
        f"{one_line(name, max_chars=_MAX_NAME_CHARS)}{'' if name in needed else '?'}: {_type(value, root, nested)}"
        for name, value in list(properties.items())[:limit]
    ]
    return shown if limit is None or len(properties) <= limit else [*shown, "…"]


def _type(schema: Schema, root: Schema, nested: bool) -> str:
    """The type in words, alternatives joined by a bar."""
    schema = resolve(schema, root)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        texts = [value if isinstance(value, str) else json.dumps(value) for value in values[:_MAX_VALUES]]
        shown = [one_line(text, max_chars=_MAX_VALUE_CHARS) or '""' for text in texts]
        return "|".join([*shown, "…"] if len(values) > _MAX_VALUES else shown)
    alternatives = _schemas(schema.get("anyOf")) or _schemas(schema.get("oneOf"))
    if alternatives:
        return "|".join(dict.fromkeys(_type(alternative, root, nested) for alternative in alternatives))
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return "|".join(_plain_type({**schema, "type": kind}, root, nested) for kind in kinds) or "any"
    return _plain_type(schema, root, nested)


def _plain_type(schema: Schema, root: Schema, nested: bool) -> str:
    kind = schema.get("type")
    if kind == "array":
        items = _type(resolve(schema.get("items"), root), root, nested)
        return f"({items})[]" if "|" in items else f"{items}[]"
    if kind == "object" or "properties" in schema or "allOf" in schema:
        inner = _parameters(schema, root, limit=_MAX_NESTED, nested=False) if nested else []
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

    @cached_property
    def signature(self) -> str:
        """The tool on one line; see `signature`."""
        return signature(self.name, self.description, self.parameters)

    @cached_property
    def signature_tokens(self) -> int:
        """At most this many tokens of a line with the signature."""
        return UpperBoundCounter().count(f"{self.signature}\n")

    @cached_property
    def text(self) -> str:
        """The tool as canonical JSON."""
        return json_text(
            {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}, sort_keys=True
        )

    @cached_property
    def text_tokens(self) -> int:
        """At most this many tokens of a line with the JSON."""
        return UpperBoundCounter().count(f"{self.text}\n")

    def find_problems(self, args: Mapping[str, Any]) -> tuple[Problem, ...]:
        """The problems of arguments for this tool; none under a broken schema."""
        try:
            return find_problems(self._schema, args)
        except ConfigError:
            return ()  # the registry's mistake: its tools must stay usable

    @cached_property
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

    @cached_property
    def signatures(self) -> str:
        """One line per tool, in canonical order."""
        return "\n".join(definition.signature for definition in self.definitions)

    @cached_property
    def signature_tokens(self) -> int:
        """At most this many tokens of `signatures`."""
        return UpperBoundCounter().count(self.signatures)

    @cached_property
    def text_tokens(self) -> int:
        """At most this many tokens of `text`."""
        return UpperBoundCounter().count(self.text)

    @cached_property
    def fenced_signatures(self) -> str:
        """The signatures in a fence that they cannot close."""
        return in_fence(self.signatures)

    @cached_property
    def fenced_text(self) -> str:
        """The text in a fence that it cannot close."""
        return in_fence(self.text)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the tools, in canonical order."""
        return tuple(definition.name for definition in self.definitions)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content, the same in every process."""
        return hashlib.sha256(printable(self.text).encode()).hexdigest()

    def find(self, name: str) -> ToolDefinition | None:
        """The tool of that name, else the only one that differs in case and separators."""
        exact = self._by_name.get(name)
        if exact is not None:
            return exact
        similar = self._by_key.get(_key(name), [])
        return similar[0] if len(similar) == 1 else None

    @cached_property
    def _by_name(self) -> dict[str, ToolDefinition]:
        return {definition.name: definition for definition in self.definitions}

    @cached_property
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
    with third_party_code("the tool registry"):
        schema = registry.get_tools_schema()
        if inspect.isawaitable(schema):
            schema = await schema
    # In threads: reading a few thousand tools takes a quarter of a second.
    if isinstance(schema, str):
        return await asyncio.to_thread(_from_text, schema, checked=isinstance(registry, ToolRegistry))
    if isinstance(schema, (list, tuple)):
        return await asyncio.to_thread(_from_list, schema)
    raise ToolFailedError(
        "the tool registry returned neither text nor a list; let get_tools_schema() return one",
        tool="the tool registry",
    )


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
        parameters = " ".join(_parameter_texts(definition.parameters, definition.parameters, depth=_DEPTH))
        fields = {"name": definition.name, "description": definition.description, "parameters": parameters}
        rows.append((f"{number:06}", fields))  # the key sorts as the catalogue does, which orders ties
    index.add_many(rows)
    return index


def _parameter_texts(schema: Mapping[str, Any], root: Mapping[str, Any], *, depth: int) -> Iterator[str]:
    for name, value in properties_of(schema, root).items():
        yield f"{name} {value.get('description', '')}"
        if depth > 1:
            yield from _parameter_texts(value, root, depth=depth - 1)
