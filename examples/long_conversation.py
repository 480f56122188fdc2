"""A conversation of sixty turns with a memory: how much of each prompt a provider's cache already knows.

    python examples/long_conversation.py [TURNS, at least 2]

Each prompt is built of the conversation so far and what the memory finds for the question, then
fitted to its budget; it begins as the one before wherever it can. With a key (ZAI_API_KEY,
OPENROUTER_API_KEY, OPENAI_API_KEY) a model answers, one call a turn; without one the answers are
scripted. The memory is a SQLite file in a temporary folder.
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
    """What the user asks in a turn."""
    return (
        f"How do I {JOBS[turn // len(PLANTS) % len(JOBS)]} {PLANTS[turn % len(PLANTS)]} in a "
        f"small garden?"
    )


def scripted_answer(messages: list[LLMMessage]) -> str:
    """A paragraph about what was asked."""
    asked = str(messages[-1].content).splitlines()[-1].removeprefix("How do I ").removesuffix("?")
    step = (
        f"To {asked}, first look at the soil, then at the weather of the week, and work in "
        f"the evening. "
    )
    return step * 7


def same_start(old: bytes, new: bytes) -> int:
    """With how many bytes in common two prompts begin."""
    return next(
        (place for place, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(old)
    )


async def main(turns: int) -> None:
    """Prints how much of the prompts stayed the same from turn to turn."""
    client = (
        OpenAICompatibleClient.from_env()
        if config_from_env()
        else ScriptedClient([], default=scripted_answer)
    )
    sent: list[bytes] = []
    with TemporaryDirectory() as folder:
        async with client, SqliteMemory(Path(folder, "memory.db")) as memory:
            # no summary of turns that are in the prompt anyhow
            builder = ContextBuilder(reader=memory, system=SYSTEM)
            for turn in range(turns):
                said = await memory.recent("garden", limit=2 * turns)
                history = [LLMMessage(role=event.role, content=event.text) for event in said]
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
