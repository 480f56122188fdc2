"""`Catalogue`: a registry's tools, as a prompt shows them and as they rank."""

import hashlib
import inspect
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from llm_common._threads import in_thread
from llm_common.core.tokens import UpperBoundCounter
from llm_common.errors import ToolFailedError
from llm_common.text.canonical import stable_json
from llm_common.text.display import in_fence, printable
from llm_common.tools.definitions import ToolDefinition, computed_once, read_definition
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import third_party_code

if TYPE_CHECKING:
    from llm_common.tools.tool_index import ToolIndex

_PREFIX = re.compile(r"^(?:functions?|tools?|default_api)[.:/]")
_SEPARATORS = re.compile(r"[\W_]+")
_REGISTRY = "the tool registry"
_CACHED_CATALOGUES = 8
_PLAIN_ONLY = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_CACHED_INDEXES = 4
_SHORTLIST_FOLLOWS = "The tools are listed in the next message: those that fit the task best."


class OffersTools(Protocol):
    """Lists its tools: our `ToolRegistry`, or an application's own registry."""

    def get_tools_schema(self) -> Any:
        """The tools as text or as a list of definitions, or an awaitable of either."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """A snapshot of a registry's tools; registries of equal content share one.

    Attributes:
        text: The tools as JSON, or the unchanged text of a third-party registry.
        definitions: The tools in canonical order; empty if the text cannot be read as tools.
        checked: Whether calls are checked against `definitions`. False for a registry that offers
            only text, which may leave out valid names.
        empty: Whether there is nothing to choose from: no tools, or blank text.
    """

    text: str
    definitions: tuple[ToolDefinition, ...]
    checked: bool
    empty: bool

    @computed_once
    def signatures(self) -> str:
        """One line per tool, in canonical order."""
        return "\n".join(definition.signature for definition in self.definitions)

    @computed_once
    def signature_tokens(self) -> int:
        """At most this many tokens of `signatures`."""
        return UpperBoundCounter().count(self.signatures)

    @computed_once
    def text_tokens(self) -> int:
        """At most this many tokens of `text`."""
        return UpperBoundCounter().count(self.text)

    @computed_once
    def fenced_signatures(self) -> str:
        """The signatures in a fence that they cannot close."""
        return in_fence(self.signatures)

    @computed_once
    def fenced_text(self) -> str:
        """The text in a fence that it cannot close."""
        return in_fence(self.text)

    @computed_once
    def names(self) -> tuple[str, ...]:
        """The names of the tools, in canonical order, once each."""
        return tuple(dict.fromkeys(definition.name for definition in self.definitions))

    @computed_once
    def digest(self) -> str:
        """SHA-256 of the content, the same in every process."""
        return hashlib.sha256(printable(self.text).encode()).hexdigest()

    def restricted_to(self, names: Collection[str]) -> "Catalogue":
        """Return the catalogue of these tools alone, in canonical order."""
        tools = tuple(tool for tool in self.definitions if tool.name in names)
        text = f"[{','.join(tool.text for tool in tools)}]"
        return Catalogue(text, tools, checked=True, empty=not tools)

    def find(self, name: str) -> ToolDefinition | None:
        """Return the tool of a name, or None.

        Without one, returns the only tool whose name differs in nothing but case, separators and a
        prefix like `functions.`.
        """
        bare = _PREFIX.sub("", name)
        for wanted in dict.fromkeys((name, bare)):
            exact = self.definitions_by_name.get(wanted)
            if exact is not None:
                return exact
            similar = self._by_key.get(_key(wanted), [])
            if len(similar) == 1:
                return similar[0]
            if similar:
                return None  # which of them is meant is anybody's guess
        return None

    @computed_once
    def definitions_by_name(self) -> dict[str, ToolDefinition]:
        """The tools by name; the last of a repeated name."""
        return {definition.name: definition for definition in self.definitions}

    @computed_once
    def _by_key(self) -> dict[str, list[ToolDefinition]]:
        keys: dict[str, list[ToolDefinition]] = {}
        for definition in self.definitions:
            keys.setdefault(_key(definition.name), []).append(definition)
        return keys


async def read_catalogue(registry: OffersTools) -> Catalogue:
    """The registry's tools now; calls `get_tools_schema` exactly once.

    Calls are checked against the names and schemas of a `ToolRegistry`, or of a list of
    definitions, each either `{"name", "description", "parameters"}` or `{"type": "function",
    "function": {...}}`; under a broken schema only the name is checked. Text of another registry is
    used unchanged.

    Raises:
        ToolFailedError: The registry raised, or returned neither text nor a list of definitions.
        UnserialisableError: The list holds what JSON cannot.
    """
    if not callable(getattr(registry, "get_tools_schema", None)):
        raise ToolFailedError(
            f"the tool registry is a {type(registry).__name__} without get_tools_schema(); "
            "pass a ToolRegistry",
            tool=_REGISTRY,
        )
    with third_party_code(_REGISTRY):
        schema = registry.get_tools_schema()
        if inspect.isawaitable(schema):
            schema = await schema
    if not isinstance(schema, (str, list, tuple)):
        raise ToolFailedError(
            f"the tool registry returned a {type(schema).__name__}, neither text nor a list; "
            "let get_tools_schema() "
            "return one",
            tool=_REGISTRY,
        )
    # In threads: reading a few thousand tools takes a quarter of a second.
    return await in_thread(_read, schema, checked=isinstance(registry, ToolRegistry))


def _read(schema: str | Sequence[object], *, checked: bool) -> Catalogue:
    try:
        if isinstance(schema, str):
            return _from_text(schema, checked=checked)
        return _from_list(schema)
    except RecursionError as exc:
        raise ToolFailedError(
            "the tools of the registry are nested too deeply to be read; use flatter schemas",
            tool=_REGISTRY,
        ) from exc


@lru_cache(maxsize=_CACHED_CATALOGUES)
def _from_text(text: str, *, checked: bool) -> Catalogue:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    definitions: tuple[ToolDefinition, ...] = ()
    if isinstance(data, list):
        definitions = _definitions(data) or ()
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
    """The entries as definitions in canonical form.

    As unchecked text if one is not a definition.
    """
    entries = json.loads(encoded)
    definitions = _definitions(entries)
    if definitions is None:
        return _from_text(f"[{','.join(sorted(map(stable_json, entries)))}]", checked=False)
    # By the whole text too: two tools may have one name.
    ordered = sorted(definitions, key=lambda each: (each.name, each.text))
    return _from_text(f"[{','.join(each.text for each in ordered)}]", checked=True)


def _definitions(entries: list[object]) -> tuple[ToolDefinition, ...] | None:
    """Return every entry as a definition, sorted by name, or None if one is not a definition."""
    definitions: list[ToolDefinition] = []
    for entry in entries:
        definition = read_definition(entry)
        if definition is None:
            return None
        definitions.append(definition)
    return tuple(sorted(definitions, key=lambda definition: definition.name))


def _key(name: str) -> str:
    return _SEPARATORS.sub("", name).casefold()


def rank_tools(
    catalogue: Catalogue, texts: Sequence[str], whole: Sequence[str] = (), *, limit: int
) -> tuple[ToolDefinition, ...]:
    """The tools that fit the texts, at most `limit`, best first; see `ToolIndex.rank`.

    Ranks each text alone and fuses the rankings, with vectors where the extra `embeddings` is
    installed. Builds the index once per content of the registry, which takes 0.1 s for 500 tools:
    call it in a thread.

    Args:
        catalogue: What to choose from.
        texts: The sub-tasks. A text without words ranks nothing.
        whole: The task and the query; every second place is theirs, or all without `texts`.
        limit: Most tools to return.
    """
    index = tool_index(catalogue)
    rankings = [index.rank("", limit, each) for each in (texts, whole) if each]
    rows = chain.from_iterable(zip_longest(*rankings))
    names = dict.fromkeys(row.name for row in rows if row is not None)
    return tuple(catalogue.definitions_by_name[name] for name in islice(names, limit))


@lru_cache(maxsize=_CACHED_INDEXES)
def tool_index(catalogue: Catalogue) -> "ToolIndex":
    """Return the tools ready to rank. Never abstains: a model chooses from the ranking."""
    from llm_common.ranking.embeddings import installed_vectors  # noqa: PLC0415 - only a long catalogue is ranked
    from llm_common.tools.tool_index import ToolIndex  # noqa: PLC0415 - the same

    return ToolIndex(catalogue.definitions, installed_vectors(), min_score=0.0)


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of a registry as a prompt shows them.

    Attributes:
        stable: Depends on the registry and the limits alone: the tools, or that a shortlist
            follows.
        sections: The shortlist, for the part of the prompt that changes; empty without one.
        names: The names of the tools that are shown; None for a registry that offers only text.
        tokens_saved: Tokens of the signatures of all tools, less those of the shortlist; 0 without
            a shortlist.
    """

    stable: str
    sections: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None
    tokens_saved: int = 0


