"""Research two companies: outputs become pointers, one value is queried, a model answers.

    python examples/financial_research.py

With a key (ZAI_API_KEY, OPENROUTER_API_KEY, OPENAI_API_KEY) a model chooses the tools and writes
the answer. Without one, full-text ranking chooses, and the answer is scripted. The companies and
their revenues are made up.
"""

import asyncio
import re

from llm_common.agents import (
    AgenticExecutor,
    ExecutionPlan,
    LexicalToolSelector,
    OffloadPolicy,
    PlannedTask,
    Session,
    ToolCall,
    ToolRegistry,
    ToolSelectionConfig,
    ToolSelector,
)
from llm_common.core import LLMMessage, OpenAICompatibleClient, config_from_env
from llm_common.testing import ScriptedClient

QUESTION = "Which had the higher revenue in 2024-Q4, ACME or GLOBEX?"
# revenue in 2010-Q1, and its growth per quarter
COMPANIES = {"ACME": (410, 11), "GLOBEX": (530, 7)}
TASKS = [
    PlannedTask(id=number, description=f'Get the income statement of the ticker "{ticker}"')
    for number, ticker in enumerate(COMPANIES, start=1)
]
tools = ToolRegistry()


@tools.tool(read_only=True)
def income_statement(ticker: str) -> list[dict[str, str | int]]:
    """Return the revenue of a company by quarter, in millions."""
    first, growth = COMPANIES[ticker]
    return [
        {"quarter": f"{2010 + n // 4}-Q{n % 4 + 1}", "revenue": first + growth * n}
        for n in range(60)
    ]


def scripted_answer(messages: list[LLMMessage]) -> str:
    """Reply as a model that reads the revenues of the quarter in its prompt."""
    revenues = re.findall(r'"2024-Q4","revenue":(\d+)', str(messages[-1].content))
    return f"The revenues in 2024-Q4 are {' and '.join(revenues)} million."


async def main() -> None:
    """Print the outputs as a model sees them, the value that was read back, and the answer."""
    config = config_from_env()
    client = OpenAICompatibleClient(config) if config else ScriptedClient([scripted_answer])
    selector = (
        ToolSelector(client, ToolSelectionConfig(model=config.default_model))
        if config
        else LexicalToolSelector()
    )
    session = Session()
    async with client:
        offload = OffloadPolicy(max_whole_tokens=300, max_preview_tokens=250)
        executor = AgenticExecutor(
            client, tools, session, selector=selector, offload=offload, read_back=True
        )
        answer = await executor.run(QUESTION, plan=ExecutionPlan(tasks=TASKS))

        calls = [
            call
            for result in answer.results
            if isinstance(result.result, list)
            for call in result.result
        ]
        for call in calls:
            print(
                f"Instead of {call['tool']}'s output a model "
                f"sees:\n{call.get('output') or call['error']}\n"
            )
        for pointer in session.results.list_all():
            # The model writes such a SELECT itself. A preview names the table of its result.
            table = f"income_statement_{pointer.pointer_id[:6]}"
            sql = f"SELECT revenue FROM {table} WHERE quarter = '2024-Q4'"
            read = ToolCall(tool="query_context", args={"sql": sql})
            [reading] = await executor.execute_tool_calls(
                [read], task_id=3, query_id=pointer.query_id
            )
            print(f"Query of {pointer.summary}:\n{reading['output']}\n")
        print(
            f"\nAnswer ({answer.status}, prompt of {answer.prompt_tokens:,} tokens): "
            f"{answer.text or answer.problem}"
        )
    await session.clear()  # removes what the run has stored


asyncio.run(main())
