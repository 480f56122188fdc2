"""Checks arguments against JSON Schemas in bounded time, and reports problems without values.

The validator decides quickly whether arguments fit. Listing the problems is slow: it holds the
interpreter's lock for some 30 microseconds for each subschema that refuses a value. Nested
alternatives with 65,000 paths take 12 s, a list of 200,000 wrong numbers takes 4 s. So a schema
with too many paths is refused, and of large arguments only the wrong parameters are named.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final, NoReturn
from urllib.parse import unquote

import jsonschema_rs

from llm_common._threads import computed_once
from llm_common.errors import ConfigError
from llm_common.redaction.redactor import DEFAULT_REDACTOR
from llm_common.text.display import one_line

MAX_CHECKS = 10_000
"""Maximum number of subschemas that check one value, by every path through `$ref` and `anyOf`."""

_CACHED_SCHEMAS = 4096
_MAX_PROBLEMS = 20
_MAX_CHARS = 200
_MAX_LISTED_CHECKS = 1_000  # some 30 ms
# orjson writes 254 levels. The width bounds the time of measuring the depth.
_MAX_DEPTH, _MAX_WIDTH = 254, 1_000_000

# Keywords whose subschemas check the same value, and those whose subschemas check a part of it.
_SAME_VALUE: Final = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)
_PARTS: Final = frozenset(
    {
        "properties",
        "patternProperties",
        "additionalProperties",
        "unevaluatedProperties",
        "propertyNames",
        "items",
    }
    | {"additionalItems", "unevaluatedItems", "prefixItems", "contains"}
)
_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMES: Final = ("$id", "id", "$anchor", "$dynamicAnchor")
_OF_ONE_PARAMETER: Final = _PARTS | {"type", "$schema", "$id", "$defs", "definitions"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One violation of a schema: where, which rule, and what the rule requires.

    Attributes:
        path: Names and indices from the root of the arguments, joined by dots. "" means the
            arguments as a whole.
        rule: The JSON Schema keyword, or pydantic's error type for a function's own types.
        message: The rule in words, without the value of the argument.
    """

    path: str
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


_NOT_JSON: Final = Problem(
    "", "json", f"the arguments must be plain JSON, nested less than {_MAX_DEPTH + 1} deep"
)


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """A schema, ready to check arguments.

    Attributes:
        text: The schema as JSON.
        validator: Checks a value.
        checks: Maximum number of subschemas that check one value, without those of recursion.
        loops: Number of paths that lead back into a recursion. Each level of the arguments
            multiplies the checks by it.
    """

    text: str
    validator: jsonschema_rs.Validator
    checks: int
    loops: int

    def is_quickly_listed(self, args: object) -> bool:
        """Return whether listing the problems of these arguments takes few checks."""
        checks, weight = 0, self.checks
        for level in _levels(args, width=_MAX_LISTED_CHECKS):
            checks += len(level) * weight
            weight *= max(self.loops, 1)
            if checks > _MAX_LISTED_CHECKS:
                return False
        return True


@lru_cache(maxsize=_CACHED_SCHEMAS)
def compile_schema(schema: str) -> CompiledSchema:
    """Compile a schema, once for each text.

    Uses the draft that `$schema` names, else 2020-12. A reference outside the schema is an error,
    and is never fetched.

    Args:
        schema: The schema as JSON text. Equal texts share a validator.

    Raises:
        ConfigError: If the schema is not a valid JSON Schema, refers to something outside itself,
            or has more than `MAX_CHECKS` subschemas that may check one value.
    """
    try:
        checks, loops = _Paths(json.loads(schema)).count()
        # Without the mask, the validator's messages would quote the arguments.
        validator = jsonschema_rs.validator_for(schema, mask="the value", retriever=_refuse)
    except (ValueError, RecursionError) as exc:
        reason = getattr(exc, "message", None) or str(exc)
        if isinstance(exc, RecursionError):
            reason = "it is nested too deeply"
        raise _unusable(reason, "correct the schema, with every $ref inside it") from exc
    if checks > MAX_CHECKS:
        # The text does not name the count, which may have thousands of digits.
        reason = f"more than {MAX_CHECKS:,} of its subschemas may check one value"
        raise _unusable(
            reason,
            "nest fewer alternatives (anyOf, oneOf, allOf, $ref), or describe that part in words",
        )
    return CompiledSchema(schema, validator, checks, loops)


