"""Stored results as arguments: a model names the result, the tool gets its content, no prompt contains it."""

from collections.abc import Collection, Mapping
from typing import Any

from llm_common._threads import in_thread
from llm_common.errors import ConfigError, StoreError, ToolArgumentsError
from llm_common.pointers.parts import value_at
from llm_common.pointers.reading import READER_NAME
from llm_common.text.canonical import decode_json
from llm_common.tools.read_back import LoadsPayload, ReadBackTool, explain_miss
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import Tool

DEFAULT_MAX_BYTES = 10_000_000
POINTER_KEY = "$pointer"

_REFERENCE = {
    "type": "object",
    "description": "The stored result of that id, or what is at a JSON pointer in it, passed on without being shown.",
    "properties": {POINTER_KEY: {"type": "string"}, "path": {"type": "string"}},
    "required": [POINTER_KEY],
    "additionalProperties": False,
}


class PointerArgumentsTool(Tool):
    """A tool that replaces arguments of the form `{"$pointer": id}` by the stored result before it runs.

    `{"$pointer": id, "path": "/items"}` passes a part. The schema that a model sees allows this for
    the named parameters, besides their own values. The replaced arguments are validated against the
    tool's own schema. A stored call contains the reference, not the content.

    Args:
        tool: The tool to run.
        load: Loads only what the model may pass; see `ReadBackTool`.
        parameters: Names of the tool's parameters that take references.
        max_bytes: Most bytes of all results that one call refers to.

    Raises:
        ConfigError: The tool has no parameter of such a name.
    """

    __slots__ = ("_load", "_max_bytes", "_names", "_tool")

    def __init__(
        self,
        tool: Tool,
        load: LoadsPayload,
        *,
        parameters: Collection[str],
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        properties = tool.parameters.get("properties", {})
        if unknown := sorted(set(parameters) - set(properties)):
            raise ConfigError(
                f"{tool.name} has no parameter {unknown[0]}; name those that may be given as a pointer",
                variable="parameters",
                value=unknown[0],
            )
        widened = {
            name: {"anyOf": [schema, _REFERENCE]} if name in parameters else schema
            for name, schema in properties.items()
        }
        super().__init__(
            tool.run,
            name=tool.name,
            description=tool.description,
            parameters={**tool.parameters, "properties": widened},
            read_only=tool.read_only,
        )
        self._tool = tool
        self._load = load
        self._names = frozenset(parameters)
        self._max_bytes = max_bytes

    async def run(self, args: Mapping[str, Any]) -> Any:
        """What the tool returns for the arguments, with references replaced by the stored results.

        Raises:
            ToolArgumentsError: A reference names no result of this session, the results are too
                large, or they do not fit the tool; it did not run.
            ToolFailedError: The tool raised.
        """
        if references := self._references_in(args):
            args = {**args, **await in_thread(self._expanded, references)}
        return await self._tool.run(args)

    def _references_in(self, args: object) -> dict[str, Mapping[str, str]]:
        if not isinstance(args, Mapping):
            return {}  # the tool reports the error
        return {name: args[name] for name in sorted(self._names) if _is_reference(args.get(name))}

    def _expanded(self, references: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        left = self._max_bytes
        for name, reference in references.items():
            payload = self._payload(name, reference[POINTER_KEY])
            left -= len(payload)
            if left < 0:
                raise self._refused(
                    name, "the stored results are too large together; pass a smaller one"
                )
            try:
                values[name] = value_at(decode_json(payload), reference.get("path", ""))
            except (StoreError, ValueError) as exc:
                raise self._refused(name, str(exc)) from exc
        return values

    def _payload(self, name: str, pointer_id: str) -> bytes:
        try:
            return self._load(pointer_id.strip().lower())[1]
        except StoreError as exc:
            raise self._refused(name, explain_miss(exc)) from exc

    def _refused(self, name: str, why: str) -> ToolArgumentsError:
        return ToolArgumentsError(
            f"{self.name} was not run: {name}: {why}; correct the call", tool=self.name
        )


def _is_reference(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and value.keys() <= {POINTER_KEY, "path"}
        and all(isinstance(value.get(key, ""), str) for key in (POINTER_KEY, "path"))
        and POINTER_KEY in value
    )


def session_registry(
    registry: Any,
    load: LoadsPayload,
    *,
    read_back: bool | str = False,
    pointer_arguments: Mapping[str, Collection[str]] | None = None,
) -> Any:
    """The registry, or a copy of it with the session's own tools.

    A copy only if `read_back` or `pointer_arguments` are given.

    Args:
        registry: The application's tools, never modified; a copy does not get tools that are
            registered later.
        load: Loads the session's results and nothing else: `ToolContextManager.load_payload`.
        read_back: Adds a `ReadBackTool`, under its own name or the given one.
        pointer_arguments: Parameters that may be given as `{"$pointer": id}`, by tool; see
            `PointerArgumentsTool`.

    Raises:
        ConfigError: The registry is no `ToolRegistry`, has no such tool or parameter, or has a tool
            of the reader's name already.
    """
    named = pointer_arguments or {}
    if not read_back and not named:
        return registry
    if not isinstance(registry, ToolRegistry):
        raise ConfigError(
            "read_back and pointer_arguments need a ToolRegistry; pass one",
            variable="tool_registry",
        )
    if unknown := sorted(set(named) - set(registry.names)):
        raise ConfigError(
            f"there is no tool {unknown[0]}; name registered tools in pointer_arguments",
            variable="pointer_arguments",
            value=unknown[0],
        )
    tools = [
        PointerArgumentsTool(tool, load, parameters=named[tool.name])
        if tool.name in named
        else tool
        for tool in registry
    ]
    if not read_back:
        return ToolRegistry(tools)
    return ToolRegistry(
        [*tools, ReadBackTool(load, name=read_back if isinstance(read_back, str) else READER_NAME)]
    )
