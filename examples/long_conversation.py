"""Measure how much of each prompt a provider's cache knows, in sixty turns with a memory.

    python examples/long_conversation.py [TURNS, at least 2]

Each prompt has the conversation so far and what the memory finds for the question, fitted to a
budget. It begins like the previous prompt if it can. With a key (ZAI_API_KEY, OPENROUTER_API_KEY,
OPENAI_API_KEY) a model answers, with one call per turn. Without one, the answers are scripted. The
memory is a SQLite file in a temporary folder.
"""

import asyncio
import sys
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from llm_common.agents import ContextBuilder, TokenBudget, TriggerInput, fit
from llm_common.core import (
    LLMMessage,
    MessageRole,
    OpenAICompatibleClient,
    answer_text,
    config_from_env,
)
from llm_common.memory import Event, SqliteMemory
from llm_common.testing import ScriptedClient

BUDGET = TokenBudget(max_input_tokens=16_000, max_output_tokens=300)
SYSTEM = "You plan a garden with the user. Answer in one paragraph."
PLANTS = [
    "tomatoes",
    "beans",
    "carrots",
    "garlic",
    "lettuce",
    "leeks",
    "peas",
    "rhubarb",
    "spinach",
    "thyme",
]
JOBS = ["sow", "water", "feed", "prune", "harvest", "cover"]


def question(turn: int) -> str:
    """Return what the user asks in a turn."""
    return (
        f"How do I {JOBS[turn // len(PLANTS) % len(JOBS)]} {PLANTS[turn % len(PLANTS)]} in a "
        f"small garden?"
    )


def scripted_answer(messages: list[LLMMessage]) -> str:
    """Return a paragraph about the question."""
    task = str(messages[-1].content).splitlines()[-1].removeprefix("How do I ").removesuffix("?")
    step = (
        f"To {task}, first look at the soil, then at the weather of the week, and work in "
        f"the evening. "
    )
    return step * 7


def same_start(old: bytes, new: bytes) -> int:
    """Return the number of equal bytes at the start of two prompts."""
    for position, (old_byte, new_byte) in enumerate(zip(old, new, strict=False)):
        if old_byte != new_byte:
            return position
    return min(len(old), len(new))


async def main(turns: int) -> None:
    """Print how much of the prompts stayed the same from turn to turn."""
    client = (
        OpenAICompatibleClient.from_env()
        if config_from_env()
        else ScriptedClient([], default=scripted_answer)
    )
    sent: list[bytes] = []
    with TemporaryDirectory() as folder:
        async with client, SqliteMemory(Path(folder, "memory.db")) as memory:
            # The builder gets no writer, because the prompt has all turns and needs no summary.
            builder = ContextBuilder(reader=memory, system=SYSTEM)
            for turn in range(turns):
                events = await memory.recent("garden", limit=2 * turns)
                history = [LLMMessage(role=event.role, content=event.text) for event in events]
                trigger = TriggerInput(session_id="garden", goal=question(turn), budget=BUDGET)
                messages = fit(await builder.build(trigger, history=history)).to_messages()
                sent.append(
                    "\n".join(f"{message.role}: {message.content}" for message in messages).encode()
                )
                answer = await answer_text(client, messages, model=None, timeout_s=60)
                await memory.append_event(
                    "garden", Event(role=MessageRole.USER, text=question(turn))
                )
                await memory.append_event("garden", Event(role=MessageRole.ASSISTANT, text=answer))

    same = [same_start(old, new) for old, new in pairwise(sent)]
    print(f"{turns} turns, the longest prompt has {max(map(len, sent)):,} bytes")
    print(
        f"unchanged from turn to turn: {sum(same) / sum(map(len, sent[1:])):.1%} of the prompt "
        f"bytes"
    )


asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
