"""`Tool`: a function with the schema of its arguments, as an agent calls it."""

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from llm_common.errors import ConfigError, ToolArgumentsError, ToolFailedError
from llm_common.text.canonical import stable_json
from llm_common.tools.function_schema import describe, read_function
from llm_common.tools.validation import Problem, compile_schema, find_problems

__all__ = ["Tool", "ToolResult", "third_party_code"]

_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")


class ToolResult(BaseModel):
    """Data with its sources, or an expected failure, as a value.

    A registry returns it unchanged, also with `success=False`: the executor decides whether that ends a task. Keeps
    further fields, such as evidence.

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
        raise ToolFailedError(f"{tool} raised {type(exc).__name__}; see its cause for the details", tool=tool) from exc


class Tool:
    """A function with a name, a description and a JSON Schema of its arguments.

    Without `parameters` the schema comes from the type hints, the description from the docstring's first paragraph,
    those of the parameters from `Annotated[..., Field(description=...)]` or the lines under `Args:`; the function then
    receives typed values: models, enums, dates. With `parameters` it receives the raw arguments, checked against that
    schema. Safe to run concurrently if the function is: an async function runs in the event loop, others in a thread.

    Args:
        function: Called with keyword arguments only.
        name: 1 to 64 letters, digits and `_.-`, which every endpoint accepts; the function's name by default.
        description: Text for the model; the docstring's first paragraph by default.
        parameters: JSON Schema of the arguments, an object schema. None derives it.

    Attributes:
        parameters: A copy of the schema; changes to it have no effect.
        definition: `{"description":…,"name":…,"parameters":…}` as canonical JSON.

    Raises:
        ConfigError: A name outside the allow-list, a signature that cannot be passed by name, a type without a JSON
            Schema, or a broken schema.
        UnserialisableError: The schema is not JSON.
    """

    __slots__ = ("_bound", "_function", "_schema", "definition", "description", "name", "parameters")

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name if name is not None else getattr(function, "__name__", type(function).__name__)
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ConfigError(
                "a tool's name takes 1 to 64 letters, digits and the characters _ . -; pass another one as name=",
                variable="name",
                value=str(self.name)[:80],
            )
        self.description = description if description is not None else describe(function)
        self._function = function
        self._bound = read_function(function, tool=self.name) if parameters is None else None
        schema = parameters if self._bound is None else self._bound.parameters
        self._schema = stable_json(schema)
        self.parameters = _object_schema(self._schema, tool=self.name)
        self.definition = stable_json(
            {"name": self.name, "description": self.description, "parameters": self.parameters}
        )

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    async def run(self, args: Mapping[str, Any]) -> Any:
        """What the function returns for these arguments; called once, never retried.

        Returns a `ToolResult` unchanged, also an unsuccessful one. Cancelling stops an async function; one in a thread
        runs to its end, and its result is dropped.

        Raises:
            ToolArgumentsError: The arguments do not fit; the function was not called. Names fields, not values.
            ToolFailedError: The function raised; the original is the cause.
        """
        arguments, problems = self._bind(args)
        if problems:
            listed = "; ".join(map(str, problems))
            raise ToolArgumentsError(f"{self.name} was not run: {listed}. Correct these and call again", tool=self.name)
        if inspect.iscoroutinefunction(self._function) or inspect.iscoroutinefunction(type(self._function).__call__):
            with third_party_code(self.name):
                return await self._function(**arguments)
        result = await asyncio.to_thread(self._run_here, arguments)
        if inspect.isawaitable(result):
            with third_party_code(self.name):
                return await result
        return result

    def _bind(self, args: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Problem, ...]]:
        given: object = args  # what a model sends may be anything
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            return {}, (Problem("", "type", "the arguments must be one object with names as keys"),)
        if self._bound is None:
            return args, find_problems(self._schema, args)
        with third_party_code(self.name):  # a type's own validators are third-party code too
            return self._bound.bind(args)

    def _run_here(self, arguments: Mapping[str, Any]) -> Any:
        with third_party_code(self.name):  # in the thread: a future cannot hold StopIteration
            return self._function(**arguments)


def _object_schema(text: str, *, tool: str) -> dict[str, Any]:
    """The schema as data, after it compiled and proved to describe an object."""
    schema = json.loads(text)
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise ConfigError(
            f'the parameters of {tool} are no JSON Schema of an object; set its type to "object"', variable="parameters"
        )
    compile_schema(text)
    return schema
