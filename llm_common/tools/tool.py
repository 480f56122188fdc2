"""`Tool`: a function as an agent calls it, with the schema of its arguments.

Also says why a call failed, for a model and a log: the class and the text of the exception. Two
replacements keep other people's data out. The redactor removes secrets. A text of the call's
arguments, which may be the user's, becomes the argument's name in brackets.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from traceback import format_exception_only
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from llm_common._threads import in_tool_task, in_tool_thread
from llm_common.errors import ConfigError, ToolArgumentsError, ToolError, ToolFailedError
from llm_common.redaction.redactor import DEFAULT_REDACTOR, Redactor
from llm_common.text.canonical import stable_json
from llm_common.text.display import one_line
from llm_common.tools.definitions import ToolDefinition
from llm_common.tools.validation import Problem, compile_schema, redacted_line

MAX_REASON_CHARS: Final = 400
_MAX_NAME_CHARS: Final = 64
_MIN_ARGUMENT_CHARS: Final = 8  # shorter arguments are words such as `read`, which a message needs
_MAX_ARGUMENT_DEPTH: Final = 8
_MAX_HEAD_CHARS: Final = 64  # of an argument's text, by which it is looked up
_MAX_READ_CHARS: Final = 1_000  # more than `Redactor.beginning` reads for a reason


def describe_failure(
    tool: str, args: Mapping[str, Any], error: BaseException, redactor: Redactor
) -> str:
    """Return why a call raised: the tool, the class of the error and its text.

    Args:
        tool: The tool's name.
        args: The arguments of the call.
        error: The exception, also within the `ToolFailedError` of a registry, of
            `third_party_code`, or of both.
        redactor: Removes secrets.
    """
    name = shown_name(tool, redactor)
    if isinstance(error, ToolFailedError) and isinstance(error.__cause__, ToolError):
        error = error.__cause__  # the registry's error has the tool's own text
    if isinstance(error, ToolFailedError) and error.reason:
        return f"{name} raised {failure_reason(error.reason, args, redactor)}"
    if isinstance(error, ToolError):
        text = failure_reason(error.message, args, redactor)
        # The registry's own errors have the name already.
        return text if name in text else f"{name}: {text}"
    text = "".join(format_exception_only(error))
    return f"{name} raised {failure_reason(text, args, redactor)}"


def failure_reason(text: str, args: Mapping[str, Any], redactor: Redactor) -> str:
    """Return the text of an error in one line, without secrets and texts of the arguments."""
    beginning = redactor.beginning(_without_arguments(text, args), max_chars=MAX_REASON_CHARS)
    return one_line(beginning, max_chars=MAX_REASON_CHARS)


def shown_name(tool: str, redactor: Redactor) -> str:
    """Return the name of a tool in one line. A model may have made it up."""
    return one_line(redactor.text(tool), max_chars=_MAX_NAME_CHARS)


def _without_arguments(text: str, args: Mapping[str, Any]) -> str:
    """Return the beginning of a text, with the names of arguments in place of their texts.

    Reads each place once, so that neither many arguments nor a name that contains such a text can
    make it long or slow.
    """
    names: dict[str, str] = {}
    for name, value in args.items():
        for argument in _texts(value):
            names.setdefault(argument, f"[{name[:_MAX_NAME_CHARS]}]")
    by_head: dict[str, list[str]] = {}
    # Longest first, since a text may contain a shorter one.
    for argument in sorted(names, key=len, reverse=True):
        by_head.setdefault(argument[:_MAX_HEAD_CHARS], []).append(argument)
    head_sizes = sorted({len(head) for head in by_head}, reverse=True)

    def argument_at(place: int) -> str:
        for size in head_sizes:
            for argument in by_head.get(text[place : place + size], ()):
                if text.startswith(argument, place):
                    return argument
        return ""

    pieces: list[str] = []
    place = chars = 0
    while place < len(text) and chars < _MAX_READ_CHARS:
        argument = argument_at(place)
        piece = names[argument] if argument else text[place]
        pieces.append(piece)
        chars += len(piece)
        place += len(argument) or 1
    return "".join(pieces)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts of an argument that are long enough to be the user's."""
    if isinstance(value, str):
        if len(value) >= _MIN_ARGUMENT_CHARS:
            yield value
    elif isinstance(value, Mapping | list) and depth < _MAX_ARGUMENT_DEPTH:
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part, depth + 1)


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_ARGS_HEADING = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_ARG_LINE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
# The errors whose message pydantic writes without the value, so that it can be shown and logged.
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

    A registry returns it unchanged, also with `success=False`. The executor decides whether a
    failure ends a task. Further fields, such as evidence, are kept.

    Attributes:
        success: Whether the tool succeeded.
        data: The tool's output.
        source_urls: Sources of the data. They become part of the stored pointer.
        error: The reason of a failure, as text for a model.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    success: bool
    data: Any = None
    source_urls: list[str] = Field(default_factory=list)
    error: str | None = None


