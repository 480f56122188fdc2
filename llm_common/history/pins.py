"""Keeps pinned texts in every prompt, word for word, in one message behind the system messages.

The application pins a text with an argument, or a message with the key `pinned`. The message of the
pins is a function of the session and of the texts. So `fold` recognises its own message when it
folds what it returned, and a text that only looks like it, or that comes from another session, pins
nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from llm_common.core.models import LLMMessage
from llm_common.history.message_shapes import PINS_BEGIN, HistoryMessage, Message
from llm_common.pointers.pointer import text_digest
from llm_common.text.display import fence_nonce, fenced

_PINNED_KEY: Final = "pinned"
_FENCE_BEGIN = re.compile(r"\n<<<(\w+)\n")


def pinned_text(content: str | Message) -> str:
    """Return the text of content to pin.

    Raises:
        TypeError: If it is neither a text nor a message with a text.
    """
    text: object = content
    if isinstance(content, LLMMessage):
        text = content.content
    elif isinstance(content, Mapping):
        message = HistoryMessage(content, content, 0)
        texts = [message.text, *(output.text for output in message.outputs)]
        text = "\n".join(filter(None, texts))
    if not isinstance(text, str) or not text.strip():
        raise TypeError(
            f"pinned content is a {type(content).__name__} without a text; pass a text, or a "
            f"message with one"
        )
    return text


def split_pins(
    messages: Sequence[HistoryMessage], pinned: Sequence[str | Message], *, session_id: str
) -> tuple[list[str], list[HistoryMessage]]:
    """Return the pinned texts, and the messages without the marks of pins.

    The texts are those of the caller, those that an earlier fold pinned, and those of messages with
    the key `pinned`, each once. Such a message also stays at its place until it is folded.

    Raises:
        TypeError: If pinned content has no text.
    """
    if isinstance(pinned, str | Mapping | LLMMessage):
        raise TypeError(f"pinned is a {type(pinned).__name__}; pass a list of what to pin")
    texts = [pinned_text(content) for content in pinned]
    remaining: list[HistoryMessage] = []
    is_head = True
    for message in messages:
        # An earlier fold put its pins directly behind the system messages, and nowhere else.
        earlier = _texts_in(message, session_id) if is_head else []
        is_head = is_head and message.is_system
        texts += earlier
        if message.data.get(_PINNED_KEY):
            texts.append(pinned_text(message.data))
        if not earlier:
            remaining.append(_without_mark(message))
    return [*dict.fromkeys(texts)], remaining


def pins_text(texts: Sequence[str], *, session_id: str) -> str:
    """Return the text of the message with the pinned texts."""
    lines = [PINS_BEGIN]
    for text in texts:
        # The digest binds the nonce to this text, so that nobody can put another one in its fence.
        seed = f"llm_common.history.pin {session_id} {text_digest(text)}"
        lines.append(fenced(text, fence_nonce(text, seed=seed)))
    return "\n".join(lines)


def _texts_in(message: HistoryMessage, session_id: str) -> list[str]:
    """Return the texts of a message that an earlier fold of this session wrote, or no texts."""
    if message.role != "user" or not message.text.startswith(PINS_BEGIN):
        return []
    texts: list[str] = []
    position = len(PINS_BEGIN)
    while begin := _FENCE_BEGIN.match(message.text, position):
        fence_end = f"\n{begin[1]}>>>"
        end = message.text.find(fence_end, begin.end())
        if end < 0:
            return []
        texts.append(message.text[begin.end() : end])
        position = end + len(fence_end)
    return texts if message.text == pins_text(texts, session_id=session_id) else []


def _without_mark(message: HistoryMessage) -> HistoryMessage:
    if isinstance(message.raw, LLMMessage) or _PINNED_KEY not in message.raw:
        return message
    raw, data = dict(message.raw), dict(message.data)
    del raw[_PINNED_KEY], data[_PINNED_KEY]
    return HistoryMessage(raw, data, message.position)
