"""The model sees true counts of its context."""

import json
import random
from collections.abc import Mapping
from typing import Any

from llm_common.agents import InMemoryContextPointerStore, Session, SessionConfig
from llm_common.core import DefaultCounter
from llm_common.core.tokens import message_tokens
from llm_common.history import FoldPolicy, Message
from llm_common.tools.tool import Tool

COUNTER = DefaultCounter()
LIMIT = 3_000


def session_of(limit: int = LIMIT, **settings: Any) -> Session:
    config = SessionConfig(fold=FoldPolicy(max_tokens=limit), **settings)
    return Session(InMemoryContextPointerStore(), session_id="s", config=config)


def tools_of(session: Session) -> Mapping[str, Tool]:
    return {tool.name: tool for tool in session.tools()}


def call(number: int, name: str, args: dict[str, Any], output: str) -> list[Message]:
    function = {"name": name, "arguments": json.dumps(args)}
    calls = [{"id": f"c{number}", "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"c{number}", "content": output},
    ]


def log_of(rng: random.Random, name: str, words: int = 200) -> str:
    return f"log of {name}: " + " ".join(str(rng.randrange(10**6)) for _ in range(words))


def tokens_of(messages: list[Any]) -> int:
    return sum(message_tokens(message, COUNTER.count) for message in messages)


async def test_the_overview_counts_the_tokens_of_the_prompt() -> None:
    rng = random.Random(1)
    session = session_of()
    messages: list[Message] = [
        {"role": "system", "content": "You read logs."},
        {"role": "user", "content": "Read two logs."},
        *call(1, "read_log", {"name": "a"}, log_of(rng, "a", 150)),
        *call(2, "read_log", {"name": "b"}, log_of(rng, "b", 100)),
    ]
    sent = await session.fold(messages)
    overview = session.overview()
    assert f"{tokens_of(sent):,} of {LIMIT:,} tokens" in overview
    assert COUNTER.count(overview) <= 150
