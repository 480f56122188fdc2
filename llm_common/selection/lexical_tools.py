"""Chooses tool calls without a model: the tool by full-text ranking, its arguments from the texts.

Nothing is guessed. A value that could belong to two parameters, two values for one parameter and
words of prose are left to a model.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final

from llm_common._threads import in_thread
from llm_common.core.structured import SelectionStatus
from llm_common.errors import ToolFailedError
from llm_common.ranking.lexical import folded, search_stems, split_identifiers
from llm_common.ranking.question_dates import dates_in
from llm_common.ranking.question_words import (
    NEGATIONS,
    NEUTRAL,
    QuestionWords,
    is_alike,
)
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
_ASSIGNED: Final = re.compile(r"(?<!\S)([^\W\d]\w*)=(?=\S)")
_GAPS: Final = re.compile(r"(?<=\w)[\s_-]+(?=\w)")
_SENTENCE_END: Final = re.compile(r"(?:^|[.!?:]\W*)\Z")
# A word of its format or name says which of these a string parameter takes. Others are quoted.
_KIND_WORDS: Final = {
    "url": {"href", "link", "uri", "url", "website"},
    "path": {"dir", "directory", "file", "filename", "folder", "path"},
    "email": {"email"},
    "date": {"date", "day"},
}


@dataclass(frozen=True, slots=True)
class _Value:
    """A value that a request states.

    Attributes:
        kind: `url`, `email`, `path`, `quoted`, `date`, `number`, or "" for one that only its
            parameter's name can assign, such as `Paris` and `192.168.0.5`.
        text: The value.
        words: Indexes of its words.
    """

    kind: str
    text: str
    words: range


class _Request:
    """A request, with the values that it states.

    Attributes:
        question: Its words.
        values: Its values. Each word is in one of them at most.
        read: Indexes of the words that arguments have.
    """

    def __init__(self, text: str) -> None:
        self.question = QuestionWords(_ASSIGNED.sub(r"\1: ", text))
        self.values: list[_Value] = []
        self.read: set[int] = set()
        taken: set[int] = set()
        for value in self._stated():
            if value.words and taken.isdisjoint(value.words):
                taken.update(value.words)
                self.values.append(value)
        self._spelled: defaultdict[str, list[range]] = defaultdict(list)
        for phrase, ranges in self.question.phrases.items():
            self._spelled[_plain(phrase)] += ranges

    def spelled(self, text: str) -> list[range]:
        """Return where the request has a text, whatever joins its parts: `user_id`, `user id`."""
        return self._spelled.get(_plain(text), [])

    def is_read(self, tool: ToolDefinition, args: Mapping[str, Any]) -> bool:
        """Return whether the arguments have all that the request states."""
        own = set(search_stems(f"{tool.name} {tool.description}"))
        unread = [value for value in self.values if self.read.isdisjoint(value.words)]
        for value in unread:
            stems = [self.question.words[index].stem for index in value.words]
            if value.kind or not all(is_alike(stem, own) for stem in stems):
                return False
        empty = properties_of(tool.parameters, tool.parameters).keys() - args.keys()
        named = {stem for name in empty for stem in search_stems(name)} - own
        for index, word in enumerate(self.question.words):
            if index not in self.read and (word.stem in named or word.text in NEGATIONS):
                return False
        return not self.question.is_cut

    def _stated(self) -> Iterator[_Value]:
        question = self.question
        for name in question.names:
            kind = {"file": "path", "symbol": ""}.get(name.kind, name.kind)
            yield _Value(kind, name.text, question.words_within(name.start, name.end))
        for date in dates_in(question):
            if date.is_year:
                continue  # a number too
            # Other notations than this one are not what a schema means by a date.
            is_day = date.low == date.high and date.low in question.text
            if is_day:
                yield _Value("date", date.low, date.words)
            else:
                yield _Value("", question.text_of(date.words), date.words)
        for number in question.numbers:
            kind = "" if number.unit or number.is_money or number.is_open else "number"
            yield _Value(kind, f"{number.value:.15g}", number.words)
        first = 0
        for index in range(len(question.words)):
            if not self._is_name(index):
                first = index + 1
            elif not self._is_name(index + 1) or question.between(index, index + 1) != " ":
                words = range(first, index + 1)
                yield _Value("", question.text_of(words), words)
                first = index + 1

    def _is_name(self, index: int) -> bool:
        """Return whether a word is a name or code: a capital within a sentence, or a digit."""
        for word in self.question.words[index : index + 1]:
            if any(map(str.isdigit, word.text)) or ":" in self.question.between(index - 1, index):
                return True
            is_first = _SENTENCE_END.search(self.question.text, 0, word.start) is not None
            return self.question.text[word.start].isupper() and len(word.text) > 1 and not is_first
        return False


def _plain(text: str) -> str:
    return _GAPS.sub("", folded(text))


class LexicalToolSelector(ChoosesTools):
    """Chooses tool calls for a task by full-text ranking, and reads arguments from the texts.

    Chooses the best ranked tool for each sub-task. Without sub-tasks, chooses one for the task, or
    for the query. A tool is called if

    - it scores at least .5 in a `ToolIndex`, and no other tool scores within 5% of it;
    - it is marked as read-only (`Tool(read_only=True)`, MCP's `readOnlyHint`), or it is unmarked,
      its name has a verb such as `get` or `search`, and neither its name nor a parameter has one
      such as `send`;
    - each of its required arguments has one possible value ;
    - its arguments have every value that the request states: each name, number, date and quoted
      text. A request with a negation, or with the name of a parameter that has no value, is left
      to a model.

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
            # The part comes first, so that its values win over those of the whole task.
            call = self._call(catalogue, text, [text, *request.whole], context)
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


def filled_call(
    tool: ToolDefinition, texts: Sequence[str], context: Mapping[str, Any] | None, *, reasoning: str
) -> dict[str, Any] | DroppedCall:
    """Return a call of a tool with the arguments that can be filled, or why there is none.

    Args:
        tool: Its schema checks the arguments.
        texts: The texts to search, the most specific first. The first text with a value counts.
            Every value of the first has to be in the call.
        context: Values by parameter name.
        reasoning: Why the tool was chosen.
    """
    requests = [_Request(text) for text in texts]
    args = _Filling(tool.parameters, requests, context or {}).args()
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
    if not requests[0].is_read(tool, args):
        return DroppedCall(tool.name, "unread")
    return {"tool": tool.name, "args": args, "reasoning": reasoning}


class _Filling:
    """The arguments of one call.

    A parameter gets the context's value of its name. Else it gets the value after its name
    (`city=Paris`, `limit 5`), or the only option of its enum that a request names. A required
    parameter without any of these gets its `const` or `default`, or the only value of its kind in
    a request. No two such parameters may have the same kind. Kinds are numbers, quoted texts, and
    URL, email, date and path for parameters with such a format or name.

    Args:
        parameters: The JSON Schema of the arguments.
        requests: The requests to search, the most specific first. The first with a value counts.
        context: Values by parameter name.
    """

    def __init__(
        self, parameters: Schema, requests: Sequence[_Request], context: Mapping[str, Any]
    ) -> None:
        self._parameters = parameters
        self._requests = requests
        self._context = context
        self._schemas: dict[str, Schema] = {}
        for name, schema in properties_of(parameters, parameters).items():
            self._schemas[name] = only_alternative(schema, parameters)

    def args(self) -> dict[str, Any]:
        """Return the arguments that have one possible value."""
        args: dict[str, Any] = {}
        kinds: dict[str, str] = {}
        required = required_of(self._parameters, self._parameters)
        for name, schema in self._schemas.items():
            value = self._context.get(name)
            if value is None:
                value = self._only(partial(self._named, name=name, schema=schema))
            if value is None:
                value = self._only(partial(self._options, name=name, schema=schema))
            if value is None and name in required:
                value = schema.get("const", schema.get("default"))
                kinds[name] = _kind(name, schema)
            if value is not None:
                args[name] = value
        for name in kinds.keys() - args.keys():
            alike = [other for other in kinds.keys() - args.keys() if kinds[other] == kinds[name]]
            value = self._only(partial(self._of_kind, kind=kinds[name]))
            if len(alike) == 1 and value is not None:
                args[name] = value
        # Values from texts are strings: the schema says whether "5" is a number.
        return read_leniently(args, self._parameters)[0]

    def _only(self, find: Callable[[_Request], Mapping[range, object]]) -> object | None:
        """Return the only value that is found in the first request with one."""
        for request in self._requests:
            places = find(request)
            free = [place for place in places if request.read.isdisjoint(place)]
            if len({str(places[place]) for place in free}) == 1:
                request.read.update(*free)
                return places[free[0]]
            # Ambiguous or used already, and a less specific text must not decide instead.
            if places:
                return None
        return None

    def _named(self, request: _Request, *, name: str, schema: Schema) -> dict[range, object]:
        """Return the values that follow the name of a parameter."""
        is_number = schema.get("type") in ("integer", "number")
        places: dict[range, object] = {}
        for words, value in product(request.spelled(name), request.values):
            fits = value.kind == "number" if is_number else schema.get("type") == "string"
            if fits and value.words.start == words.stop and "enum" not in schema:
                places[range(words.start, value.words.stop)] = value.text
        return places

    def _options(self, request: _Request, *, name: str, schema: Schema) -> dict[range, object]:
        """Return the options of a parameter that a request has."""
        options = _options(schema)
        places: dict[range, object] = {}
        # Of the options `new` and `newest first` the longer one is tried first.
        for spelling in sorted(options, key=len, reverse=True):
            for place in request.spelled(spelling):
                if all(set(place).isdisjoint(other) for other in places):
                    places[place] = options[spelling]
        named: dict[range, object] = {}
        for words, place in product(request.spelled(name), places):
            if place.start == words.stop:
                named[range(words.start, place.stop)] = places[place]
        rivals = [_options(rival) for other, rival in self._schemas.items() if other != name]
        # An option of two parameters, and a word such as "all", say nothing without the name.
        if named or not options.keys().isdisjoint(NEUTRAL.union(*rivals)):
            return named
        return places

    def _of_kind(self, request: _Request, *, kind: str) -> dict[range, object]:
        """Return the values of a kind."""
        return {value.words: value.text for value in request.values if kind and value.kind == kind}


def _options(schema: Schema) -> dict[str, object]:
    """Return the texts and numbers of an enum by spelling. Ambiguous spellings are left out."""
    options: dict[str, object] = {}
    enum = schema.get("enum")
    for option in enum if isinstance(enum, list) else ():
        if isinstance(option, str | int | float):
            spelling = _plain(str(option))
            options[spelling] = None if spelling in options else option
    return {spelling: option for spelling, option in options.items() if option is not None}


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