def offer_tools(
    catalogue: Catalogue,
    *,
    parts: Sequence[str],
    whole: Sequence[str],
    shortlist_tools: int,
    limit_tokens: int,
) -> OfferedTools:
    """Return the tools as a prompt shows them.

    In full if a shortlist would hold them all or the registry is opaque, else one line each. If \
even that exceeds `limit_tokens`, the tools that rank best, in full as far as the same limit
    allows.

    Args:
        catalogue: The tools.
        parts: The parts of what they are wanted for, each ranked by itself.
        whole: All of it, in one or several wordings.
        shortlist_tools: Most tools of a shortlist; a registry of at most that size is shown in
            full.
        limit_tokens: Most tokens of the tools, as `UpperBoundCounter` counts.
    """
    fence = _whole(catalogue, shortlist_tools, limit_tokens)
    if fence is not None:
        names = catalogue.names if catalogue.checked else None
        return OfferedTools(f"Tools:\n{fence}", names=names)
    ranked = rank_tools(catalogue, parts, whole, limit=shortlist_tools)
    # No word in common, perhaps another language: as many signatures as fit serve better than none.
    lines = list(
        fitting_lines(
            ranked or catalogue.definitions, in_full=bool(ranked), limit_tokens=limit_tokens
        )
    )
    return OfferedTools(
        _SHORTLIST_FOLLOWS,
        (section("Tools", "\n".join(line for _, line, _ in lines)),),
        tuple(name for name, _, _ in lines),
        max(catalogue.signature_tokens - sum(tokens for _, _, tokens in lines), 0),
    )


def _whole(catalogue: Catalogue, shortlist_tools: int, limit_tokens: int) -> str | None:
    """All tools in their fence, or None when they take too much room."""
    if not catalogue.checked:
        return catalogue.fenced_text
    if len(catalogue.definitions) <= shortlist_tools and catalogue.text_tokens <= limit_tokens:
        return catalogue.fenced_text
    if catalogue.signature_tokens <= limit_tokens:
        return catalogue.fenced_signatures
    return None


def fitting_lines(
    definitions: Iterable[ToolDefinition], *, in_full: bool, limit_tokens: int
) -> Iterator[tuple[str, str, int]]:
    """Yield name, line and tokens of each tool while there is room.

    The line is the tool's JSON if that is wanted and fits, else its signature.
    """
    for definition in definitions:
        if in_full and definition.text_tokens <= limit_tokens:
            line, tokens = definition.text, definition.text_tokens
        else:
            line, tokens = definition.signature, definition.signature_tokens
        if tokens <= limit_tokens:
            limit_tokens -= tokens
            yield definition.name, line, tokens


def section(title: str, text: str) -> str:
    """Text from outside under our own title, in a fence that it cannot close."""
    return f"{title}:\n{in_fence(text)}"
