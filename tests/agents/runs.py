"""What tests of runs share: scripted choices of calls, and what models and callers are shown."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from llm_common.agents import (
    AgenticExecutor,
    InMemoryContextPointerStore,
    LexicalToolSelector,
    StreamEvent,
    Tool,
    ToolCall,
    ToolContextManager,
    ToolRegistry,
    ToolResult,
    ToolSelection,
)
from llm_common.core import LLMMessage, LLMResponse, OpenAICompatibleClient
from llm_common.core.structured import Attempt
from llm_common.testing import ScriptedClient


async def session(*results: Any) -> ToolContextManager:
    """Return a session in memory that has stored these results."""
    manager = ToolContextManager(pointer_store=InMemoryContextPointerStore())
    for number, result in enumerate(results):
        await manager.save_context("orders", {"page": number}, result)
    return manager


def call(tool: str, **args: Any) -> ToolCall:
    return ToolCall(tool=tool, args=args)


def tools() -> ToolRegistry:
    """Return tools that answer, fail and name a source."""
    registry = ToolRegistry()

    @registry.tool
    async def echo(text: str, delay_s: float = 0) -> dict[str, str]:
        """Says it again."""
        await asyncio.sleep(delay_s)
        return {"said": text}

    @registry.tool
    def broken(text: str) -> str:
        """Always fails."""
        raise ValueError(f"cannot work with {text}")

    @registry.tool
    def refusing(text: str) -> ToolResult:
        """Returns a failure."""
        return ToolResult(success=False, error=f"refused {text}")

    @registry.tool
    def sourced() -> ToolResult:
        """Has a source."""
        return ToolResult(success=True, data=1, source_urls=["https://a.example/"])

    return registry


REPORTS = {"Oslo": "Snow all day, -3 degrees", "Lima": "Fog, 18 degrees"}
WEATHER = ['Report the weather of "Oslo"', 'Report the weather of "Lima"']


def weather(city: str) -> str:
    """Report the weather of a city."""
    return REPORTS[city]


def forecaster(
    client: ScriptedClient | OpenAICompatibleClient | None,
    folder: Path,
    manager: ToolContextManager | None = None,
    **options: Any,
) -> AgenticExecutor:
    """Return an executor that looks up the weather which a task names."""
    registry = ToolRegistry([Tool(weather, read_only=True)])
    manager = manager or ToolContextManager(folder)
    return AgenticExecutor(client, registry, manager, selector=LexicalToolSelector(), **options)


class Chosen:
    """A selector with scripted choices, of which the last one is made again and again.

    Attributes:
        asked: The arguments of each choice, oldest first.
    """

    def __init__(
        self,
        *choices: Sequence[ToolCall],
        again: bool = False,
        attempts: tuple[Attempt, ...] = (),
    ) -> None:
        self.asked: list[dict[str, Any]] = []
        self._choices = choices or [()]
        self._again = again
        self._attempts = attempts

    async def select_detailed(self, **asked: Any) -> ToolSelection:
        self.asked.append(asked)
        calls = tuple(self._choices[: len(self.asked)][-1])
        return ToolSelection(
            calls=calls,
            status="ok" if calls else "empty",
            used="model",
            again=self._again,
            attempts=self._attempts,
        )


def executor_of(
    folder: Path,
    *choices: Sequence[ToolCall],
    registry: Any = None,
    manager: ToolContextManager | None = None,
    **options: Any,
) -> AgenticExecutor:
    """Return an executor whose calls are scripted, one choice for each task."""
    options = {"selector": Chosen(*choices)} | options
    registry = tools() if registry is None else registry
    return AgenticExecutor(None, registry, manager or ToolContextManager(folder), **options)


def proposed(*calls: tuple[str, dict[str, Any]], again: bool = False) -> str:
    """Return the reply of a model that chooses calls."""
    made = [{"tool": tool, "args": args} for tool, args in calls]
    return json.dumps({"calls": made, "again": again})


def asking(
    folder: Path,
    *replies: str | LLMResponse,
    registry: Any,
    manager: ToolContextManager | None = None,
    **options: Any,
) -> tuple[AgenticExecutor, ScriptedClient]:
    """Return an executor whose model replies by a script, and the model."""
    client = ScriptedClient(replies, default="An answer")
    return AgenticExecutor(
        client, registry, manager or ToolContextManager(folder), **options
    ), client


def text_of(messages: Sequence[LLMMessage]) -> str:
    return "\n".join(str(message.content) for message in messages)


def prompt_of(client: ScriptedClient, number: int = 0) -> str:
    return text_of(client.calls[number].messages)


async def events_of(stream: AsyncGenerator[Any, None]) -> list[StreamEvent]:
    async with aclosing(stream) as events:
        return [event async for event in events]
