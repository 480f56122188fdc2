"""`read_definitions`: tools as files describe them, and what is wrong with them; nothing is run."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from llm_common.core.tokens import TokenCounter
from llm_common.errors import ConfigError, UnserialisableError
from llm_common.text.canonical import stable_json
from llm_common.tools.signature import properties_of, signature
from llm_common.tools.validation import compile_schema

MAX_DEFINITION_TOKENS = 2_000
"""Over so many tokens a definition is worth a second look: each call of a model pays for it."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCHEMA_KEYS = ("inputSchema", "input_schema", "parameters")
_EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}}


class ToolDefinition(BaseModel):
    """A tool as a file describes it; what it says may be wrong.

    Attributes:
        name: Its name; `#3` for the third of a file that has none.
        description: What it does.
        parameters: JSON Schema of its arguments.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    description: str = ""
    parameters: dict[str, Any]

    @cached_property
    def text(self) -> str:
        """The definition as a model is sent it: compact JSON."""
        return stable_json(self.model_dump())

    @property
    def signature(self) -> str:
        """The tool on one line; see `signature`."""
        return signature(self.name, self.description, self.parameters)


class DefinitionProblem(BaseModel):
    """Something wrong with a tool's definition.

    Attributes:
        tool: Its name.
        severity: An `error` keeps it from being used; a `warning` makes it worse.
        message: What is wrong, and the way out.
    """

    model_config = ConfigDict(frozen=True)

    tool: str
    severity: Literal["error", "warning"]
    message: str


def read_definitions(document: object) -> tuple[ToolDefinition, ...]:
    """The tools of a JSON document that was read, in its order.

    Takes a list of definitions, an object with such a list under `tools`, and the answer of an MCP
    server to `tools/list`. A definition has the shape of MCP (`inputSchema`), of the chat
    completions API (`{"type": "function", "function": {…}}`), or `parameters` beside its name.

    Raises:
        ConfigError: The document is none of these.
    """
    if isinstance(document, Mapping):
        inner = document.get("result", document)
        document = inner.get("tools") if isinstance(inner, Mapping) else None
    if not isinstance(document, Sequence) or isinstance(document, str | bytes):
        hint = ", as json.loads makes it of a text" if isinstance(document, str | bytes) else ""
        raise ConfigError(
            f'there is no list of tools; pass a list of definitions, or an object with one under "tools"{hint}',
            variable="tools",
        )
    return tuple(_definition(entry, number) for number, entry in enumerate(document, start=1))


def _definition(entry: object, number: int) -> ToolDefinition:
    function = entry.get("function", entry) if isinstance(entry, Mapping) else None
    if not isinstance(function, Mapping):
        raise ConfigError(
            f"entry {number} of the tools is no definition; make it an object with a name",
            variable="tools",
        )
    schema = next(
        (function[key] for key in _SCHEMA_KEYS if isinstance(function.get(key), Mapping)), _EMPTY
    )
    name, description = function.get("name"), function.get("description")
    return ToolDefinition(
        name=name if isinstance(name, str) and name else f"#{number}",
        description=description if isinstance(description, str) else "",
        parameters=dict(schema),
    )


def check_definitions(
    tools: Sequence[ToolDefinition], *, counter: TokenCounter
) -> list[DefinitionProblem]:
    """What is wrong with the tools, errors first, then in their order.

    Errors: a name that endpoints refuse or that another tool has, and a schema that is none of an
    object, refers to
    something outside itself, or takes too long to check. Warnings: no description, parameters
    without one, and a definition of over `MAX_DEFINITION_TOKENS`.
    """
    names = Counter(tool.name for tool in tools)
    found = [problem for tool in tools for problem in _problems(tool, names[tool.name], counter)]
    return sorted(dict.fromkeys(found), key=lambda problem: problem.severity)


def _problems(
    tool: ToolDefinition, namesakes: int, counter: TokenCounter
) -> Iterable[DefinitionProblem]:
    def error(message: str) -> DefinitionProblem:
        return DefinitionProblem(tool=tool.name, severity="error", message=message)

    def warning(message: str) -> DefinitionProblem:
        return DefinitionProblem(tool=tool.name, severity="warning", message=message)

    if not _NAME.fullmatch(tool.name):
        yield error("endpoints refuse the name; use 1 to 64 letters, digits, _ and -")
    if namesakes > 1:
        yield error(f"{namesakes} tools have this name; rename all but one")
    if tool.parameters.get("type", "object") != "object":
        yield error('the schema is none of an object; set its type to "object"')
    try:
        compile_schema(stable_json(tool.parameters))
    except (ConfigError, UnserialisableError) as exc:
        yield error(exc.message)
        return
    if not tool.description.strip():
        yield warning(
            "there is no description, by which models and searches choose; say what it does"
        )
    parameters = properties_of(tool.parameters, tool.parameters)
    bare = [name for name, schema in parameters.items() if not schema.get("description")]
    if bare:
        yield warning(
            f"{len(bare)} of {len(parameters)} parameters have no description: {', '.join(bare[:5])}"
        )
    tokens = counter.count(tool.text)
    if tokens > MAX_DEFINITION_TOKENS:
        yield warning(f"the definition takes {tokens:,} tokens in every call; shorten it")
