"""The previews that released frameworks make of a large tool result, each by its installed code.

In each framework an agent with the offloader calls one tool, with a script in place of the model.
The preview is the tool message that the next model call gets. A framework encodes results that are
not text itself. Sizes are the defaults. Only deepagents' threshold is lowered, since it keeps
results of up to 80,000 characters whole.
"""

import asyncio
import importlib
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

__all__ = ["PEERS", "PeerPreview", "installed_previews"]

PeerPreview = Callable[[object, str], str]
"""Makes the preview of a result for a question."""


def strands_offloader(result: object, question: str) -> str:
    """Return the preview of the plugin `ContextOffloader`."""
    offloader = importlib.import_module("strands.vended_plugins.context_offloader")
    return _strands_preview(result, question, plugins=[offloader.ContextOffloader()])


def strands_auto(result: object, question: str) -> str:
    """Return the preview of the setting `context_manager="auto"`."""
    return _strands_preview(result, question, context_manager="auto")


def _strands_preview(result: object, question: str, **setting: Any) -> str:
    strands = importlib.import_module("strands")
    models = importlib.import_module("strands.models")

    class ScriptedModel(models.Model):  # type: ignore[name-defined]
        turns = 0

        def update_config(self, **_: Any) -> None: ...

        def get_config(self) -> dict[str, Any]:
            return {"context_window_limit": 200_000}

        def structured_output(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def stream(self, *_: Any, **__: Any) -> AsyncIterator[dict[str, Any]]:
            self.turns += 1
            for event in _strands_call() if self.turns == 1 else _strands_text():
                yield event

    def api() -> object:
        """Return the result."""
        return result

    agent = strands.Agent(
        model=ScriptedModel(), tools=[strands.tool(api)], callback_handler=None, **setting
    )
    agent(question)
    blocks = [block for message in agent.messages for block in message["content"]]
    [output] = [block["toolResult"] for block in blocks if "toolResult" in block]
    return "\n".join(block["text"] for block in output["content"])


def _strands_call() -> Iterator[dict[str, Any]]:
    yield {"messageStart": {"role": "assistant"}}
    yield {"contentBlockStart": {"start": {"toolUse": {"name": "api", "toolUseId": "call-1"}}}}
    yield {"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}}}}
    yield {"contentBlockStop": {}}
    yield {"messageStop": {"stopReason": "tool_use"}}


def _strands_text() -> Iterator[dict[str, Any]]:
    yield {"messageStart": {"role": "assistant"}}
    yield {"contentBlockStart": {"start": {}}}
    yield {"contentBlockDelta": {"delta": {"text": "done"}}}
    yield {"contentBlockStop": {}}
    yield {"messageStop": {"stopReason": "end_turn"}}


def haystack(result: object, question: str) -> str:
    """Return the preview of `ToolResultOffloadHook`."""
    agents = importlib.import_module("haystack.components.agents")
    generators = importlib.import_module("haystack.components.generators.chat")
    messages = importlib.import_module("haystack.dataclasses")
    offloading = importlib.import_module("haystack.hooks.tool_result_offloading")

    def api() -> object:
        """Return the result."""
        return result

    replies = [
        messages.ChatMessage.from_assistant(tool_calls=[messages.ToolCall("api", {})]),
        messages.ChatMessage.from_assistant("done"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = offloading.FileSystemToolResultStore(root=folder)
        hook = offloading.ToolResultOffloadHook(store, {"*": offloading.AlwaysOffload()})
        agent = agents.Agent(
            chat_generator=generators.MockChatGenerator(responses=replies),
            tools=[importlib.import_module("haystack.tools").tool(api)],
            hooks={"after_tool": [hook]},
        )
        run = agent.run(messages=[messages.ChatMessage.from_user(question)])
    [output] = [m.tool_call_result for m in run["messages"] if m.tool_call_result]
    return str(output.result)


def deepagents(result: object, question: str) -> str:
    """Return the preview of `FilesystemMiddleware`, which every deep agent has."""
    filesystem = importlib.import_module("deepagents.middleware.filesystem")
    fakes = importlib.import_module("langchain_core.language_models.fake_chat_models")
    messages = importlib.import_module("langchain_core.messages")

    class ScriptedModel(fakes.GenericFakeChatModel):  # type: ignore[name-defined]
        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

    def api() -> object:
        """Return the result."""
        return result

    call = {"name": "api", "args": {}, "id": "call-1"}
    replies = [messages.AIMessage("", tool_calls=[call]), messages.AIMessage("done")]
    agent = importlib.import_module("langchain.agents").create_agent(
        ScriptedModel(messages=iter(replies)),
        [importlib.import_module("langchain_core.tools").tool(api)],
        middleware=[filesystem.FilesystemMiddleware(tool_token_limit_before_evict=1)],
    )
    run = agent.invoke({"messages": [messages.HumanMessage(question)]})
    [output] = [message for message in run["messages"] if message.type == "tool"]
    return str(output.content)


def pydantic_ai_harness(result: object, question: str) -> str:
    """Return the preview of `ToolOutputLimits`."""
    pydantic_ai = importlib.import_module("pydantic_ai")
    models = importlib.import_module("pydantic_ai.models.test")
    limits = importlib.import_module("pydantic_ai_harness.tool_output_limits")

    def api() -> object:
        """Return the result."""
        return result

    with tempfile.TemporaryDirectory() as folder:
        store = limits.LocalFileStore(Path(folder))
        agent = pydantic_ai.Agent(
            models.TestModel(),
            tools=[pydantic_ai.Tool(api)],
            capabilities=[limits.ToolOutputLimits(store=store, tool_filter=["api"])],
        )
        run = agent.run_sync(question)
    parts = [part for message in run.all_messages() for part in message.parts]
    [output] = [p for p in parts if p.part_kind == "tool-return" and p.tool_name == "api"]
    return str(output.content)


def openai_agents(result: object, question: str) -> str:
    """Return the preview of `ToolOutputTrimmer`, which replaces results from the second question on."""
    runs = importlib.import_module("agents.run")
    trimmer = importlib.import_module("agents.extensions").ToolOutputTrimmer()
    items = [
        {"role": "user", "content": question},
        {"type": "function_call", "call_id": "call-1", "name": "api", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call-1", "output": _encoded(result)},
        {"role": "user", "content": question},
        {"role": "user", "content": question},
    ]
    request = runs.ModelInputData(input=items, instructions=None)
    trimmed = trimmer(runs.CallModelData(model_data=request, agent=None, context=None))
    return str(trimmed.input[2]["output"])


def ctxtual(result: object, question: str) -> str:  # noqa: ARG001 - its server is not told
    """Return the notice of `Offload` in a FastMCP server, which a client calls."""
    fastmcp = importlib.import_module("fastmcp")

    def api() -> object:
        """Return the result."""
        return result

    async def call() -> list[Any]:
        async with fastmcp.Client(server) as client:
            output = await client.call_tool("api", {})
        blocks: list[Any] = output.content
        return blocks

    server = fastmcp.FastMCP("peer")
    server.add_middleware(importlib.import_module("ctxtual.mcp").Offload())
    server.tool(api)
    return "\n".join(block.text for block in asyncio.run(call()))


def headroom(result: object, question: str) -> str:
    """Return what `compress` makes of a result, without the model that it would download."""
    compressing = importlib.import_module("headroom")
    call = {"id": "call-1", "type": "function", "function": {"name": "api", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call-1", "content": _encoded(result)},
    ]
    config = compressing.CompressConfig(kompress_model="disabled")
    return str(compressing.compress(messages, config=config).messages[2]["content"])


def _encoded(result: object) -> str:
    return result if isinstance(result, str) else json.dumps(result)


PEERS: Final[dict[str, tuple[str, PeerPreview]]] = {
    "ContextOffloader": ("strands-agents", strands_offloader),
    'context_manager="auto"': ("strands-agents", strands_auto),
    "ToolResultOffloadHook": ("haystack-ai", haystack),
    "FilesystemMiddleware": ("deepagents", deepagents),
    "ToolOutputLimits": ("pydantic-ai-harness", pydantic_ai_harness),
    "ToolOutputTrimmer": ("openai-agents", openai_agents),
    "Offload": ("ctxtual", ctxtual),
    "compress": ("headroom-ai", headroom),
}
"""The package and the preview of each offloader."""


def installed_previews() -> dict[str, PeerPreview]:
    """Return the previews of the installed packages, by package, version and offloader."""
    previews: dict[str, PeerPreview] = {}
    for offloader, (package, preview) in PEERS.items():
        try:
            label = f"{package} {version(package)}, {offloader}"
        except PackageNotFoundError:
            continue
        previews[label] = preview
    return previews
