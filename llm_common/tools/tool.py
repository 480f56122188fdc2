"""`Tool`: a function as an agent calls it, with the schema of its arguments."""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from traceback import format_exception_only
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from llm_common._threads import in_tool_thread
from llm_common.errors import ConfigError, ToolArgumentsError, ToolFailedError
from llm_common.text.canonical import stable_json
from llm_common.tools.definitions import ToolDefinition
from llm_common.tools.validation import Problem, compile_schema, redacted_line

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_ARGS_HEADING = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_ARG_LINE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_WITHOUT_VALUE = frozenset(
    """
    bool_parsing bool_type dict_type enum extra_forbidden float_parsing float_type greater_than
    greater_than_equal int_from_float int_parsing int_type less_than less_than_equal list_type
    literal_error model_type multiple_of none_required string_pattern_mismatch string_too_long
    string_too_short string_type too_long too_short
    """.split()  # noqa: SIM905
)


class ToolResult(BaseModel):
    """Data with its sources, or an expected failure, as a value.

    A registry returns it unchanged, also with `success=False`: the executor decides whether that
    ends a task. Keeps further fields, such as evidence.

    Attributes:
        success: Whether the tool succeeded.
        data: The tool's output.
        source_urls: Sources of the data; become part of the stored pointer.
        error: What went wrong, as text for a model.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    success: bool
    data: Any = None
    source_urls: list[str] = Field(default_factory=list)
    error: str | None = None


class Tool:
    """A function with a name, a description and a JSON Schema of its arguments.

    Without `parameters` the schema comes from the type hints, the description from the docstring's
    first paragraph, those of the parameters from `Annotated[..., Field(description=...)]` or the
    lines under `Args:`; the function then receives typed values: models, enums, dates. With
    `parameters` it receives the raw arguments, checked against that schema. Safe to run
    concurrently if the function is: an async function runs in the event loop, others in a thread.

    Args:
        function: Called with keyword arguments only.
        name: 1 to 64 letters, digits and `_.-`, which every endpoint accepts; the function's name
            by default.
        description: Text for the model; the docstring's first paragraph by default.
        parameters: JSON Schema of the arguments, an object schema. None derives it.
        read_only: Whether a call changes nothing, as MCP's `readOnlyHint` says it; None says
            neither. Selectors without a model call no other tools.

    Attributes:
        definition: What a model is told of the tool. `definition.text` is its canonical JSON.

    Raises:
        ConfigError: A name outside the allow-list, a signature that cannot be passed by name, a
            type without a JSON Schema, or a schema that is broken or has too many alternatives (see
            `compile_schema`).
        TypeError: An argument of the wrong kind.
        UnserialisableError: The schema is not JSON.
    """

    __slots__ = ("_bound", "_function", "definition")

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        read_only: bool | None = None,
    ) -> None:
        for wanted, value, fits, hint in (
            ("function", function, callable(function), "a function, sync or async"),
            ("description", description, isinstance(description, str | None), "a text"),
            (
                "parameters",
                parameters,
                isinstance(parameters, Mapping | None),
                "a JSON Schema as a dict",
            ),
            ("read_only", read_only, isinstance(read_only, bool | None), "True, False or None"),
        ):
            if not fits:
                raise TypeError(f"{wanted} of the tool is a {type(value).__name__}; pass {hint}")
        if name is None:
            name = getattr(function, "__name__", type(function).__name__)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                "a tool's name takes 1 to 64 letters, digits and the characters _ . -; pass "
                "another one as name=",
                variable="name",
                value=str(name)[:80],
            )
        if description is None:
            description = describe(function)
        self._function = function
        self._bound: FunctionSchema | None = None
        if parameters is None:
            self._bound = read_function(function, tool=name)
            parameters = self._bound.parameters
        schema = _object_schema(stable_json(parameters), tool=name)
        self.definition = ToolDefinition(name, description, schema, read_only)

    @property
    def name(self) -> str:
        """The name by which a model calls the tool."""
        return self.definition.name

    @property
    def description(self) -> str:
        """What the tool does, as text for a model."""
        return self.definition.description

    @property
    def parameters(self) -> dict[str, Any]:
        """A copy of the JSON Schema of the arguments."""
        return dict(self.definition.parameters)

    @property
    def read_only(self) -> bool | None:
        """Whether a call changes nothing. None if the tool is not marked."""
        return self.definition.read_only

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    async def run(self, args: Mapping[str, Any]) -> Any:
        """What the function returns for these arguments; called once, never retried.

        Returns a `ToolResult` unchanged, also an unsuccessful one. Cancelling stops an async
        function; one in a thread runs to its end, and its result is dropped.

        Raises:
            ToolArgumentsError: The arguments do not fit; the function was not called. Names fields,
                not values.
            ToolFailedError: The function raised; the original is the cause.
            NoThreadError: No thread can be started for the function; it was not called.
        """
        arguments, problems = self._bind(args)
        if problems:
            listed = "; ".join(map(str, problems))
            raise ToolArgumentsError(
                f"{self.name} was not run: {listed}. Correct these and call again", tool=self.name
            )
        if inspect.iscoroutinefunction(self._function) or inspect.iscoroutinefunction(
            type(self._function).__call__
        ):
            with third_party_code(self.name):
                return await self._function(**arguments)
        result = await in_tool_thread(self._run_here, arguments)
        if inspect.isawaitable(result):
            with third_party_code(self.name):
                return await result
        return result

    def _bind(self, args: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Problem, ...]]:
        given: object = args  # what a model sends may be anything
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            return {}, (Problem("", "type", "the arguments must be one object with names as keys"),)
        if self._bound is None:
            return args, self.definition.find_problems(args)
        with third_party_code(self.name):  # a type's own validators are third-party code too
            return self._bound.bind(args)

    def _run_here(self, arguments: Mapping[str, Any]) -> Any:
        with third_party_code(self.name):  # in the thread: a future cannot hold StopIteration
            return self._function(**arguments)


@contextmanager
def third_party_code(tool: str) -> Iterator[None]:
    """A block whose exceptions are raised as `ToolFailedError`, named by their class.

    Cancellation, `SystemExit` and `KeyboardInterrupt` pass through.

    Args:
        tool: Name of the tool, or of the other code in the block; becomes the error's `.tool`.

    Raises:
        ToolFailedError: The block raised; the original is the cause.
    """
    try:
        yield
    except Exception as exc:
        error = ToolFailedError(
            f"{tool} raised {type(exc).__name__}; see its cause for the details", tool=tool
        )
        error.reason = "".join(format_exception_only(exc)).strip()
        raise error from exc


def _object_schema(text: str, *, tool: str) -> dict[str, Any]:
    """The schema as data, after it compiled and proved to describe an object."""
    schema = json.loads(text)
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise ConfigError(
            f'the parameters of {tool} are no JSON Schema of an object; set its type to "object"',
            variable="parameters",
        )
    compile_schema(text)
    return schema


@dataclass(frozen=True, slots=True)
class FunctionSchema:
    """The arguments of a function.

    Attributes:
        parameters: Their JSON Schema: forbids unknown arguments, shows defaults, leaves out titles.
        model: One field per parameter, `p0`, `p1` and so on, with the parameter's name as alias: a
            parameter's name cannot clash with an attribute of the model.
    """

    parameters: dict[str, Any]
    model: type[BaseModel]

    def bind(self, args: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Problem, ...]]:
        """Typed keyword arguments with defaults, or the problems of `args`.

        Coerces values by pydantic's rules: nested objects to models, strings to enums, numeric
        strings to numbers.
        """
        try:
            bound = self.model.model_validate(dict(args))
        except ValidationError as exc:
            errors = exc.errors(include_url=False, include_context=False, include_input=False)
            return {}, tuple(
                Problem(
                    redacted_line(".".join(map(str, error["loc"]))), error["type"], _expected(error)
                )
                for error in errors
            )
        fields = self.model.model_fields
        return {str(info.alias): getattr(bound, name) for name, info in fields.items()}, ()


def _expected(error: ErrorDetails) -> str:
    """Return what was expected: pydantic's words, or the error's name if they may hold a value."""
    # a validator's own words may hold the value, and so do some of pydantic's
    if error["type"] not in _WITHOUT_VALUE:
        return error["type"].replace("_", " ")
    return redacted_line(error["msg"].replace("Input should", "must"))


class _ToolJsonSchema(GenerateJsonSchema):
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as the base declares it

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        """No: a title repeats the name and costs tokens."""
        return False


def read_function(function: Callable[..., Any], *, tool: str) -> FunctionSchema:
    """The arguments of the function, from its type hints, defaults and docstring.

    The description of a parameter is `Annotated[..., Field(description=...)]`, else its line under
    `Args:`.

    Raises:
        ConfigError: A parameter cannot be named in JSON (`*args`, `**kwargs`, positional-only), or
            a type hint cannot be resolved or has no JSON Schema.
    """
    try:
        signature = inspect.signature(function, eval_str=True)
    except (NameError, TypeError, ValueError, SyntaxError, AttributeError) as exc:
        raise _unusable(tool, "its type hints cannot be read") from exc
    described = _described_args(_doc(function))
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(signature.parameters.values()):
        if parameter.kind not in _NAMED:
            raise _unusable(tool, f"`{parameter}` cannot be passed by name")
        fields[f"p{number}"] = _field(parameter, described.get(parameter.name))
    try:
        model = create_model(
            "Arguments",
            __config__=ConfigDict(extra="forbid", hide_input_in_errors=True),
            **fields,
        )
        parameters = model.model_json_schema(schema_generator=_ToolJsonSchema)
    except (PydanticUserError, NameError) as exc:
        raise _unusable(tool, "a type hint has no JSON Schema") from exc
    parameters.pop("title", None)
    parameters.setdefault("properties", {})
    return FunctionSchema(parameters, model)


def describe(function: Callable[..., Any]) -> str:
    """The first paragraph of the function's docstring on one line; "" without one."""
    return " ".join(_doc(function).split("\n\n", maxsplit=1)[0].split())


def _doc(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):  # its own docstring describes partial
        function = function.func
    return inspect.getdoc(function) or ""


def _field(parameter: inspect.Parameter, described: str | None) -> tuple[Any, Any]:
    annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
    default = ... if parameter.default is parameter.empty else parameter.default
    own = default.description if isinstance(default, FieldInfo) else None
    own = own or FieldInfo.from_annotation(annotation).description
    extra = Field(alias=parameter.name, description=own or described)
    return Annotated[annotation, extra], default


def _described_args(doc: str) -> dict[str, str]:
    """Parameter name to description, from the `Args:` section of a Google-style docstring."""
    lines = doc.splitlines()
    start = next(
        (index for index, line in enumerate(lines) if _ARGS_HEADING.match(line)), len(lines)
    )
    found: dict[str, str] = {}
    name, indent = "", 0
    for line in lines[start + 1 :]:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break
        match = _ARG_LINE.match(line.strip())
        if match and (not name or depth <= indent):
            name, indent = match[1], depth
            found[name] = match[2]
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _unusable(tool: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{tool} cannot become a tool: {problem}; annotate named parameters, or pass "
        "parameters= as a JSON Schema",
        variable="parameters",
    )