class Tool:
    """A function with a name, a description and a JSON Schema of its arguments.

    Without `parameters` the schema comes from the type hints, and the description from the
    docstring's first paragraph. The description of a parameter comes from `Annotated[...,
    Field(description=...)]` or the lines under `Args:`. The function then receives typed values:
    models, enums, dates. With `parameters` it receives the raw arguments, checked against that
    schema.

    An async function runs in the event loop, any other in a thread. Calls may run concurrently if
    the function allows it.

    Args:
        function: Called with keyword arguments only.
        name: 1 to 64 letters, digits, `_`, `.` and `-`. The default is the function's name.
        description: Text for the model. The default is the docstring's first paragraph.
        parameters: JSON Schema of the arguments, which describes an object. None derives it.
        read_only: Whether a call changes nothing, as in MCP's `readOnlyHint`. None leaves it open.
            Selectors without a model call only tools that are marked read-only.

    Attributes:
        definition: The tool as a model sees it. `definition.text` is its canonical JSON.

    Raises:
        ConfigError: If the name is not allowed, a parameter cannot be passed by name, a type has no
            JSON Schema, or the schema is broken or has too many alternatives (see
            `compile_schema`).
        TypeError: If an argument has the wrong type.
        UnserialisableError: If the schema is not JSON.
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
        for argument, value, fits, hint in (
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
                raise TypeError(f"{argument} of the tool is a {type(value).__name__}; pass {hint}")
        if name is None:
            name = getattr(function, "__name__", type(function).__name__)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"{str(name)[:80]!r} cannot be the name of a tool, which has 1 to 64 letters, "
                "digits and the characters _ . -; pass Tool(function, name=...)",
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
        # Read back from JSON, so that the caller cannot change the schema later.
        schema = _object_schema(stable_json(parameters), tool=name)
        self.definition = ToolDefinition(name, description, schema, read_only)

    @property
    def name(self) -> str:
        """Return the name by which a model calls the tool."""
        return self.definition.name

    @property
    def description(self) -> str:
        """Return the description that a model reads."""
        return self.definition.description

    @property
    def parameters(self) -> dict[str, Any]:
        """Return a copy of the JSON Schema of the arguments."""
        return dict(self.definition.parameters)

    @property
    def read_only(self) -> bool | None:
        """Return whether a call changes nothing, or None if the tool is not marked."""
        return self.definition.read_only

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    async def run(self, args: Mapping[str, Any]) -> Any:
        """Call the function once, without retries, and return its result.

        A `ToolResult` is returned unchanged, also an unsuccessful one. Cancelling stops an async
        function, and waits at most a second for it to end. A function in a thread, or an async one
        that ignores its cancellation, runs on, and its result is dropped.

        Raises:
            ToolArgumentsError: If the arguments do not fit. The function was not called. The text
                names fields, not values.
            ToolFailedError: If the function raised. Its exception is the cause, and the message has
                its class and text, without secrets and without the texts of the arguments.
            NoThreadError: If no thread can be started. The function was not called.
        """
        arguments = self._bind(args)
        # An object with an async `__call__` is not a coroutine function itself.
        if inspect.iscoroutinefunction(self._function) or inspect.iscoroutinefunction(
            type(self._function).__call__
        ):
            with third_party_code(self.name, args):
                return await in_tool_task(self._function(**arguments))
        result = await in_tool_thread(self._run_here, arguments, args)
        # A plain function, such as a lambda, may return the coroutine of an async one.
        if inspect.isawaitable(result):
            with third_party_code(self.name, args):
                return await in_tool_task(result)
        return result

    def _bind(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments for the function, or raise ToolArgumentsError."""
        arguments = args
        problems: tuple[Problem, ...]
        untyped: object = args  # a model may send anything
        if not isinstance(untyped, Mapping) or not all(isinstance(key, str) for key in untyped):
            problems = (Problem("", "type", "the arguments must be one object with names as keys"),)
        elif self._bound is None:
            problems = self.definition.find_problems(args)
        else:
            with third_party_code(self.name):  # a type's own validators are third-party code too
                arguments, problems = self._bound.bind(args)
        if problems:
            listed = "; ".join(map(str, problems))
            raise ToolArgumentsError(
                f"{self.name} was not run: {listed}. Correct these and call again", tool=self.name
            )
        return arguments

    def _run_here(self, arguments: Mapping[str, Any], args: Mapping[str, Any]) -> Any:
        with third_party_code(self.name, args):  # in the thread: a future cannot hold StopIteration
            return self._function(**arguments)


