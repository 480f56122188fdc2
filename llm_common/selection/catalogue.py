"""Reads a registry's tools into a `Catalogue`, ranks them and writes them into prompts."""

import inspect
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from llm_common._threads import computed_once, in_thread
from llm_common.core.tokens import UpperBoundCounter
from llm_common.errors import ToolFailedError
from llm_common.parts.fill import fill
from llm_common.text.canonical import stable_json
from llm_common.text.display import in_fence
from llm_common.tools.definitions import ToolDefinition, read_definition
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import third_party_code

if TYPE_CHECKING:
    from llm_common.tools.tool_index import ToolIndex

# Namespaces that models write before a name, such as `functions.` and `default_api.`.
_PREFIX = re.compile(r"^(?:functions?|tools?|default_api)[.:/]")
_SEPARATORS = re.compile(r"[\W_]+")
_REGISTRY = "the tool registry"
_CACHED_CATALOGUES = 8
# Other values go through `stable_json`, which knows more types and checks them.
_PLAIN_ONLY = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_CACHED_INDEXES = 4  # fewer than catalogues, since an index is larger
_SHORTLIST_FOLLOWS = "The tools are listed in the next message: those that fit the task best."


class OffersTools(Protocol):
    """Lists its tools: our `ToolRegistry`, or an application's own registry."""

    def get_tools_schema(self) -> Any:
        """Return the tools as text or as a list of definitions, or an awaitable of either."""


# Compared by identity, which makes it a cheap key of the cache of indexes.
@dataclass(frozen=True, eq=False)
class Catalogue:
    """A snapshot of a registry's tools. Registries with equal content share it.

    Attributes:
        text: The tools as JSON, or the unchanged text of a third-party registry.
        definitions: The tools in canonical order. Empty if the text cannot be read as tools.
        checked: Whether calls are checked against `definitions`. False for a registry that offers
            only text, since the text may leave out valid names.
        empty: Whether there are no tools, or the text is blank.
    """

    text: str
    definitions: tuple[ToolDefinition, ...]
    checked: bool
    empty: bool

    @computed_once
    def signatures(self) -> str:
        """Return one line per tool, in canonical order."""
        return "\n".join(map(attrgetter("signature"), self.definitions))

    @computed_once
    def signature_tokens(self) -> int:
        """Return an upper bound of the tokens of `signatures`."""
        return UpperBoundCounter().count(self.signatures)

    @computed_once
    def text_tokens(self) -> int:
        """Return an upper bound of the tokens of `text`."""
        return UpperBoundCounter().count(self.text)

    @computed_once
    def names(self) -> tuple[str, ...]:
        """Return the names of the tools in canonical order, without repeats."""
        return tuple(dict.fromkeys(map(attrgetter("name"), self.definitions)))

    def find(self, name: str) -> ToolDefinition | None:
        """Return the tool with a name, or None.

        If there is none, returns the only tool whose name differs by case, separators and a prefix
        such as `functions.`.
        """
        # The whole name comes first, since a tool may really be called `tools.search`.
        for candidate in dict.fromkeys((name, _PREFIX.sub("", name))):
            exact = self.definitions_by_name.get(candidate)
            if exact is not None:
                return exact
            similar = self._by_key.get(_key(candidate), [])
            if len(similar) == 1:
                return similar[0]
            if similar:
                return None  # ambiguous: a call of the wrong tool is worse than none
        return None

    @computed_once
    def definitions_by_name(self) -> dict[str, ToolDefinition]:
        """Return the tools by name. Of a repeated name, the last tool counts."""
        return {definition.name: definition for definition in self.definitions}

    @computed_once
    def _by_key(self) -> dict[str, list[ToolDefinition]]:
        keys: dict[str, list[ToolDefinition]] = {}
        for definition in self.definitions:
            keys.setdefault(_key(definition.name), []).append(definition)
        return keys