def find_problems(schema: str, args: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Return the rules that the arguments violate, at most 20, in the schema's order.

    An unknown property is a problem only if `additionalProperties` forbids it. Of large arguments,
    and under a schema with many alternatives, a problem names the parameter and not the path
    within it.

    Args:
        schema: The schema as JSON text.
        args: Arguments as plain JSON values.

    Raises:
        ConfigError: As from `compile_schema`.
    """
    compiled = compile_schema(schema)
    plain = dict(args)
    if compiled.loops:
        # The validator recurses as deep as schema and value both go, and an overflow of the stack
        # in Rust ends the process.
        for depth, _ in enumerate(_levels(plain, width=_MAX_WIDTH)):
            if depth > _MAX_DEPTH:
                return (_NOT_JSON,)
    try:
        if compiled.validator.is_valid(plain):
            return ()
        if compiled.is_quickly_listed(plain):
            return tuple(islice(_listed(compiled, plain), _MAX_PROBLEMS))
        problems = tuple(islice(_by_parameter(compiled, plain), _MAX_PROBLEMS))
    except ValueError:
        # The library's message would repeat the type or text of the value.
        return (_NOT_JSON,)
    return problems or (Problem("", "schema", "the arguments do not fit the schema together"),)


def redacted_line(text: str) -> str:
    """Return words of a schema or of arguments on one redacted line of at most 200 characters."""
    return one_line(DEFAULT_REDACTOR.beginning(text, max_chars=_MAX_CHARS), max_chars=_MAX_CHARS)


def _listed(compiled: CompiledSchema, args: dict[str, Any]) -> Iterator[Problem]:
    for error in compiled.validator.iter_errors(args):
        path = redacted_line(".".join(map(str, error.instance_path)))
        yield Problem(path, error.kind.name, redacted_line(error.message))


def _by_parameter(compiled: CompiledSchema, args: dict[str, Any]) -> Iterator[Problem]:
    """Yield the missing parameters and the wrong ones, each checked alone."""
    root = json.loads(compiled.text)
    required = root.get("required")
    if isinstance(required, list):
        for name in required:
            if name not in args:
                line = f'"{redacted_line(str(name))}" is a required property'
                yield Problem("", "required", line)
    # Rules such as `required` and `anyOf` concern the arguments together, and would fail here.
    alone = compile_schema(
        json.dumps({key: value for key, value in root.items() if key in _OF_ONE_PARAMETER})
    )
    for name, value in args.items():
        if not alone.validator.is_valid({name: value}):
            if alone.is_quickly_listed({name: value}):
                yield from _listed(alone, {name: value})
            else:
                yield Problem(redacted_line(name), "schema", "the value does not fit its schema")


def _levels(value: object, *, width: int) -> Iterator[list[object]]:
    """Yield the value, its parts, their parts and so on, at most `width` of each level."""
    level = [value]
    while level:
        yield level
        level = list(islice(chain.from_iterable(map(_parts_of, level)), width))


def _parts_of(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple):
        return value
    return ()


class _Paths:
    """Counts the subschemas that may check one value.

    Of the subschemas for parts of the value, only those of the worst part count.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        # Both by the `id` of the target of a reference, since a dict cannot be a key.
        self._counts: dict[int, tuple[int, int]] = {}
        self._open: set[int] = set()

    def count(self) -> tuple[int, int]:
        """Return the number of checks, and of the paths that lead back into a recursion.

        Each recursion is entered once.

        Raises:
            ValueError: If the target of a reference is missing.
            RecursionError: If the schema is nested too deeply.
        """
        return self._target(self._root)

    def _target(self, schema: Any) -> tuple[int, int]:
        if id(schema) in self._open:
            return 1, 1
        if id(schema) not in self._counts:
            self._open.add(id(schema))
            self._counts[id(schema)] = self._of(schema)
            self._open.remove(id(schema))
        return self._counts[id(schema)]

    def _of(self, schema: Any) -> tuple[int, int]:
        if not isinstance(schema, dict):
            return 1, 0
        checks, loops = 1, 0
        for key in _REFERENCES:
            if isinstance(schema.get(key), str):
                target_checks, target_loops = self._target(self._at(schema[key]))
                checks += target_checks
                loops += target_loops
        part_checks = part_loops = 0
        for key, value in schema.items():
            if key not in _SAME_VALUE | _PARTS:
                continue
            is_several = isinstance(value, list) or (isinstance(value, dict) and key in _BY_NAME)
            for child in _parts_of(value) if is_several else [value]:
                child_checks, child_loops = self._of(child)
                if key in _SAME_VALUE:
                    checks += child_checks
                    loops += child_loops
                else:
                    part_checks = max(part_checks, child_checks)
                    part_loops = max(part_loops, child_loops)
        return checks + part_checks, loops + part_loops

    def _at(self, reference: str) -> Any:
        """Return the target of a reference inside the schema."""
        base, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            base, fragment = fragment, ""  # an anchor
        target = self._subschemas.get(base.rpartition("/")[2]) if base else self._root
        for step in unquote(fragment).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict):
                target = target.get(key)
            elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            else:
                target = None
        if target is None:
            raise ValueError(f"{reference} leads nowhere; write a reference as #/$defs/name")
        return target

    @computed_once
    def _subschemas(self) -> dict[str, Any]:
        """Return the subschemas by their anchors and by the last parts of their addresses."""
        subschemas: dict[str, Any] = {}
        queue = [self._root]
        for value in queue:  # grows while it is read
            queue += _parts_of(value)
            if not isinstance(value, dict):
                continue
            for key in _NAMES:
                if key in value:
                    subschemas[str(value[key]).strip("#").rpartition("/")[2]] = value
        return subschemas


def _unusable(reason: str, way_out: str) -> ConfigError:
    return ConfigError(
        f"the parameters are not a usable JSON Schema: {redacted_line(reason)}; {way_out}",
        variable="parameters",
    )


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside the schema")
