"""The document of each command with `--json`; `docs/cli.schema.json` is made of these models."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model

from llm_common.core.http.probing import EndpointReport
from llm_common.memory.overview import KeptEvent, SessionSummary
from llm_common.memory.protocol import MemoryHit
from llm_common.pointers.listing import QuerySummary
from llm_common.pointers.maintenance import GcReport, StoreFinding
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.reading import ContextReading
from llm_common.pointers.search import PointerMatch
from llm_common.tools.definitions import DefinitionProblem


class Document(BaseModel):
    """What a command prints; a field more or less is a new version of the schema."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class QueryPage(Document):
    """`context list`: queries of a store, the one that changed last first.

    Attributes:
        store: Where the store is.
        total: How many queries there are, of which `queries` may be a part.
        queries: The part that was asked for.
    """

    store: str
    total: int
    queries: tuple[QuerySummary, ...]


class PointersOfQuery(Document):
    """`context list QUERY`: pointers of a query, newest first.

    Attributes:
        store: Where the store is.
        query_id: The query.
        total: How many pointers it has, of which `pointers` may be a part.
        pointers: The part that was asked for.
    """

    store: str
    query_id: str
    total: int
    pointers: tuple[ContextPointer, ...]


class ShownPointer(Document):
    """`context show`: a pointer and an excerpt of its result.

    Attributes:
        pointer: The pointer.
        excerpt: The whole result, or its head and tail around the count of what is missing.
        total_chars: Characters of the whole result.
    """

    pointer: ContextPointer
    excerpt: str
    total_chars: int


class FoundPointers(Document):
    """`context search`: pointers by words, best first.

    Attributes:
        words: What was looked for.
        looked_in: `calls`: calls and the beginnings of results; `results`: all of each result too.
        total: How many pointers match.
        searched: How many pointers were searched.
        unreadable: How many were not, because their record or result is damaged or cannot be read.
        unreadable_queries: Queries whose folder cannot be read.
        matches: The best of those that match.
    """

    words: str
    looked_in: Literal["calls", "results"]
    total: int
    searched: int
    unreadable: int
    unreadable_queries: tuple[str, ...]
    matches: tuple[PointerMatch, ...]


class VerifiedStore(Document):
    """`context verify`: what is not as a save leaves it.

    Attributes:
        store: Where the store is.
        clean: Whether nothing is wrong, or all of it has been put right.
        queries: Queries looked at.
        pointers: Pointers whose record and result are whole.
        findings: Everything else.
    """

    store: str
    clean: bool
    queries: int
    pointers: int
    findings: tuple[StoreFinding, ...]


class CollectedGarbage(Document):
    """`context gc`: what was removed, or would be.

    Attributes:
        store: Where the store is.
        dry_run: Whether nothing was changed.
        report: The counts.
    """

    store: str
    dry_run: bool
    report: GcReport


class ErasedQuery(Document):
    """What was erased of a query, or would be: its pointers' ids, and the bytes of their records and results."""

    query_id: str
    pointers: tuple[str, ...]
    bytes: int


class ErasedPointers(Document):
    """`context erase`: what was erased, or would be.

    Attributes:
        store: Where the store is.
        dry_run: Whether nothing was changed.
        queries: Query by query.
    """

    store: str
    dry_run: bool
    queries: tuple[ErasedQuery, ...]


class SessionPage(Document):
    """`memory list`: sessions, the one with the newest event first.

    Attributes:
        total: How many sessions there are, of which `sessions` may be a part.
        sessions: The part that was asked for.
    """

    total: int
    sessions: tuple[SessionSummary, ...]


class EventPage(Document):
    """`memory list --session`: events of a session, newest first.

    Attributes:
        total: How many events there are, of which `events` may be a part.
        events: The part that was asked for.
    """

    total: int
    events: tuple[KeptEvent, ...]


class FoundEvents(Document):
    """`memory search`: events by words, best first."""

    words: str
    hits: tuple[MemoryHit, ...]


class ForgottenEvents(Document):
    """`memory forget`: how many events were erased, or would be."""

    dry_run: bool
    events: int


class ListedTool(Document):
    """A tool: its name, the tokens of its definition as it was read, and its signature on one line."""

    name: str
    tokens: int
    signature: str


class ToolPage(Document):
    """`tools list`: tools in the order of their names.

    Attributes:
        total: How many tools there are, of which `tools` may be a part.
        tokens: Tokens of all definitions, by `counter`.
        counter: What counted.
        tools: The part that was asked for.
    """

    total: int
    tokens: int
    counter: str
    tools: tuple[ListedTool, ...]


class RankedToolRow(Document):
    """A tool with its score from 0 to 1, and why it was found."""

    name: str
    score: float
    why: str


class RankedTools(Document):
    """`tools rank`: the tools for a request, best first.

    None where no tool fits it better than chance.
    """

    request: str
    total: int
    tools: tuple[RankedToolRow, ...]


class CheckedTools(Document):
    """`tools check`: what is wrong with tools.

    `errors` keep a tool from being used, the others are warnings.
    """

    total: int
    tokens: int
    errors: int
    problems: tuple[DefinitionProblem, ...]


