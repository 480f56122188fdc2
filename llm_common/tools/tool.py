"""`Tool`: one thing that an agent can do, with the schema of its arguments."""

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


class ToolResult(BaseModel):
    """Data with its sources, or an expected failure, as a value.

    A registry hands it back as it is, also with `success=False`: whether that ends a task is the executor's decision.
    Further fields, such as evidence, are kept.

    Attributes:
        success: Whether the tool did what was asked.
        data: What it found or made.
        source_urls: Where the data came from; they reach the stored pointer.
        error: What went wrong, in words that a model may read.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    success: bool
    data: Any = None
    source_urls: list[str] = Field(default_factory=list)
    error: str | None = None


@contextmanager
def third_party_code(tool: str) -> Iterator[None]:
    """A block whose every exception leaves as `ToolFailedError`, naming the exception's class and nothing it says.

    Cancellation, `SystemExit` and `KeyboardInterrupt` pass through untouched.

    Args:
        tool: Name of the tool, or of what else runs in the block; it becomes the error's `.tool`.

    Raises:
        ToolFailedError: The block raised; the original is the cause.
    """
    try:
        yield
    except Exception as exc:
        raise ToolFailedError(f"{tool} raised {type(exc).__name__}; see its cause for the details", tool=tool) from exc


_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")


class Tool:
    """A function with a name, a description and a JSON Schema of its arguments.

    Without `parameters` the schema comes from the function's type hints, its description from the docstring's first
    paragraph, those of the parameters from `Annotated[..., Field(description=...)]` or the lines under `Args:`; the
    function then receives real values: models, enums, dates. With `parameters` the function receives the arguments
    as they came, checked against that schema, as keywords.

    Safe to run concurrently if the function is: an async function runs in the event loop, any other one in a thread.

    Args:
        function: What runs; called with keyword arguments only.
        name: 1 to 64 letters, digits and `_.-`, which every endpoint accepts; the function's name by default.
        description: What the model reads; the docstring's first paragraph by default.
        parameters: JSON Schema of the arguments, an object schema. None derives it.

    Attributes:
        parameters: A copy of the schema; changing it changes nothing.
        definition: `{"description":…,"name":…,"parameters":…}` as canonical JSON.

    Raises:
        ConfigError: A name outside the allow-list, a signature that cannot be passed by name, a type without a JSON
            Schema, or a broken schema.
        UnserialisableError: The schema holds something that JSON cannot.
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
        """What the function returns for these arguments. The function is called once, whatever it raises.

        A `ToolResult` is returned as it is, also an unsuccessful one. Cancelling stops an async function; one that runs
        in a thread goes on to its end, and its result is dropped.

        Raises:
            ToolArgumentsError: The arguments do not fit; the function was not called. Names fields, never values.
            ToolFailedError: The function raised; the original is the cause.
        """
        arguments, problems = self._bind(args)
        if problems:
            listed = "; ".join(map(str, problems))
            raise ToolArgumentsError(f"{self.name} was not run: {listed}. Correct these and call again", tool=self.name)
        if _is_async(self._function):
            with third_party_code(self.name):
                return await self._function(**arguments)
        result = await asyncio.to_thread(self._run_here, arguments)
        if inspect.isawaitable(result):
            with third_party_code(self.name):
                return await result
        return result

    def _bind(self, args: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Problem, ...]]:
        if not _is_object(args):
            return {}, (Problem("", "type", "the arguments must be one object with names as keys"),)
        if self._bound is None:
            return args, find_problems(self._schema, args)
        with third_party_code(self.name):  # a type's own validators are third-party code too
            return self._bound.bind(args)

    def _run_here(self, arguments: Mapping[str, Any]) -> Any:
        with third_party_code(self.name):  # in the thread: StopIteration must not reach a future
            return self._function(**arguments)


def _is_object(args: object) -> bool:
    return isinstance(args, Mapping) and all(isinstance(key, str) for key in args)


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _object_schema(text: str, *, tool: str) -> dict[str, Any]:
    """The schema as data, once it is known to compile and to describe an object."""
    schema = json.loads(text)
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise ConfigError(
            f'the parameters of {tool} are no JSON Schema of an object; set its type to "object"', variable="parameters"
        )
    compile_schema(text)
    return schema
