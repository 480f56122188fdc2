"""What the hooks of every framework need to translate its shapes into calls of a `Session`."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from llm_common._threads import PerProcess
from llm_common.agents.session import Session

T = TypeVar("T")


async def fold_messages(
    session: Session,
    messages: Sequence[T],
    *,
    read: Callable[[T], Mapping[str, Any]],
    write: Callable[[T | None, str], T],
) -> list[T]:
    """Fold a framework's messages. Those that stay as they are are the same objects.

    Args:
        session: Folds them.
        messages: The framework's messages, oldest first, and always the whole history.
        read: Returns a message as a dict in the shape of chat completions or of Anthropic's.
        write: Returns a copy of a message with another text, which keeps its images. For None, a
            message of the user with this text.

    Raises:
        TokenBudgetError: If what is never folded is over the limit.
        StoreError: If what is folded could not be stored. Nothing may be sent then.
    """
    # A number tells which message of the framework a dict stands for, also after it was cut.
    numbered = [{**read(message), "number": number} for number, message in enumerate(messages)]
    unchanged = {id(message) for message in numbered}
    folded: list[T] = []
    for message in await session.fold(numbered):
        assert isinstance(message, Mapping)
        original = messages[message["number"]] if "number" in message else None
        if original is not None and id(message) in unchanged:
            folded.append(original)
        else:
            folded.append(write(original, _content_to_write(message["content"])))
    return folded


def _content_to_write(content: Any) -> Any:
    """Return a text, or blocks where some of them are outputs."""
    if isinstance(content, str) or any(block.get("type") == "tool_result" for block in content):
        return content
    return next(block["text"] for block in content if isinstance(block.get("text"), str))


async def read_back(session: Session, tool_name: str, args: Mapping[str, Any]) -> str:
    """Return what one of the session's tools answers, as a text for the model.

    Raises:
        ToolArgumentsError: If the arguments do not fit. The message tells the model what to do.
        ToolFailedError: If the result cannot be read. The message says why.
    """
    reader, search = session.tools()
    tool = search if tool_name == search.name else reader
    return str(await tool.run(args))


def plain_text(content: object) -> str | None:
    """Return a tool's content as one text: a text, or blocks that are all text.

    None for anything else, such as an image.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or not content:
        return None
    texts = []
    for block in content:
        text = block.get("text") if isinstance(block, Mapping) else block
        if not isinstance(text, str):
            return None
        texts.append(text)
    return "\n".join(texts)


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns, for a caller that is not asynchronous.

    All such work of a process runs on one event loop, in a thread of its own, so that it also
    works beside a running event loop.
    """
    done = asyncio.run_coroutine_threadsafe(work, _LOOP.get())
    try:
        return done.result()
    except BaseException:  # the caller was interrupted, or the work failed and is done
        done.cancel()
        raise


def _start_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="llm-common-hooks", daemon=True).start()
    return loop


_LOOP: Final = PerProcess(_start_loop)
