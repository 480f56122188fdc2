"""Plan a question, and let each step use what the earlier steps found.

    python examples/chaining_agent.py

With a key (ZAI_API_KEY, OPENROUTER_API_KEY, OPENAI_API_KEY) a model plans, chooses and answers.
Without one, a script does, which reads only its prompts.
"""

import asyncio
import json
import re
from tempfile import TemporaryDirectory

from llm_common.agents import AgenticExecutor, Planner, RunLimits, Session, ToolRegistry
from llm_common.core import LLMMessage, OpenAICompatibleClient, config_from_env
from llm_common.testing import ScriptedClient

QUESTION, OPEN = "What does the open order of Ann Lee cost?", 1931
tools = ToolRegistry()


@tools.tool
def find_account(name: str) -> dict[str, str]:
    """Return the account id of a customer."""
    return {"account_id": "A-17", "name": name}


@tools.tool
def list_orders(account_id: str) -> list[dict[str, object]]:
    """Return all orders of an account, which may be thousands."""
    return [
        {"order": f"{account_id}-{n}", "status": "open" if n == OPEN else "closed"}
        for n in range(3_000)
    ]


@tools.tool
def order_total(order: str) -> dict[str, object]:
    """Return the total of one order."""
    return {"order": order, "total_usd": 37.5}


def scripted(messages: list[LLMMessage]) -> str:
    """Reply as a model that looks for ids in its prompt."""
    prompt = "\n".join(str(message.content) for message in messages).replace('\\"', '"')
    if "You plan which data" in prompt:
        return json.dumps(
            {"tasks": ["Find the account of Ann Lee", "Find her open order", "Get its total"]}
        )
    if total := re.search(r'"total_usd":\s*([\d.]+)', prompt):
        return f"The open order costs {total[1]} dollars."
    if order := re.search(r"order: (A-\d+-\d+)", prompt):
        call = {"tool": "order_total", "args": {"order": order[1]}}
    elif account := re.search(r'"account_id":"([^"]+)"', prompt):
        call = {"tool": "list_orders", "args": {"account_id": account[1]}}
    else:
        call = {"tool": "find_account", "args": {"name": "Ann Lee"}}
    return json.dumps({"calls": [call]})


async def main() -> None:
    """Print the plan, the calls and the answer."""
    client = (
        OpenAICompatibleClient.from_env()
        if config_from_env()
        else ScriptedClient([], default=scripted)
    )
    plan = await Planner(client).plan(QUESTION, tools)
    with TemporaryDirectory() as folder:
        executor = AgenticExecutor(client, tools, Session(folder), limits=RunLimits(max_calls=20))
        async for event in executor.answer_stream(QUESTION, plan=plan):
            if event.type == "answer":
                print(event.data.text or event.data.problem)
            elif event.type in {"thinking", "tool_call", "error"}:
                print(event.data)


if __name__ == "__main__":
    asyncio.run(main())
