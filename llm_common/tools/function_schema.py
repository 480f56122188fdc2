"""Reads a function as a tool: description, JSON Schema, typed arguments."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from llm_common.errors import ConfigError
from llm_common.text.fence import one_line
from llm_common.tools.validation import Problem

__all__ = ["FunctionSchema", "describe", "read_function"]

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_ARGS_HEADING = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_ARG_LINE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


@dataclass(frozen=True, slots=True)
class FunctionSchema:
    """The arguments of a function.

    Attributes:
        parameters: Their JSON Schema: forbids unknown arguments, shows defaults, leaves out titles.
        model: One field per parameter, `p0`, `p1` and so on, with the parameter's name as alias: a parameter's name
            cannot clash with an attribute of the model.
    """

    parameters: dict[str, Any]
    model: type[BaseModel]

    def bind(self, args: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Problem, ...]]:
        """Typed keyword arguments with defaults, or the problems of `args`.

        Coerces values by pydantic's rules: nested objects to models, strings to enums, numeric strings to numbers.
        """
        try:
            bound = self.model.model_validate(dict(args))
        except ValidationError as exc:
            errors = exc.errors(include_url=False, include_context=False, include_input=False)
            return {}, tuple(
                Problem(
                    one_line(".".join(map(str, error["loc"])), max_chars=200),
                    error["type"],
                    error["type"].replace("_", " "),
                )
                for error in errors
            )
        fields = self.model.model_fields
        return {str(info.alias): getattr(bound, name) for name, info in fields.items()}, ()


class _ToolJsonSchema(GenerateJsonSchema):
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as the base declares it

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        """No: a title repeats the name and costs tokens."""
        return False


def read_function(function: Callable[..., Any], *, tool: str) -> FunctionSchema:
    """The arguments of the function, from its type hints, defaults and docstring.

    The description of a parameter is `Annotated[..., Field(description=...)]`, else its line under `Args:`.

    Raises:
        ConfigError: A parameter cannot be named in JSON (`*args`, `**kwargs`, positional-only), or a type hint cannot
            be resolved or has no JSON Schema.
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
    start = next((index for index, line in enumerate(lines) if _ARGS_HEADING.match(line)), len(lines))
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
        f"{tool} cannot become a tool: {problem}; annotate named parameters, or pass parameters= as a JSON Schema",
        variable="parameters",
    )
