"""Chooses tool calls without a model: the tool by full-text ranking, its arguments from the texts.

Nothing is guessed. A value that could belong to two parameters, two values for one parameter and
words of prose are left to a model.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, islice, product
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

# Tuned by benchmarks/quality_tools.py on bfcl_select and metatool_select, whose requests may fit no
# tool.
_MIN_SCORE: Final = 0.5
_TIE: Final = 0.05  # share of the score: which of two closer tools is right is chance
# The last alternative is not tried within blanks, since each try would read the remaining blanks.
# Only the blanks after a line end are left to it by the others.
_CLAUSE_SEAM: Final = re.compile(
    r"(?<=[.!?;])\s+|\n+|,\s+|,?(?<![^\S\n])\s++(?:and|then)\s+", re.IGNORECASE
)
_MAX_CLAUSES: Final = 8
_MAX_SEARCHED_CHARS: Final = 10_000  # longer texts are documents, not requests
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
    # `1,000` and `1.2.3` have more than one reading, so they are not read as numbers.
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
_UNDERSCORE: Final = re.compile(r"(?<=[^\W_])_(?=[^\W_])")  # within a spelling


class LexicalToolSelector(ChoosesTools):
    """Chooses tool calls for a task by full-text ranking, and reads arguments from the texts.

    Chooses the best ranked tool for each sub-task. Without sub-tasks, chooses one for each request
    in the task, then for the query. A clause of the task is a separate request if it fills the
    arguments of its best tool. A tool is called if

    - it scores at least .5 in a `ToolIndex`, and no other tool scores within 5% of it;
    - it is marked as read-only (`Tool(read_only=True)`, MCP's `readOnlyHint`), or it is unmarked,
      its name has a verb such as `get` or `search`, and neither its name nor a parameter has one
      such as `send`;
    - each of its required arguments has one possible value (see `fill_arguments`).

    Deterministic. Fails closed like `ToolSelector`.

    Args:
        config: Settings, of which only `max_calls` and the deadline are used. None reads the
            environment once, here.
        allow_writes: Also calls tools that may change something.

    Raises:
        ConfigError: If an environment variable cannot be used.
        TypeError: If `config` is not a `ToolSelectionConfig`.
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
        """Return the calls of the best ranked tools. See `ChoosesTools.choose`."""
        if not catalogue.definitions:
            raise ToolFailedError(
                "the text of the tool registry cannot be read as tools; pass a ToolRegistry",
                tool="the tool registry",
            )
        async with asyncio.timeout_at(ends_at):
            selection = await in_thread(self._select_calls, catalogue, request)
        return selection, catalogue.names

    def _select_calls(self, catalogue: Catalogue, request: ToolRequest) -> ToolSelection:
        proposed: list[dict[str, Any]] = []
        dropped: list[DroppedCall] = []
        context = request.context or {}
        for text in request.sub_tasks or request.whole:
            if proposed and not request.sub_tasks:
                break  # the query is only another wording of the task
            requests = [text] if request.sub_tasks else self._requests(catalogue, text)
            for part in requests:
                # The part comes first, so that its values win over those of the whole task.
                call = self._call(catalogue, part, [part, *request.whole], context)
                if isinstance(call, DroppedCall):
                    dropped.append(call)
                elif call is not None:
                    proposed.append(call)
        # The calls are valid: this drops repeats, and calls beyond the limit.
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
        """Split a text into requests: a clause that fills a call, and the clauses after it."""
        spans: list[tuple[int, int]] = []
        calls = 0
        for start, end in _clauses(text):
            clause = text[start:end]
            # Without the context, whose values would fill the call of every clause.
            fills_call = isinstance(self._call(catalogue, clause, [clause], {}), dict)
            calls += fills_call
            if spans and not (fills_call and calls > 1):
                start, _ = spans.pop()  # noqa: PLW2901 - the clause continues the last request
            spans.append((start, end))
        return [text[start:end] for start, end in spans]

    def _call(
        self, catalogue: Catalogue, request: str, texts: list[str], context: Mapping[str, Any]
    ) -> dict[str, Any] | DroppedCall | None:
        """Return the call of the best tool, or why it is dropped, or None if no tool fits."""
        ranked = tool_index(catalogue).rank(request, 2)
        if not ranked or ranked[0].score < _MIN_SCORE:
            return None
        tool = catalogue.definitions_by_name[ranked[0].name]
        if len(ranked) > 1 and ranked[1].score >= ranked[0].score * (1 - _TIE):
            return DroppedCall(tool.name, "tie")
        read_only = tool.read_only
        if read_only is None:
            read_only = only_reads(tool.name, tool.parameters)
        if not self._allow_writes and not read_only:
            return DroppedCall(tool.name, "writes")
        return filled_call(tool, texts, context, reasoning=ranked[0].why)


def _clauses(text: str) -> list[tuple[int, int]]:
    """Return start and end of each clause of a text."""
    seams = [*islice(_CLAUSE_SEAM.finditer(text), _MAX_CLAUSES)]
    if len(seams) >= _MAX_CLAUSES:
        return [(0, len(text))]  # prose, not a list of requests
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

    A parameter gets the context's value of its name. Else it gets the value after its name
    (`city=Paris`, `limit 5`), or the only option of its enum that a text names. A required
    parameter without any of these gets its `const` or `default`, or the only value of its kind in
    a text. No two such parameters may have the same kind. Kinds are numbers, quoted texts, and
    URL, email, date and path for parameters with such a format or name.

    Args:
        parameters: The JSON Schema of the arguments.
        texts: The texts to search, the most specific first. The first text with a value counts.
        context: Values by parameter name.
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
    # A value that is in the call already hardly belongs to a second parameter.
    used = set(map(str, args.values()))
    for name, kind in kinds.items():
        if list(kinds.values()).count(kind) == 1:
            value = _only_value(kind, texts, used)
            if value is not None:
                args[name] = value
    # Values from texts are strings: the schema says whether "5" is a number.
    return read_leniently(args, parameters)[0]


def _named_value(name: str, schemas: Mapping[str, Schema], texts: Sequence[str]) -> object | None:
    """Return the value after a parameter's name, or the only option of its enum in a text."""
    # `user_id` also matches `user id` and `userid`.
    spaced_name = r"[\s_-]?".join(map(re.escape, name.split("_")))
    options = _options(schemas[name])
    kind = schemas[name].get("type", "string")
    if options:
        # Of the options `new` and `newest first` the longer one is tried first.
        spellings = sorted(map(re.escape, options), key=len, reverse=True)
        # Not at the ends of an option such as `__typename`, where no word precedes the blanks.
        spaced = _UNDERSCORE.sub(r"[\\s_-]+", "|".join(spellings))
        option = rf"({spaced})(?!\w)"
        patterns = [rf"\b{spaced_name}(?:\s*[=:]\s*|\s+){option}"]
        # An option that another parameter has too is used only after the parameter's name.
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
        values = _matches(re.compile(pattern, re.IGNORECASE), text)
        if options:
            values = set(map(_spelling, values))
        if len(values) > 1:
            return None
        if values:
            value = values.pop()
            return options.get(value, value)
    return None


def _options(schema: Schema) -> dict[str, object]:
    """Return the texts and numbers of an enum by spelling. Ambiguous spellings are left out."""
    enum = schema.get("enum")
    if not isinstance(enum, list):
        return {}
    texts = [option for option in enum if isinstance(option, str | int | float)]
    counts = Counter(map(_spelling, map(str, texts)))
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


def _only_value(kind: str, texts: Sequence[str], used: set[str]) -> str | None:
    """Return the only unused value of a kind in the first text that has one."""
    for text in texts:
        remaining = text
        for other_kind, pattern in _VALUES.items():
            if other_kind == kind:
                values = _matches(pattern, remaining)
                unused = values - used
                if len(unused) == 1:
                    return unused.pop()
                # Ambiguous or used already, and a less specific text must not decide instead.
                if values:
                    return None
            remaining = pattern.sub(" ", remaining)
    return None


def _matches(pattern: re.Pattern[str], text: str) -> set[str]:
    """Return the group of each match that is not blank, or the whole match without groups."""
    # Only one of the alternative groups matches, and `lastindex` is its number.
    values = {match[match.lastindex or 0] for match in pattern.finditer(text)}
    return set(filter(str.strip, values))
