"""Do the constraints of COMPINT stay in a folded prompt, word for word?

COMPINT ("Lost in Compaction", arXiv 2608.11242) has fifteen constraints that a user states once,
before the request of his first, middle or last message. They are in the package `conpact` (MIT),
which is not a dependency and imports `openai`, `datasets` and `tqdm`. No word list was written for one of them. A constraint is held if its
words stand in the prompt, so a paraphrase does not count.

    python -m benchmarks.public.compint chats.json runs.json
    python -m benchmarks.public.compint chats.json --framing bare --limits 2000

A file has a list of conversations, each a list of messages as in chat completions. `direct` puts
the words "For the rest of this session." before a constraint, and `bare` does not.
"""

import argparse
import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from llm_common.agents import InMemoryContextPointerStore
from llm_common.history import FoldPolicy, fold

PLACES: Final = ("top", "middle", "bottom")
SYSTEM: Final = {"role": "system", "content": "You are a helpful assistant."}

Messages = list[dict[str, Any]]


def words_of(text: str) -> str:
    """Return the words of a text in one line."""
    return re.sub(r"\W+", " ", text).strip().lower()


def shortened(messages: Messages, max_tokens: int) -> Messages:
    """Return the oldest messages with some number of tokens, of four characters each."""
    tokens = 0
    for index, message in enumerate(messages):
        tokens += len(json.dumps(message, ensure_ascii=False)) // 4
        if tokens > max_tokens:
            return messages[:index]
    return messages


def placed(messages: Messages, constraint: str, place: str) -> Messages:
    """Return the messages with a constraint before the text of one of the user's."""
    users = [
        index
        for index, message in enumerate(messages)
        if message["role"] == "user" and message.get("content")
    ]
    index = {"top": users[0], "middle": users[len(users) // 2], "bottom": users[-1]}[place]
    changed = [dict(message) for message in messages]
    changed[index]["content"] = f"{constraint}\n{changed[index]['content']}"
    return changed


def constraints(framing: str) -> Iterator[tuple[str, str]]:
    """Yield each constraint, and how a message states it."""
    from conpact.constraints import SCS, render_sc  # type: ignore[import-not-found] # noqa: PLC0415

    for constraint in SCS:
        yield constraint["sc"], render_sc(constraint["sc"], False, framing == "direct")


async def is_held(messages: Messages, constraint: str, limit: int) -> bool:
    folded = await fold(
        [SYSTEM, *messages],
        store=InMemoryContextPointerStore(),
        session_id="compint",
        policy=FoldPolicy(max_tokens=limit),
    )
    prompt = "\n".join(str(dict(message).get("content")) for message in folded.messages)
    return words_of(constraint) in words_of(prompt)


async def measure(conversations: list[Messages], framing: str, limit: int) -> str:
    """Return the share of constraints in view at each place."""
    held: defaultdict[str, list[bool]] = defaultdict(list)
    for messages in conversations:
        for constraint, stated in constraints(framing):
            for place in PLACES:
                changed = placed(messages, stated, place)
                held[place].append(await is_held(changed, constraint, limit))
    return ", ".join(f"{place} {sum(held[place]) / len(held[place]):.2f}" for place in PLACES)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("files", nargs="+", type=Path)
parser.add_argument("--framing", choices=["direct", "bare"], nargs="+", default=["direct", "bare"])
parser.add_argument("--limits", type=int, nargs="+", default=[2_000, 8_000])
parser.add_argument("--max-tokens", type=int, default=100_000, help="of a conversation")
parser.add_argument("--conversations", type=int, default=1, help="of a file")

if __name__ == "__main__":
    options = parser.parse_args()
    for file in options.files:
        read = json.loads(file.read_text())[: options.conversations]
        chats = [shortened(chat, options.max_tokens) for chat in read]
        for name in options.framing:
            for size in options.limits:
                shares = asyncio.run(measure(chats, name, size))
                print(f"{file.stem}, {name}, {size:,} tokens: {shares}", flush=True)