async def read_catalogue(registry: OffersTools) -> Catalogue:
    """Read the registry's tools. Calls `get_tools_schema` exactly once.

    Calls are checked against the names and schemas of a `ToolRegistry`, or of a list of
    definitions. A definition is `{"name", "description", "parameters"}` or `{"type": "function",
    "function": {...}}`. With a broken schema, only the name is checked. Text of a third-party
    registry is used unchanged.

    Raises:
        ToolFailedError: If the registry raised, or returned neither text nor a list.
        UnserialisableError: If an entry of the list has no JSON form.
    """
    if not callable(getattr(registry, "get_tools_schema", None)):
        raise ToolFailedError(
            f"the tool registry must have get_tools_schema(), got {type(registry).__name__}; "
            "pass a ToolRegistry",
            tool=_REGISTRY,
        )
    with third_party_code(_REGISTRY):
        schema = registry.get_tools_schema()
        if inspect.isawaitable(schema):
            schema = await schema
    if not isinstance(schema, (str, list, tuple)):
        raise ToolFailedError(
            "get_tools_schema() of the tool registry must return a str or a list, got "
            f"{type(schema).__name__}",
            tool=_REGISTRY,
        )
    # In a thread, since reading a few thousand tools takes a quarter of a second.
    return await in_thread(_read, schema, checked=isinstance(registry, ToolRegistry))


def _read(schema: str | Sequence[object], *, checked: bool) -> Catalogue:
    try:
        if isinstance(schema, str):
            return _from_text(schema, checked=checked)
        # The encoding is the key of the cache: the entries themselves can be changed.
        try:
            encoded = orjson.dumps(schema, option=_PLAIN_ONLY)
        except TypeError:  # not plain JSON, but it may have a canonical form
            encoded = f"[{','.join(map(stable_json, schema))}]".encode()
        return _from_encoded(encoded)
    except RecursionError as exc:
        raise ToolFailedError(
            "the schemas of the registry's tools are nested too deeply; use flatter schemas",
            tool=_REGISTRY,
        ) from exc


@lru_cache(maxsize=_CACHED_CATALOGUES)
def _from_text(text: str, *, checked: bool) -> Catalogue:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):  # a third-party registry's text need not be JSON
        data = None
    definitions: tuple[ToolDefinition, ...] = ()
    if isinstance(data, list):
        definitions = _definitions(data) or ()
    return Catalogue(text, definitions, checked=checked, empty=not text.strip() or data == [])


@lru_cache(maxsize=_CACHED_CATALOGUES)
def _from_encoded(encoded: bytes) -> Catalogue:
    """Return the catalogue of the entries, unchecked if one of them is not a definition."""
    # A copy, because the caller may change its entries while the catalogue is cached.
    entries = json.loads(encoded)
    definitions = _definitions(entries)
    if definitions is None:
        return _from_text(f"[{','.join(sorted(map(stable_json, entries)))}]", checked=False)
    # By the whole text too, since two tools may have the same name.
    ordered = sorted(definitions, key=attrgetter("name", "text"))
    return _from_text(f"[{','.join(map(attrgetter('text'), ordered))}]", checked=True)


def _definitions(entries: list[object]) -> tuple[ToolDefinition, ...] | None:
    """Return the entries as definitions sorted by name, or None if one is not a definition."""
    definitions: list[ToolDefinition] = []
    for entry in entries:
        definition = read_definition(entry)
        if definition is None:
            return None
        definitions.append(definition)
    return tuple(sorted(definitions, key=attrgetter("name")))


def _key(name: str) -> str:
    return _SEPARATORS.sub("", name).casefold()


