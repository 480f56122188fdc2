"""Store three tool outputs, select the one that answers, and render it for a prompt.

    python examples/minimal.py

With a key (ZAI_API_KEY, OPENROUTER_API_KEY, OPENAI_API_KEY) a model selects. Without one, full-text
ranking does. The outputs stay in `.llm-common/context`.
"""

import asyncio

from llm_common.agents import (
    ContextRelevanceSelector,
    FileContextPointerStore,
    LexicalRelevanceSelector,
    format_selected_contexts,
)
from llm_common.core import OpenAICompatibleClient, config_from_env

QUESTION = "Is it snowing in Oslo?"
REPORTS = {
    "Oslo": "Snow all day, -3 degrees",
    "Lima": "Fog, 18 degrees",
    "Cairo": "Clear, 29 degrees",
}


async def main() -> None:
    """Print the context of the question."""
    store = FileContextPointerStore()
    for city, report in REPORTS.items():
        await store.save(
            query_id="weather", tool_name="weather", args={"city": city}, result=report
        )

    pointers = store.list(query_id="weather")
    if config_from_env():
        async with OpenAICompatibleClient.from_env() as client:
            selection = await ContextRelevanceSelector(client).select_detailed(
                query=QUESTION, pointers=pointers
            )
    else:
        selector = LexicalRelevanceSelector(max_selected=1)
        selection = await selector.select_detailed(query=QUESTION, pointers=pointers)

    print(f"{len(selection.pointers)} of {len(pointers)} outputs chosen ({selection.status})\n")
    print(
        format_selected_contexts(
            pointers=selection.pointers, store=store, max_chars=2_000, query=QUESTION
        )
    )


asyncio.run(main())
