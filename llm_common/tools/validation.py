"""Checks arguments against JSON Schemas, in bounded time; reports problems without values.

The validator says quickly whether arguments fit. Listing what does not fit holds the interpreter's
lock for some 30 microseconds for each subschema that refuses a value: 12 s for nested alternatives
with 65,000 paths, 4 s for a list of 200,000 wrong numbers. So a schema with too many paths is
refused, and of large arguments only the wrong ones are named.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, Final, NoReturn
from urllib.parse import unquote

import jsonschema_rs

from llm_common.errors import ConfigError
from llm_common.redaction.redactor import DEFAULT_REDACTOR
from llm_common.text.display import one_line

MAX_CHECKS = 10_000
"""Maximum number of subschemas that check one value, by every path through `$ref` and `anyOf`."""

_CACHED_SCHEMAS = 4096
_MAX_PROBLEMS = 20
_MAX_CHARS = 200
_MAX_LISTED_CHECKS = 1_000  # some 30 ms
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
        path: Names and indices from the root of the arguments, joined by dots; "" for the arguments
            as a whole.
        rule: The JSON Schema keyword, or pydantic's error type for a function's own types.
        message: What was expected, without the given value.
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
        checks: Most subschemas that check one value, not counting what recursion adds.
        loops: How many paths lead back into a recursion: they multiply the checks with each level
            of the arguments.
    """

    text: str
    validator: jsonschema_rs.Validator
    checks: int
    loops: int

    def is_quickly_listed(self, args: object) -> bool:
        """Whether listing the problems of these arguments takes few checks."""
        checks, weight = 0, self.checks
        for level in _levels(args, width=_MAX_LISTED_CHECKS):
            checks += len(level) * weight
            weight *= max(self.loops, 1)
            if checks > _MAX_LISTED_CHECKS:
                return False
        return True


@lru_cache(maxsize=_CACHED_SCHEMAS)
def compile_schema(schema: str) -> CompiledSchema:
    """The schema with its validator, compiled once per text.

    Uses the draft that `$schema` names, else 2020-12. A reference outside the schema is an error:
    never fetches one.

    Args:
        schema: The schema as JSON text; equal texts share a validator.

    Raises:
        ConfigError: Not a valid JSON Schema, or it refers to something outside itself, or more than
            `MAX_CHECKS` of its subschemas may check one value.
    """
    try:
        checks, loops = _Paths(json.loads(schema)).count()
        validator = jsonschema_rs.validator_for(schema, mask="the value", retriever=_refuse)
    except (ValueError, RecursionError) as exc:
        deep = "it is nested too deeply" if isinstance(exc, RecursionError) else str(exc)
        raise _unusable(
            getattr(exc, "message", None) or deep, "correct the schema, with every $ref inside it"
        ) from exc
    if checks > MAX_CHECKS:
        # Not the count, which may have thousands of digits.
        reason = f"more than {MAX_CHECKS:,} of its subschemas may check one value"
        raise _unusable(
            reason,
            "nest fewer alternatives (anyOf, oneOf, allOf, $ref), or describe that part in words",
        )
    return CompiledSchema(schema, validator, checks, loops)


def find_problems(schema: str, args: Mapping[str, Any]) -> tuple[Problem, ...]:
    """The rules that the arguments violate, at most 20, in the schema's order.

    An unknown property is a problem only if `additionalProperties` forbids it. Of large arguments,
    and under a schema with many alternatives, names the parameters that do not fit instead of the
    places in them.

    Args:
        schema: The schema as JSON text.
        args: Arguments as plain JSON values.

    Raises:
        ConfigError: As from `compile_schema`.
    """
    compiled = compile_schema(schema)
    given = dict(args)
    # The validator recurses as deep as schema and value both go, and a full stack ends the process.
    if compiled.loops and any(
        depth > _MAX_DEPTH for depth, _ in enumerate(_levels(given, width=_MAX_WIDTH))
    ):
        return (_NOT_JSON,)
    try:
        if compiled.validator.is_valid(given):
            return ()
        if compiled.is_quickly_listed(given):
            return tuple(islice(_listed(compiled, given), _MAX_PROBLEMS))
        found = tuple(islice(_by_parameter(compiled, given), _MAX_PROBLEMS))
    except ValueError:
        # The library's message would repeat the type or text of the value.
        return (_NOT_JSON,)
    return found or (Problem("", "schema", "the arguments do not fit the schema together"),)


