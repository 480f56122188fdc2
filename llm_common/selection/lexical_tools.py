"""Chooses tool calls without a model: the tool by full-text ranking, its arguments from the texts.

Nothing is guessed. A value that could belong to two parameters, two values for one parameter and
words of prose are left to a model.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, product
from typing import Any, Final

from llm_common._threads import in_thread
from llm_common.core.two_attempts import SelectionStatus
from llm_common.errors import ToolFailedError
from llm_common.ranking.lexical import split_identifiers
from llm_common.selection.catalogue import Catalogue, tool_index
from llm_common.selection.results import DroppedCall, ToolSelection, ToolSelectionConfig
from llm_common.selection.tool_calls import check_calls, only_alternative, read_leniently
from llm_common.selection.tools import ChoosesTools, ToolRequest
from llm_common.tools.definitions import ToolDefinition, only_reads
from llm_common.tools.signature import properties_of, required_of
from llm_common.tools.validation import Problem

Schema = Mapping[str, Any]

# Chosen on the tuning half of the sets whose requests may fit no tool, bfcl_select and
# metatool_select.
_MIN_SCORE: Final = 0.5
_TIE: Final = 0.05  # of the score; closer tools are told apart by chance
_CLAUSE_SEAM: Final = re.compile(r"(?<=[.!?;])\s+|\n+|,\s+|,?\s+(?:and|then)\s+", re.IGNORECASE)
_MAX_CLAUSES: Final = 8

_MAX_SEARCHED_CHARS: Final = 10_000
_NUMBER: Final = r"-?\d{1,15}(?:\.\d{1,15})?"
# In this order: the text that one pattern matches is not searched again, so the digits of a date
# and the dots of an address are not numbers and paths.
_VALUES: Final = {
    "url": re.compile(r"https?://[^\s<>()\[\]{}\"'`]*[^\s<>()\[\]{}\"'`.,;:!?]"),
    "email": re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"),
    "date": re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?Z?)?(?![\w-])"),
    "path": re.compile(
        r"(?<![\w./~-])"
        r"(?:(?:\.{0,2}|~)/[\w./-]*\w|(?:[\w-]+/)*[\w-]{2,}\.[A-Za-z]\w{0,7})(?![\w/])"
    ),
    "quoted": re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|“([^“”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)"),
    "number": re.compile(rf"(?<![\w.,-]){_NUMBER}(?![\w-]|[.,]\d)"),
}
# A word of its format or name says which of these a string parameter takes. Others are quoted.
_KIND_WORDS: Final = {
    "url": {"href", "link", "uri", "url", "website"},
    "path": {"dir", "directory", "file", "filename", "folder", "path"},
    "email": {"email"},
    "date": {"date", "day"},
}
_SEPARATOR: Final = re.compile(r"(?<=\w)[\s_-]+(?=\w)")


class LexicalToolSelector(ChoosesTools):
    """Tool calls for a task by full-text ranking; reads arguments from the texts.

    Takes the best ranked tool for each sub-task; without sub-tasks for each request in the task,
    then for the query. A clause of the task is a request of its own if a tool fits it whose
    arguments the clause fills. A tool is called if

    - it scores at least .5 in a `ToolIndex`, and no other tool scores within 5% of it;
    - it only reads: it is marked (`Tool(read_only=True)`, MCP's `readOnlyHint`), or, unmarked, its
      name has a verb such as `get` or `search`, and neither it nor a parameter one such as `send`;
    - each of its required arguments has one possible value (see `fill_arguments`).

    Deterministic; fails closed as `ToolSelector` does.

    Args:
        config: Only `max_calls` and the deadline of a whole selection are used; None reads the
            environment once, here.
        allow_writes: Also calls tools that may change something.

    Raises:
        ConfigError: An environment variable cannot be used.
        TypeError: `config` is no `ToolSelectionConfig`.
    """

    used = "lexical"

    def __init__(
        self, config: ToolSelectionConfig | None = None, *, allow_writes: bool = False
    ) -> None:
        super().__init__(config)
        self._allow_writes = allow_writes

    async def choose(
        self, catalogue: Catalogue, request: ToolRequest, *, ends_at: float
    ) -> tuple[ToolSelection, Sequence[str]]:
        """Return the calls that the ranking and the texts admit. See `ChoosesTools.choose`."""
        if not catalogue.definitions:
            raise ToolFailedError(
                "the registry's text cannot be read as tools; pass a registry of Tool objects",
                tool="the tool registry",
            )
        async with asyncio.timeout_at(ends_at):
            selection = await in_thread(self._matches, catalogue, request)
        return selection, catalogue.names

    def _matches(self, catalogue: Catalogue, request: ToolRequest) -> ToolSelection:
        proposed: list[dict[str, Any]] = []
        dropped: list[DroppedCall] = []
        context = request.context or {}
        for text in request.sub_tasks or request.whole:
            if proposed and not request.sub_tasks:
                break  # the query is only another wording of the task
            requests = [text]
            if not request.sub_tasks:
                requests = self._requests(catalogue, text)
            for part in requests:
                call = self._call(catalogue, part, [part, *request.whole], context)
                if isinstance(call, DroppedCall):
                    dropped.append(call)
                elif call is not None:
                    proposed.append(call)
        checked = check_calls(proposed, catalogue, max_calls=self.config.max_calls)
        status: SelectionStatus = "empty"
        problem = ""
        if checked.calls:
            status = "ok"
        elif dropped:
            status = "invalid"
            problem = "no chosen tool can be called; `dropped` says why"
        return ToolSelection(
            calls=checked.calls,
            status=status,
            used="lexical",
            dropped=(*dropped, *checked.dropped),
            tools_total=len(catalogue.definitions),
            tools_shown=len(catalogue.definitions),
            problem=problem,
        )

    def _requests(self, catalogue: Catalogue, text: str) -> list[str]:
        """Return the requests of a text.

        Each is a clause that fills a call, with the clauses after it that do not.
        """
        spans: list[tuple[int, int]] = []
        calls = 0
        for start, end in _clauses(text):
            clause = text[start:end]
            fills = isinstance(self._call(catalogue, clause, [clause], {}), dict)
            calls += fills
            if spans and not (fills and calls > 1):
                start, _ = spans.pop()  # noqa: PLW2901 - the clause goes on with the request before it
            spans.append((start, end))
        return [text[start:end] for start, end in spans]

    def _call(
        self, catalogue: Catalogue, request: str, texts: list[str], context: Mapping[str, Any]
    ) -> dict[str, Any] | DroppedCall | None:
        """The call of the tool that fits best, why it is none, or None if no tool fits."""
        best = tool_index(catalogue).rank(request, 2)
        if not best or best[0].score < _MIN_SCORE:
            return None
        tool = catalogue.definitions_by_name[best[0].name]
        if len(best) > 1 and best[1].score >= best[0].score * (1 - _TIE):
            return DroppedCall(tool.name, "tie")
        reads = tool.read_only
        if reads is None:
            reads = only_reads(tool.name, tool.parameters)
        if not self._allow_writes and not reads:
            return DroppedCall(tool.name, "writes")
        return filled_call(tool, texts, context, reasoning=best[0].why)


def _clauses(text: str) -> list[tuple[int, int]]:
    """Where the clauses of a text start and end.

    The whole if there are too many, since that is prose.
    """
    seams = [*_CLAUSE_SEAM.finditer(text)]
    if len(seams) >= _MAX_CLAUSES:
        return [(0, len(text))]
    clauses: list[tuple[int, int]] = []
    start = 0
    for seam in seams:
        clauses.append((start, seam.start()))
        start = seam.end()
    return [*clauses, (start, len(text))]


def filled_call(
    tool: ToolDefinition, texts: Sequence[str], context: Mapping[str, Any] | None, *, reasoning: str
) -> dict[str, Any] | DroppedCall:
    """Return a call of a tool with the arguments that can be filled, or why there is none.

    Args:
        tool: Its schema checks the arguments.
        texts: As for `fill_arguments`.
        context: As for `fill_arguments`.
        reasoning: Why the tool was chosen.
    """
    args = fill_arguments(tool.parameters, texts=texts, context=context)
    required = required_of(tool.parameters, tool.parameters)
    missing: list[Problem] = []
    for name in properties_of(tool.parameters, tool.parameters):
        if name in required and name not in args:
            missing.append(Problem(name, "required", "no text names a value for it"))
    if missing:
        return DroppedCall(tool.name, "unfilled", tuple(missing))
    problems = tool.find_problems(args)
    if problems:
        return DroppedCall(tool.name, "invalid_args", problems)
    return {"tool": tool.name, "args": args, "reasoning": reasoning}


def fill_arguments(
    parameters: Schema, *, texts: Sequence[str], context: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments that have one possible value. Deterministic.

    A parameter takes the context's value of its name, else the value after its name
    (`city=Paris`, `limit 5`), else the only option of its enum that a text names. If it is
    required and still open, it takes its `const` or `default`, else the only value of its kind in
    a text, unless another open parameter is of that kind. Kinds are numbers, quoted texts and,
    by a word of the format or the name, URL, email, date and path.

    Args:
        parameters: JSON Schema of the arguments.
        texts: The texts to search, the most specific first. The first one with a value counts.
        context: Known values by parameter name.
    """
    schemas: dict[str, Schema] = {}
    for name, schema in properties_of(parameters, parameters).items():
        schemas[name] = only_alternative(schema, parameters)
    texts = [text[:_MAX_SEARCHED_CHARS] for text in texts]
    args: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    required = required_of(parameters, parameters)
    for name, schema in schemas.items():
        value = (context or {}).get(name)
        if value is None:
            value = _named_value(name, schemas, texts)
        if value is not None:
            args[name] = value
        elif name in required and ("const" in schema or "default" in schema):
            args[name] = schema.get("const", schema.get("default"))
        elif name in required:
            kinds[name] = _kind(name, schema)
    used = {str(value) for value in args.values()}
    for name, kind in kinds.items():
        if list(kinds.values()).count(kind) == 1:
            value = _only_value(kind, texts, used)
            if value is not None:
                args[name] = value
    # The texts hold digits: the schema says whether they are a number or a string.
    return read_leniently(args, parameters)[0]


def _named_value(name: str, schemas: Mapping[str, Schema], texts: Sequence[str]) -> object | None:
    """Return the value after a parameter's name, or the only option of its enum in a text."""
    spaced_name = r"[\s_-]?".join(map(re.escape, name.split("_")))
    options = _options(schemas[name])
    kind = schemas[name].get("type", "string")
    if options:
        # Of the options `new` and `newest first` the longer one is tried first.
        spellings = sorted(map(re.escape, options), key=len, reverse=True)
        option = rf"({'|'.join(spellings)})(?!\w)".replace("_", r"[\s_-]+")
        patterns = [rf"\b{spaced_name}(?:\s*[=:]\s*|\s+){option}"]
        rivals = [schema for rival, schema in schemas.items() if rival != name]
        if options.keys().isdisjoint(chain.from_iterable(map(_options, rivals))):
            patterns.append(rf"(?<!\w){option}")
    elif kind in ("integer", "number"):
        patterns = [rf"\b{spaced_name}(?:\s*[=:]\s*|\s+)({_NUMBER})(?![\w.]*\w)"]
    elif kind == "string":
        quoted = r"\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`"
        patterns = [rf"\b{spaced_name}\s*[=:]\s*(?:{quoted}|([^\s,;\"'`]*[^\s,;\"'`.!?]))"]
    else:
        return None
    for pattern, text in product(patterns, texts):
        values = {
            match[match.lastindex or 0] for match in re.finditer(pattern, text, re.IGNORECASE)
        }
        if options:
            values = {_spelling(value) for value in values}
        if len(values) > 1:
            return None
        if values:
            value = values.pop()
            return options.get(value, value)
    return None


def _options(schema: Schema) -> dict[str, object]:
    """Return the texts and numbers of an enum by their spelling, without those that share one."""
    enum = schema.get("enum")
    if not isinstance(enum, list):
        return {}
    texts = [option for option in enum if isinstance(option, str | int | float)]
    counts = Counter(_spelling(str(option)) for option in texts)
    options: dict[str, object] = {}
    for option in texts:
        spelling = _spelling(str(option))
        if spelling.strip() and counts[spelling] == 1:
            options[spelling] = option
    return options


def _spelling(value: str) -> str:
    return _SEPARATOR.sub("_", value).lower()


def _kind(name: str, schema: Schema) -> str:
    """Return the kind of value that a parameter takes, or "" if no text can show it."""
    kind = schema.get("type", "string")
    if not {"anyOf", "enum", "oneOf"}.isdisjoint(schema):
        return ""
    if kind in ("integer", "number"):
        return "number"
    if kind != "string":
        return ""
    words = split_identifiers(f"{schema.get('format', '')} {name}").lower().split()
    for special_kind, kind_words in _KIND_WORDS.items():
        if not kind_words.isdisjoint(words):
            return special_kind
    return "quoted"


def _only_value(kind: str, texts: Sequence[str], used: Collection[str]) -> str | None:
    """Return the only unused value of a kind in the first text that has one."""
    for text in texts:
        values = _values_of(text, kind)
        if values:
            unused = [value for value in values if value not in used]
            return unused[0] if len(unused) == 1 else None
    return None


def _values_of(text: str, kind: str) -> set[str]:
    for pattern_kind, pattern in _VALUES.items():
        values = {match[match.lastindex or 0] for match in pattern.finditer(text)}
        if pattern_kind == kind:
            return {value for value in values if value.strip()}
        text = pattern.sub(" ", text)
    return set()
