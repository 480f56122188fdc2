"""`ToolDefinition`: a tool as a model sees it, wherever it came from.

Also reads definitions from every usual JSON spelling, lists their problems, and guesses from the
verbs in its names whether an unmarked tool only reads.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from llm_common._threads import computed_once
from llm_common.core.tokens import TokenCounter, UpperBoundCounter
from llm_common.errors import ConfigError, UnserialisableError
from llm_common.ranking.lexical import identifier_words
from llm_common.text.canonical import json_text, stable_json
from llm_common.tools.signature import properties_of, signature
from llm_common.tools.validation import Problem, compile_schema, find_problems

MAX_DEFINITION_TOKENS = 2_000
"""Tokens above which `check_definitions` warns, since every model call pays for a definition."""

# What OpenAI's API accepts as a function's name. MCP allows dots too, which OpenAI rejects.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema")


@dataclass(frozen=True)
class ToolDefinition:
    """A tool as a model sees it: its name, its description and its parameters.

    Attributes:
        name: The tool's name.
        description: What the tool does, for the model.
        parameters: JSON Schema of the arguments. Must not be changed.
        read_only: Whether a call changes nothing, as `Tool(read_only=...)` or MCP's `readOnlyHint`
            marks it. None if the tool is not marked.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    read_only: bool | None = None

    @computed_once
    def signature(self) -> str:
        """Return the tool on one line. See `signature`."""
        return signature(self.name, self.description, self.parameters)

    @computed_once
    def signature_tokens(self) -> int:
        """Return an upper bound of the signature's tokens, with its line break."""
        return UpperBoundCounter().count(f"{self.signature}\n")

    @computed_once
    def text(self) -> str:
        """Return the tool as canonical JSON, with MCP's `readOnlyHint` if it is marked.

        Raises:
            UnserialisableError: If the parameters cannot be written as JSON.
        """
        entry: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        if self.read_only is not None:
            entry["annotations"] = {"readOnlyHint": self.read_only}
        return _canonical(entry)

    @computed_once
    def text_tokens(self) -> int:
        """Return an upper bound of the JSON's tokens, with its line break."""
        return UpperBoundCounter().count(f"{self.text}\n")

    def find_problems(self, args: Mapping[str, Any]) -> tuple[Problem, ...]:
        """Return the rules of the schema that the arguments violate.

        A schema that cannot be compiled accepts all arguments.
        """
        try:
            return find_problems(self._schema_text, args)
        except (ConfigError, UnserialisableError):
            return ()  # the mistake is the tool author's, and the tool must stay usable

    @computed_once
    def _schema_text(self) -> str:
        return _canonical(self.parameters)


def _canonical(value: Any) -> str:
    # Schemas are nearly always plain JSON, and writing it directly is three times as fast.
    try:
        return json_text(value, sort_keys=True)
    except (TypeError, UnserialisableError):
        return stable_json(value)


def read_definition(entry: object, *, unnamed: str = "") -> ToolDefinition | None:
    """Read a definition in any of the usual spellings.

    Understands the shapes of MCP (`inputSchema`, `annotations`), of Anthropic (`input_schema`), of
    chat completions (`{"type": "function", "function": {...}}`) and of OpenAI's responses
    (`parameters` next to the name).

    Args:
        entry: The definition as JSON data.
        unnamed: Name for an entry without one.

    Returns:
        The definition. None if the entry is not an object, or has no name and `unnamed` is empty.
    """
    if not isinstance(entry, Mapping):
        return None
    function = entry.get("function", entry)
    if not isinstance(function, Mapping):
        return None
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not name.strip():
        name = unnamed
    if not name:
        return None
    if not isinstance(description, str):
        description = ""
    parameters: Mapping[str, Any] = {}
    for key in _SCHEMA_KEYS:
        if isinstance(function.get(key), Mapping):
            parameters = function[key]
            break
    annotations = function.get("annotations", entry.get("annotations"))
    read_only = annotations.get("readOnlyHint") if isinstance(annotations, Mapping) else None
    if not isinstance(read_only, bool):
        read_only = None
    return ToolDefinition(name, description, parameters, read_only)


def read_definitions(document: object) -> tuple[ToolDefinition, ...]:
    """Read the tools of a JSON document, in its order.

    Args:
        document: A list of definitions as `read_definition` understands them, an object with such a
            list under `tools`, or the answer of an MCP server to `tools/list`.

    Returns:
        The tools. A tool without a name is called by its position, such as `#3`.

    Raises:
        ConfigError: If the document is none of these.
    """
    if isinstance(document, Mapping):
        inner = document.get("result", document)
        document = inner.get("tools") if isinstance(inner, Mapping) else None
    if not isinstance(document, Sequence) or isinstance(document, str | bytes):
        hint = ", as json.loads makes it of a text" if isinstance(document, str | bytes) else ""
        raise ConfigError(
            "the document has no list of tools; pass a list of definitions, or an object with one "
            f'under "tools"{hint}',
            variable="tools",
        )
    definitions: list[ToolDefinition] = []
    for number, entry in enumerate(document, start=1):
        definition = read_definition(entry, unnamed=f"#{number}")
        if definition is None:
            raise ConfigError(
                f"tool {number} is not a definition; make it an object with a name",
                variable="tools",
            )
        definitions.append(definition)
    return tuple(definitions)


Severity = Literal["error", "warning"]


