"""Translate a framework's messages, tools and results into calls of a `Session`."""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from llm_common.agents import Session
from llm_common.errors import ToolError
from llm_common.integrations.delegation import take_over_from_callers
from llm_common.runtime import PerProcess
from llm_common.tools import ToolDefinition

T = TypeVar("T")


async def fold_messages(
    session: Session,
    messages: Sequence[T],
    *,
    read: Callable[[T], Mapping[str, Any]],
    write: Callable[[T | None, str], T],
) -> list[T]:
    """Fold a framework's messages. Messages that do not change stay the same objects.

    Args:
        session: Folds them.
        messages: The whole history in the framework's types, oldest first.
        read: Returns a message as a dict in the shape of chat completions or of Anthropic's.
        write: Returns a copy of a message with another text, which keeps its images. Called with
            None, it returns a new user message with this text.

    Returns:
        The messages to send.

    Raises:
        TokenBudgetError: If the messages that are never folded exceed the limit.
        StoreError: If a folded message could not be stored. Nothing may be sent then.
    """
    numbered: list[dict[str, Any]] = []
    originals: dict[int, T] = {}
    for message in messages:
        fields = {**read(message), "number": len(numbered)}
        # `numbered` keeps each dict alive, so no id is used twice.
        originals[id(fields)] = message
        numbered.append(fields)
    folded: list[T] = []
    for sent in await session.fold(numbered):
        if id(sent) in originals:
            folded.append(originals[id(sent)])
            continue
        assert isinstance(sent, Mapping)
        # A shortened message is a new dict, so only its number leads back to the original.
        original = messages[sent["number"]] if "number" in sent else None
        folded.append(write(original, _content_to_write(sent["content"])))
    return folded


def _content_to_write(content: Any) -> Any:
    """Return a text, or the blocks of a message with tool results."""
    # In Anthropic's shape results are blocks, which the door writes back one by one.
    if isinstance(content, str) or any(block.get("type") == "tool_result" for block in content):
        return content
    # A shortened message has one text, and its images stay in the original.
    return next(block["text"] for block in content if isinstance(block.get("text"), str))


async def choose_tools(
    session: Session,
    tools: Sequence[T],
    *,
    describe: Callable[[T], ToolDefinition | None],
    messages: Sequence[Mapping[str, Any]],
    keep: Collection[str] = (),
) -> list[T]:
    """Return the framework's tools that the next model call shows, in their order.

    Args:
        session: Chooses them.
        tools: The tools in the framework's types.
        describe: Returns the definition of a tool, or None for a tool that always stays, such as
            one that runs at the provider.
        messages: The conversation as dicts, oldest first.
        keep: Names of further tools that always stay.
    """
    described = [(tool, describe(tool)) for tool in tools]
    definitions = [definition for _, definition in described if definition is not None]
    chosen = await session.choose_tools(definitions, messages=messages, keep=keep)
    names = {definition.name for definition in chosen}
    remaining: list[T] = []
    for tool, definition in described:
        if definition is None or definition.name in names:
            remaining.append(tool)
    return remaining


async def read_back(session: Session, tool_name: str, args: Mapping[str, Any]) -> str:
    """Run one of the session's tools and return its answer as a text for the model.

    Raises:
        ToolArgumentsError: If the arguments are not valid. The message tells the model what to do.
        ToolFailedError: If the result cannot be read. The message gives the reason.
    """
    await take_over_from_callers(session)
    tools = {tool.name: tool for tool in session.tools()}
    return str(await tools[tool_name].run(args))


async def read_back_or_explain(session: Session, tool_name: str, args: Mapping[str, Any]) -> str:
    """Return the same as `read_back`, or what the model is told about an error."""
    try:
        return await read_back(session, tool_name, args)
    except ToolError as exc:
        return exc.message


def chat_call(call_id: str | None, name: str, arguments: Any) -> dict[str, Any]:
    """Return a call in the shape of chat completions."""
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def plain_text(content: object) -> str | None:
    """Return a tool's content as one text if it is a text or blocks of text only.

    Returns None for anything else, such as content with an image.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or not content:
        return None
    texts: list[str] = []
    for block in content:
        text = block
        if isinstance(block, Mapping):
            text = block.get("text")
        if not isinstance(text, str):
            return None
        texts.append(text)
    return "\n".join(texts)


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine for a synchronous caller and return its result.

    All such coroutines of a process run on one event loop in a background thread, so the caller's
    thread may run a loop already.
    """
    loop = _LOOP.get()
    # Made before the work begins, as a KeyboardInterrupt may come before its future is known here.
    interrupted = Future[None]()

    async def until_interrupted() -> T:
        task = asyncio.ensure_future(work)
        interrupted.add_done_callback(lambda _: loop.call_soon_threadsafe(task.cancel))
        return await task

    try:
        return asyncio.run_coroutine_threadsafe(until_interrupted(), loop).result()
    except BaseException:
        # KeyboardInterrupt reaches only this thread. Without the cancel, the work would go on.
        interrupted.set_result(None)
        raise


def _start_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    # A daemon, so that the loop does not keep the process alive.
    threading.Thread(target=loop.run_forever, name="llm-common-hooks", daemon=True).start()
    return loop


# A forked child inherits the loop but not its thread, so each process starts its own.
_LOOP: Final = PerProcess(_start_loop)