@contextmanager
def third_party_code(tool: str, args: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Raise the exceptions of a block as `ToolFailedError`, which names their class.

    Cancellation, `SystemExit` and `KeyboardInterrupt` pass through.

    Args:
        tool: Name of the tool, or of other code in the block. It becomes the error's `.tool`.
        args: The arguments of the call. With them, the message has the text of the exception
            without secrets and without these arguments.

    Raises:
        ToolFailedError: If the block raised. The exception is the cause.
    """
    try:
        yield
    except Exception as exc:
        message = f"{tool} raised {type(exc).__name__}; see its cause for the details"
        if args is not None:
            reason = describe_failure(tool, args, exc, DEFAULT_REDACTOR)
            message = f"{reason}; correct the call, or go on without it"
        error = ToolFailedError(message, tool=tool)
        # Apart from the message, since this text may contain user data.
        error.reason = "".join(format_exception_only(exc)).strip()
        raise error from exc


def _object_schema(text: str, *, tool: str) -> dict[str, Any]:
    """Return a schema as data, after a check that it compiles and describes an object."""
    schema = json.loads(text)
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise ConfigError(
            f"the parameters of {tool} are not a JSON Schema of an object; "
            'set its type to "object"',
            variable="parameters",
        )
    compile_schema(text)
    return schema


@dataclass(frozen=True, slots=True)
class FunctionSchema:
    """The arguments of a function.

    Attributes:
        parameters: Their JSON Schema. It forbids unknown arguments, and has defaults but no titles.
        model: Has one field for each parameter, `p0`, `p1` and so on, with the parameter's name as
            alias. So the name cannot clash with an attribute of the model.
    """

    parameters: dict[str, Any]
    model: type[BaseModel]

    def bind(self, args: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Problem, ...]]:
        """Return typed keyword arguments with defaults, or the problems of `args`.

        Values are coerced by pydantic's rules: nested objects to models, strings to enums, numeric
        strings to numbers.
        """
        try:
            bound = self.model.model_validate(dict(args))
        except ValidationError as exc:
            problems: list[Problem] = []
            for error in exc.errors(include_url=False, include_context=False, include_input=False):
                path = redacted_line(".".join(map(str, error["loc"])))
                problems.append(Problem(path, error["type"], _expected(error)))
            return {}, tuple(problems)
        fields = self.model.model_fields
        return {str(info.alias): getattr(bound, name) for name, info in fields.items()}, ()


def _expected(error: ErrorDetails) -> str:
    """Return pydantic's message, or the type of an error whose message may hold the value."""
    # A type's own validator may write anything, and some of pydantic's messages quote the value.
    if error["type"] not in _WITHOUT_VALUE:
        return error["type"].replace("_", " ")
    return redacted_line(error["msg"].replace("Input should", "must"))


class _ToolJsonSchema(GenerateJsonSchema):
    # A default that JSON does not have is left out, which is no reason to warn the application.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as the base declares it

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        """Return False, since a title repeats the name and costs tokens."""
        return False


def read_function(function: Callable[..., Any], *, tool: str) -> FunctionSchema:
    """Read the arguments of a function from its type hints, defaults and docstring.

    A parameter is described by `Annotated[..., Field(description=...)]`, else by its line under
    `Args:`.

    Raises:
        ConfigError: If a parameter cannot be passed by name (`*args`, `**kwargs`, positional-only),
            or a type hint cannot be resolved or has no JSON Schema.
    """
    try:
        # Annotations are texts in modules with `from __future__ import annotations`.
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
            # The arguments may be private, and errors are logged.
            __config__=ConfigDict(extra="forbid", hide_input_in_errors=True),
            **fields,
        )
        parameters = model.model_json_schema(schema_generator=_ToolJsonSchema)
    except (PydanticUserError, NameError) as exc:
        raise _unusable(tool, "a type hint has no JSON Schema") from exc
    parameters.pop("title", None)
    parameters.setdefault("properties", {})  # some endpoints reject an object schema without them
    return FunctionSchema(parameters, model)


def describe(function: Callable[..., Any]) -> str:
    """Return the first paragraph of a function's docstring on one line, or ""."""
    return " ".join(_doc(function).split("\n\n", maxsplit=1)[0].split())


def _doc(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):  # its docstring describes `functools.partial`
        function = function.func
    return inspect.getdoc(function) or ""


def _field(parameter: inspect.Parameter, documented: str | None) -> tuple[Any, Any]:
    """Return the annotation and the default of a parameter, as `create_model` takes them."""
    annotation, default = parameter.annotation, parameter.default
    if annotation is parameter.empty:
        annotation = Any
    if default is parameter.empty:
        default = ...  # pydantic's mark of a required field
    description = default.description if isinstance(default, FieldInfo) else None
    description = description or FieldInfo.from_annotation(annotation).description or documented
    return Annotated[annotation, Field(alias=parameter.name, description=description)], default


def _described_args(doc: str) -> dict[str, str]:
    """Return descriptions by parameter name, from the `Args:` of a Google-style docstring."""
    descriptions: dict[str, str] = {}
    name, indent = "", 0
    is_args = False
    for line in doc.splitlines():
        if not is_args:
            is_args = _ARGS_HEADING.match(line) is not None
            continue
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break
        match = _ARG_LINE.match(line.strip())
        # A deeper line that looks like a parameter, such as `note: ...`, goes on with the text.
        if match and (not name or depth <= indent):
            name, indent = match[1], depth
            descriptions[name] = match[2]
        elif name:
            descriptions[name] = f"{descriptions[name]} {line.strip()}".strip()
    return descriptions


def _unusable(tool: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{tool} cannot become a tool: {problem}; annotate named parameters, or pass "
        "parameters= as a JSON Schema",
        variable="parameters",
    )
