"""Conversations with facts in them, in three shapes."""

import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise, takewhile
from typing import Any

from llm_common.core import LLMMessage, TokenCounter
from llm_common.history import Folded, FoldPolicy, Message, fold
from llm_common.pointers.store import ContextPointerStore, InMemoryContextPointerStore

WORDS = [
    "the",
    "account",
    "order",
    "price",
    "customer",
    "ticket",
    "server",
    "deploy",
    "region",
    "latency",
    "budget",
    "release",
    "notes",
    "quarter",
    "report",
    "metrics",
    "plan",
    "invoice",
    "team",
    "review",
    "branch",
    "cache",
    "schema",
]
FACTS = {
    f"building {number}": f"The door code of building {number} is {7919 * (number + 2) % 9973}."
    for number in range(20)
}

Turn = list[dict[str, Any]]


def prose(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + "."


def said(role: str, text: Any) -> dict[str, Any]:
    return {"role": role, "content": text}


def call_and_output(call_id: Any, name: str, args: Any, output: str) -> Turn:
    """Return a call in OpenAI's shape, and its output."""
    function = {"name": name, "arguments": json.dumps(args)}
    call = {"id": f"c{call_id}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{call_id}", "content": output},
    ]


def calls_for(task: str, *outputs: str, name: str = "read") -> Turn:
    """Return a task of the user, and calls with another argument for each of the outputs."""
    messages = [said("user", task)]
    for number, output in enumerate(outputs):
        messages += call_and_output(number, name, {"number": number}, output)
    return messages


def conversation(turns: int, *, seed: int = 4) -> Turn:
    """Return a conversation in OpenAI's shape with repeated calls.

    Each fact is in one of its turns, and no fact is in the last five.
    """
    messages: Turn = json.loads(_conversation_json(turns, seed))
    return messages


@cache
def _conversation_json(turns: int, seed: int) -> str:
    """Return a conversation as JSON, so that each caller can change a copy."""
    rng = random.Random(seed)
    places = dict(
        zip(rng.sample(range(turns - 5), min(len(FACTS), turns - 5)), FACTS.values(), strict=False)
    )
    messages: Turn = [{"role": "system", "content": f"You help an office. {prose(rng, 60)}"}]
    for turn in range(turns):
        said = f"{prose(rng, 25)} {places.get(turn, '')} {prose(rng, 10)}"
        messages.append({"role": "user", "content": said})
        if turn % 4 == 1:
            call = {"name": "lookup", "arguments": json.dumps({"number": turn % 40})}
            calls = [{"id": f"call_{turn}", "type": "function", "function": call}]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            output = prose(rng, rng.choice([20, 200, 1_500]))
            messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": output})
        messages.append({"role": "assistant", "content": prose(rng, 40)})
    return json.dumps(messages)


def as_openai(messages: Turn) -> Sequence[Message]:
    return [*messages]


def as_ours(messages: Turn) -> list[LLMMessage]:
    return [LLMMessage.model_validate(message) for message in messages]


def as_anthropic(messages: Turn) -> Sequence[Message]:
    shaped: list[Message] = []
    for message in messages[1:]:  # the system's text is no message there
        if message["role"] == "tool":
            block = {
                "type": "tool_result",
                "tool_use_id": message["tool_call_id"],
                "content": message["content"],
            }
            shaped.append({"role": "user", "content": [block]})
        elif message.get("tool_calls"):
            uses = [
                {
                    "type": "tool_use",
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "input": json.loads(call["function"]["arguments"]),
                }
                for call in message["tool_calls"]
            ]
            shaped.append({"role": "assistant", "content": uses})
        else:
            shaped.append(message)
    return shaped


SHAPES: dict[str, Callable[[Turn], Sequence[Message]]] = {
    "openai": as_openai,
    "anthropic": as_anthropic,
    "ours": as_ours,
}


def plain(message: Any) -> dict[str, Any]:
    return (
        message.model_dump(mode="json", exclude_none=True)
        if isinstance(message, LLMMessage)
        else message
    )


def as_bytes(messages: Any) -> bytes:
    return "\n".join(json.dumps(plain(message), sort_keys=True) for message in messages).encode()


def mean_shared_prefix(prompts: Sequence[bytes]) -> float:
    """Return the mean share of a prompt with which the next one begins."""
    shares = []
    for before, after in pairwise(prompts):
        pairs = zip(before, after, strict=False)
        shares.append(
            sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) / len(before)
        )
    return sum(shares) / len(shares)


def texts_of(messages: Any) -> list[str]:
    return [str(plain(message).get("content")) for message in messages]


async def folded(
    messages: Any,
    max_tokens: int = 2_000,
    *,
    store: ContextPointerStore | None = None,
    session_id: str = "s",
    pinned: Any = (),
    counter: TokenCounter | None = None,
    ttl_s: float | None = None,
    **policy: Any,
) -> Folded:
    """Fold a history in memory, unless a store is given."""
    return await fold(
        messages,
        store=store or InMemoryContextPointerStore(),
        session_id=session_id,
        policy=FoldPolicy(max_tokens=max_tokens, **policy),
        counter=counter,
        ttl_s=ttl_s,
        pinned=pinned,
    )


def note_of(result: Folded) -> str:
    """Return the note about the folded messages."""
    [note] = (text for text in texts_of(result.messages) if text.startswith("Earlier messages are"))
    return note