class DefinitionProblem(BaseModel):
    """A problem of a tool's definition.

    Attributes:
        tool: The tool's name.
        severity: `error` if the tool cannot be used, `warning` if models choose it less well.
        message: The problem, and how to fix it.
    """

    model_config = ConfigDict(frozen=True)

    tool: str
    severity: Severity
    message: str


def check_definitions(
    tools: Sequence[ToolDefinition], *, counter: TokenCounter
) -> list[DefinitionProblem]:
    """Return the problems of the tools, errors first, then in the order of the tools.

    An error is a name that endpoints refuse or that another tool has, or an unusable schema. A
    schema is unusable if it does not describe an object, refers to something outside itself, or
    takes too long to check. A warning is a missing description, of the tool or of a parameter, or
    a definition of more than `MAX_DEFINITION_TOKENS`.
    """
    names = Counter(tool.name for tool in tools)
    problems: list[DefinitionProblem] = []
    for tool in tools:
        for severity, message in _problems(tool, names[tool.name], counter):
            problems.append(DefinitionProblem(tool=tool.name, severity=severity, message=message))
    # Namesakes have equal problems, which count once. `error` sorts before `warning`.
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.severity)


def _problems(
    tool: ToolDefinition, namesakes: int, counter: TokenCounter
) -> Iterable[tuple[Severity, str]]:
    """Yield the severity and the message of each problem."""
    if not _NAME.fullmatch(tool.name):
        yield "error", "endpoints refuse the name; use 1 to 64 letters, digits, _ and -"
    if namesakes > 1:
        yield "error", f"{namesakes} tools have this name; rename all but one"
    if tool.parameters.get("type", "object") != "object":
        yield "error", 'the schema does not describe an object; set its type to "object"'
    try:
        compile_schema(stable_json(tool.parameters))
    except (ConfigError, UnserialisableError) as exc:
        # The checks below would read a schema that may be broken or hostile.
        yield "error", exc.message
        return
    if not tool.description.strip():
        yield "warning", "the description is empty; models and searches choose by it, so add one"
    parameters = properties_of(tool.parameters, tool.parameters)
    undescribed = [name for name, schema in parameters.items() if not schema.get("description")]
    if undescribed:
        yield (
            "warning",
            (
                f"{len(undescribed)} of {len(parameters)} parameters have no description: "
                f"{', '.join(undescribed[:5])}"
            ),
        )
    tokens = counter.count(tool.text)
    if tokens > MAX_DEFINITION_TOKENS:
        yield "warning", f"the definition takes {tokens:,} tokens in every call; shorten it"


# These verbs decide whether an unmarked tool only reads. Words prove nothing, so in doubt the
# answer is no.
# ruff: noqa: SIM905 - a list would have a line for each word
_READING: Final = frozenset(
    """
    analyze browse calculate check compare compute convert count describe diff estimate explain
    fetch find forecast get grep inspect list look lookup measure predict query read retrieve
    search show stat status summarize translate validate verify view
    """.split()
)
_WRITING: Final = frozenset(
    """
    accept activate add adjust alter append apply approve archive assign attach block book buy
    cancel charge clear clone close commit confirm copy create deactivate decline decrement delete
    deploy deposit destroy detach disable disconnect donate drop edit enable erase exec execute
    flush follow format grant increment insert install invite invoke join kill launch lock login
    logout mark merge migrate modify move notify order overwrite patch pause pay post provision
    publish purge push put reboot redeem refund register reject remove rename replace reply
    reserve reset respond restart restore resume revert revoke rotate run save sell send set share
    shutdown sign spend start stop submit subscribe swap sync terminate toggle transfer trigger
    truncate unassign unblock undo unfollow uninstall unlink unlock unsubscribe update upload
    upsert wipe withdraw write
    """.split()
)
# Verbs at the beginning of a name and in the name of a flag, nouns elsewhere: `order_pizza`, but
# `get_order` and `start_date`.
_NOUNS: Final = frozenset(
    """
    accept archive block book charge copy deposit drop follow format join launch lock login mark
    order patch post run set share sign start stop swap transfer trigger
    """.split()
)
_READS_LAST: Final = "log"  # `git_log` reads, and `log_event` writes
# `get_or_make`, `fetch_and_store`, `check_in`: the second word may be any verb.
_TWO_VERBS: Final = re.compile(r"\b(?:and|or|then)\b|\bcheck (?:in|out)\b")


def has_writing_verb(name: str) -> bool:
    """Return whether a tool's name contains a verb such as `send`."""
    words = _words(name)
    first = words[:2]  # `identifier_words` returns a compound before its parts
    return not (_WRITING - _NOUNS).isdisjoint(words) or not _NOUNS.isdisjoint(first)


def only_reads(name: str, parameters: Mapping[str, Any]) -> bool:
    """Return whether a tool's name and parameters suggest that it only reads.

    The name has a verb such as `get`, none such as `send`, and joins no two verbs. No parameter
    makes the tool write, as a flag `overwrite` or a path `save_to` would.

    Args:
        name: In any form, such as `getFile` or `get_file`.
        parameters: JSON Schema of the arguments.
    """
    words = _words(name)
    reads = not _READING.isdisjoint(words) or words[-1:] == [_READS_LAST]
    if not reads or has_writing_verb(name) or _TWO_VERBS.search(" ".join(words)):
        return False
    for parameter, schema in properties_of(parameters, parameters).items():
        verbs = _WRITING - _NOUNS
        if schema.get("type") == "boolean":
            verbs = _WRITING
        if not verbs.isdisjoint(_words(parameter)):
            return False
    return True


def _words(name: str) -> list[str]:
    return [word.lower() for word in identifier_words(name)]