def redacted_line(text: str) -> str:
    """Return words of a schema or of arguments on one redacted line of at most 200 characters."""
    return one_line(DEFAULT_REDACTOR.beginning(text, max_chars=_MAX_CHARS), max_chars=_MAX_CHARS)


def _listed(compiled: CompiledSchema, given: dict[str, Any]) -> Iterator[Problem]:
    for error in compiled.validator.iter_errors(given):
        path = redacted_line(".".join(map(str, error.instance_path)))
        yield Problem(path, error.kind.name, redacted_line(error.message))


def _by_parameter(compiled: CompiledSchema, given: dict[str, Any]) -> Iterator[Problem]:
    """The missing parameters and the wrong ones, each checked alone."""
    root = json.loads(compiled.text)
    required = root.get("required", ())
    for name in required if isinstance(required, list) else ():
        if name not in given:
            yield Problem("", "required", f'"{redacted_line(str(name))}" is a required property')
    alone = compile_schema(
        json.dumps({key: value for key, value in root.items() if key in _OF_ONE_PARAMETER})
    )
    for name, value in given.items():
        if not alone.validator.is_valid({name: value}):
            if alone.is_quickly_listed({name: value}):
                yield from _listed(alone, {name: value})
            else:
                yield Problem(redacted_line(name), "schema", "the value does not fit its schema")


def _levels(value: object, *, width: int) -> Iterator[list[object]]:
    """The value, its parts, their parts and so on; of each level the first ones."""
    level = [value]
    while level:
        yield level
        level = list(islice((part for each in level for part in _parts_of(each)), width))


def _parts_of(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple):
        return value
    return ()


class _Paths:
    """Counts the subschemas that may check one value.

    Those that check a part of the value are counted for the worst part only.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        # by the identity of the target of a reference
        self._counts: dict[int, tuple[int, int]] = {}
        self._open: set[int] = set()

    def count(self) -> tuple[int, int]:
        """How many, each recursion entered once; and how many paths lead back into a recursion.

        Raises:
            ValueError: A reference leads nowhere.
            RecursionError: The schema is nested too deeply.
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
        same = [
            self._target(self._at(schema[key]))
            for key in _REFERENCES
            if isinstance(schema.get(key), str)
        ]
        parts = [(0, 0)]
        for key, value in schema.items():
            if key in _SAME_VALUE | _PARTS:
                several = isinstance(value, list) or (isinstance(value, dict) and key in _BY_NAME)
                children = _parts_of(value) if several else [value]
                (same if key in _SAME_VALUE else parts).extend(map(self._of, children))
        checks, loops = (
            sum(each[place] for each in same) + max(each[place] for each in parts)
            for place in (0, 1)
        )
        return 1 + checks, loops

    def _at(self, reference: str) -> Any:
        """The target of a reference inside the schema."""
        base, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            base, fragment = fragment, ""  # an anchor
        found = self._named.get(base.rpartition("/")[2]) if base else self._root
        for step in unquote(fragment).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(key)
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                found = None
        if found is None:
            raise ValueError(f"{reference} leads nowhere; write a reference as #/$defs/name")
        return found

    @cached_property
    def _named(self) -> dict[str, Any]:
        """The subschemas by their anchors and by the last parts of their addresses."""
        named: dict[str, Any] = {}
        rest = [self._root]
        for value in rest:  # grows while it is read
            rest += _parts_of(value)
            if not isinstance(value, dict):
                continue
            for key in _NAMES:
                if key in value:
                    named[str(value[key]).strip("#").rpartition("/")[2]] = value
        return named


def _unusable(reason: str, way_out: str) -> ConfigError:
    return ConfigError(
        f"the parameters are not a usable JSON Schema: {redacted_line(reason)}; {way_out}",
        variable="parameters",
    )


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside the schema")