class VariableInForce(Document):
    """A variable of the environment.

    Attributes:
        name: Its name.
        value: The value in force; None without one, and for every secret.
        default: Its default; None without one.
        source: Whether the value is set, or is the default; `unset` without either.
        secret: Whether its value is never shown.
        meaning: What it does.
    """

    name: str
    value: str | None
    default: str | None
    source: Literal["environment", "default", "unset"]
    secret: bool
    meaning: str


class StoreHealth(Document):
    """The store of the environment.

    Attributes:
        path: Where it is.
        exists: Whether there is one yet.
        checked: Whether every result was compared with its digest.
        queries: Queries in it.
        pointers: Pointers that are whole, if they were checked.
        problem: What is wrong with it; "" if nothing is.
    """

    path: str
    exists: bool
    checked: bool
    queries: int = 0
    pointers: int = 0
    problem: str = ""


class ExtraPackage(Document):
    """A package of an extra, and its version if it is installed."""

    extra: str
    package: str
    version: str | None


class Diagnosis(Document):
    """`doctor`: what is in force here, and what is wrong.

    Attributes:
        version: That of llm-common.
        python: That of Python.
        variables: Every variable.
        store: The store.
        endpoint: The endpoint, if one is configured.
        extras: The packages of all extras.
        problems: What is wrong, in sentences; empty if nothing is.
    """

    version: str
    python: str
    variables: tuple[VariableInForce, ...]
    store: StoreHealth
    endpoint: EndpointReport | None
    extras: tuple[ExtraPackage, ...]
    problems: tuple[str, ...]


class PackedFileRow(Document):
    """A file of a pack: how it is shown, its tokens, its score, and why it was chosen."""

    path: str
    form: str
    tokens: int
    score: float
    why: str


class PackDocument(Document):
    """`pack`: the packed text, and what was chosen for it.

    Attributes:
        query: The question.
        folders: What was searched.
        intent: What kind of question it is.
        budget_tokens: Most tokens of the text.
        tokens: Its tokens, by `counter`.
        counter: What counted.
        searched: Files that were searched.
        read: Files that were read anew for it.
        left_out: Files that were not searched, by reason.
        weighed: Files whose text was scored.
        files: The files in the text.
        notes: What went otherwise than expected.
        seconds: Wall time by step.
        packed: The text.
        explain: With `--explain`: the account of every file that was weighed; else None.
    """

    query: str
    folders: tuple[str, ...]
    intent: str
    budget_tokens: int
    tokens: int
    counter: str
    searched: int
    read: int
    left_out: dict[str, int]
    weighed: int
    files: tuple[PackedFileRow, ...]
    notes: tuple[str, ...]
    seconds: dict[str, float]
    packed: str
    explain: object = None


def documents() -> dict[str, TypeAdapter[Any]]:
    """What each command prints, by its name; needs the extra `mcp`."""
    # The whole library; a command needs a part of it.
    from llm_common.apps.cli.demo.five_questions_view import QuestionsDocument  # noqa: PLC0415
    from llm_common.apps.gateway.serving import GatewayReport  # noqa: PLC0415
    from llm_common.trace.account import Unseen  # noqa: PLC0415
    from llm_common.trace.differing import StepDiff  # noqa: PLC0415

    shown_trace = create_model(
        "ShownTrace",
        __base__=Document,
        __doc__="`trace show`: what concerns the run, what was not seen, and the lines of docs/trace.schema.json.",
        run=(str, ...),
        notes=(tuple[str, ...], ...),
        unseen=(tuple[Unseen, ...], ...),
        lines=(tuple[dict[str, Any], ...], ...),
    )
    kinds: dict[str, Any] = {
        "context list": QueryPage | PointersOfQuery,
        "context show": ShownPointer,
        "context read": ContextReading,
        "context search": FoundPointers,
        "context verify": VerifiedStore,
        "context gc": CollectedGarbage,
        "context erase": ErasedPointers,
        "memory list": SessionPage | EventPage,
        "memory search": FoundEvents,
        "memory forget": ForgottenEvents,
        "tools list": ToolPage,
        "tools rank": RankedTools,
        "tools check": CheckedTools,
        "doctor": Diagnosis,
        "pack": PackDocument,
        "demo": QuestionsDocument,
        "trace show": shown_trace,
        "trace diff": create_model(
            "ComparedTraces", __base__=Document, steps=(tuple[StepDiff, ...], ...)
        ),
        "gateway status": list[GatewayReport],
        "gateway doctor": GatewayReport,
    }
    return {name: TypeAdapter(kind) for name, kind in kinds.items()}


def documents_schema() -> dict[str, object]:
    """The JSON Schema of all documents: one property a command, as if one object held them all."""
    found, rest = TypeAdapter.json_schemas(
        [(name, "serialization", kind) for name, kind in documents().items()]
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Documents of llm-common --json",
        "description": "The property of a command's name describes the document that it prints with --json.",
        "type": "object",
        "properties": {name: found[name, "serialization"] for name in documents()},
        **rest,
    }
