"""Fold a chat of eighty turns into a small window, and let the model search the folded turns.

    python examples/folding_chat.py [TURNS, at least 40]

The user mentions a door code early on, and asks for it at the end. `fold` keeps each prompt within
4,000 tokens. With a key (ZAI_API_KEY, OPENROUTER_API_KEY, OPENAI_API_KEY) a model answers. Without
one, a script does, which searches.
"""

import asyncio
import json
import sys
from itertools import accumulate, pairwise
from operator import and_, eq
from tempfile import TemporaryDirectory
from typing import Any

from llm_common.agents import FileContextPointerStore, Session
from llm_common.core import (
    LLMClient,
    LLMMessage,
    LLMResponse,
    MessageRole,
    OpenAICompatibleClient,
    config_from_env,
)
from llm_common.history import FoldPolicy, fold
from llm_common.testing import ScriptedClient

FACT = "By the way, the door code of the shed is 7421."
QUESTION = "What was the door code of the shed?"
CHATTER = (
    "Tell me about plant {}: how do I sow, water, prune and harvest it, and what must I never do?"
)


def scripted(messages: list[LLMMessage]) -> LLMResponse | str:
    """Reply as a model that searches for what its prompt does not show."""
    if messages[-1].role == MessageRole.TOOL:
        return f"I looked it up: {messages[-1].content}"
    if messages[-1].content != QUESTION:
        return (
            "Sow it in spring, water it in the evening, and look at the soil before you do "
            "anything else. " * 4
        )
    function = {"name": "search_context", "arguments": '{"words": "door code shed"}'}
    calls = [{"id": "call-1", "type": "function", "function": function}]
    return LLMResponse(
        id="1", model="scripted", content=None, tool_calls=calls, finish_reason="tool_calls"
    )


async def reply(
    client: LLMClient, history: list[Any], store: FileContextPointerStore, prompts: list[str]
) -> None:
    """Run the calls of the model, and add its answer to the history."""
    tools = {tool.name: tool for tool in Session(store, session_id="chat").tools()}
    definitions = [
        {"type": "function", "function": json.loads(tool.definition.text)}
        for tool in tools.values()
    ]
    for _ in range(3):
        folded = await fold(
            history, store=store, session_id="chat", policy=FoldPolicy(max_tokens=4_000)
        )
        prompts.append("\n".join(message.model_dump_json() for message in folded.messages))
        answer = await client.chat_completion(list(folded.messages), tools=definitions)
        history.append(
            LLMMessage(
                role=MessageRole.ASSISTANT, content=answer.content, tool_calls=answer.tool_calls
            )
        )
        for call in answer.tool_calls or ():
            output = await tools[call["function"]["name"]].run(
                json.loads(call["function"]["arguments"])
            )
            history.append(
                LLMMessage(role=MessageRole.TOOL, content=str(output), tool_call_id=call["id"])
            )
        if not answer.tool_calls:
            break


async def main(turns: int) -> None:
    """Print the last answer, and the share of each prompt that begins the next one."""
    client = (
        OpenAICompatibleClient.from_env()
        if config_from_env()
        else ScriptedClient([], default=scripted)
    )
    history: list[Any] = [
        LLMMessage(role=MessageRole.SYSTEM, content="You help a gardener. Search before you guess.")
    ]
    prompts: list[str] = []
    with TemporaryDirectory() as folder:
        for turn in range(turns):
            question = {2: FACT, turns - 1: QUESTION}.get(turn, CHATTER.format(turn))
            history.append(LLMMessage(role=MessageRole.USER, content=question))
            await reply(client, history, FileContextPointerStore(folder), prompts)
    # A provider caches a prompt up to the first character that changed.
    unchanged = [sum(accumulate(map(eq, *pair), and_)) for pair in pairwise(prompts)]
    print(history[-1].content)
    print(f"{len(history)} messages; the largest prompt has {max(map(len, prompts)):,} characters")
    print(f"{sum(unchanged) / sum(map(len, prompts[:-1])):.0%} of each prompt begins the next one")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 80))
