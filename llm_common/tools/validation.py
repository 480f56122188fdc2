"""Checks arguments against JSON Schemas; reports problems without values."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

import jsonschema_rs

from llm_common.errors import ConfigError
from llm_common.text.display import one_line

_CACHED_SCHEMAS = 4096
_MAX_PROBLEMS = 20
_MAX_CHARS = 200


@dataclass(frozen=True, slots=True)
class Problem:
    """One violation of a schema: where, which rule, and what the rule requires.

    Attributes:
        path: Names and indices from the root of the arguments, joined by dots; "" for the arguments as a whole.
        rule: The JSON Schema keyword, or pydantic's error type for a function's own types.
        message: What was expected, without the given value.
    """

    path: str
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@lru_cache(maxsize=_CACHED_SCHEMAS)
def compile_schema(schema: str) -> jsonschema_rs.Validator:
    """A validator for the schema, compiled once per text.

    Uses the draft that `$schema` names, else 2020-12. A reference outside the schema is an error: never fetches one.

    Args:
        schema: The schema as JSON text; equal texts share a validator.

    Raises:
        ConfigError: Not a valid JSON Schema, or it refers to something outside itself.
    """
    try:
        return jsonschema_rs.validator_for(schema, mask="the value", retriever=_refuse)
    except ValueError as exc:
        reason = getattr(exc, "message", None) or str(exc)
        raise ConfigError(
            f"the parameters are not a usable JSON Schema: {one_line(reason, max_chars=_MAX_CHARS)}; "
            "correct the schema, with every $ref inside it",
            variable="parameters",
        ) from exc


def find_problems(schema: str, args: Mapping[str, Any]) -> tuple[Problem, ...]:
    """The rules that the arguments violate, at most 20, in the schema's order.

    An unknown property is a problem only if `additionalProperties` forbids it.

    Args:
        schema: The schema as JSON text.
        args: Arguments as plain JSON values.

    Raises:
        ConfigError: As from `compile_schema`.
    """
    validator = compile_schema(schema)
    problems: list[Problem] = []
    try:
        for error in validator.iter_errors(dict(args)):
            path = one_line(".".join(map(str, error.instance_path)), max_chars=_MAX_CHARS)
            problems.append(Problem(path, error.kind.name, one_line(error.message, max_chars=_MAX_CHARS)))
            if len(problems) == _MAX_PROBLEMS:
                break
    except ValueError:
        # The library's message would repeat the type or text of the value.
        problems.append(Problem("", "json", "the arguments must be plain JSON, nested less than 255 deep"))
    return tuple(problems)


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside the schema")