def rank_tools(
    catalogue: Catalogue, texts: Sequence[str], whole: Sequence[str] = (), *, limit: int
) -> tuple[ToolDefinition, ...]:
    """Return the tools that fit the texts, best first. See `ToolIndex.rank`.

    Ranks each text alone and fuses the rankings, with vectors if the extra `embeddings` is
    installed. Call it in a thread: the index is built once per content of a registry, which takes
    0.1 s for 500 tools.

    Args:
        catalogue: The tools to rank.
        texts: The sub-tasks. A text that shares nothing with any tool ranks none.
        whole: The task and the query. Every second tool is theirs, or every tool without `texts`.
        limit: Maximum number of tools to return.
    """
    index = tool_index(catalogue)
    # Both rankings in turn, so that many sub-tasks do not push out the tools of the whole task.
    rankings = [index.rank("", limit, queries) for queries in (texts, whole) if queries]
    ranked = filter(None, chain.from_iterable(zip_longest(*rankings)))
    names = dict.fromkeys(row.name for row in ranked if row.why)
    return tuple(map(catalogue.definitions_by_name.__getitem__, islice(names, limit)))


@lru_cache(maxsize=_CACHED_INDEXES)
def tool_index(catalogue: Catalogue) -> "ToolIndex":
    """Return an index of the tools, which is built once per content of a registry."""
    from llm_common.ranking.embeddings import installed_vectors  # noqa: PLC0415 - only a long catalogue is ranked
    from llm_common.tools.tool_index import ToolIndex  # noqa: PLC0415 - for the same reason

    return ToolIndex(catalogue.definitions, installed_vectors())


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of a registry as a prompt shows them.

    Attributes:
        stable: The tools, or the announcement of a shortlist. Depends on the registry and the
            limits alone, so that the prompt can be cached.
        sections: The shortlist, for the part of the prompt that changes. Empty without a shortlist.
        names: The names of the tools shown. None for a registry that offers only text.
    """

    stable: str
    sections: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None


def offer_tools(
    catalogue: Catalogue,
    *,
    parts: Sequence[str],
    whole: Sequence[str],
    shortlist_tools: int,
    limit_tokens: int,
) -> OfferedTools:
    """Return the tools as a prompt shows them.

    Shows them in full if a shortlist would contain them all, or if the registry offers only text.
    Otherwise shows one line per tool. If these lines exceed `limit_tokens`, shows the lines of the
    tools that rank best, and the best of them in full as far as the limit allows.

    Args:
        catalogue: The tools.
        parts: The parts of the request, each ranked by itself.
        whole: The whole request, in one or more wordings.
        shortlist_tools: Maximum number of tools in a shortlist. A registry of at most this size is
            shown in full.
        limit_tokens: Maximum tokens of the tools, as `UpperBoundCounter` counts.
    """
    if not catalogue.checked:  # a text cannot be shortened by tool
        return OfferedTools(section("Tools", catalogue.text))
    if len(catalogue.definitions) <= shortlist_tools and catalogue.text_tokens <= limit_tokens:
        return OfferedTools(section("Tools", catalogue.text), names=catalogue.names)
    if catalogue.signature_tokens <= limit_tokens:
        return OfferedTools(section("Tools", catalogue.signatures), names=catalogue.names)
    ranked = rank_tools(catalogue, parts, whole, limit=shortlist_tools)
    # Without a common word, perhaps in another language, show as many signatures as fit.
    tools = fill(limit_tokens, ranked or catalogue.definitions, attrgetter("signature_tokens"))
    free_tokens = limit_tokens - sum(tool.signature_tokens for tool in tools)
    in_full = fill(
        free_tokens, tools if ranked else (), lambda tool: tool.text_tokens - tool.signature_tokens
    )
    lines = [tool.text for tool in in_full]
    lines += [tool.signature for tool in tools[len(in_full) :]]
    shortlist = section("Tools", "\n".join(lines))
    return OfferedTools(_SHORTLIST_FOLLOWS, (shortlist,), tuple(tool.name for tool in tools))


def section(title: str, text: str) -> str:
    """Return an untrusted text under a title, in a fence that it cannot close."""
    return f"{title}:\n{in_fence(text)}"
