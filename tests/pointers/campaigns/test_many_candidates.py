"""Very many candidates for one selection."""

import time
from collections.abc import Sequence

import pytest

from llm_common.agents import ContextPointer, ContextRelevanceSelector
from llm_common.core import LLMMessage, MessageRole
from llm_common.selection.relevance import build_relevance_prompt
from llm_common.testing import ScriptedClient
from tests.pointers.campaigns.conftest import ShowFigures

COUNTS = pytest.mark.parametrize(
    "count",
    [pytest.param(1_000, id="short"), pytest.param(10_000, id="full", marks=pytest.mark.torture)],
)


def candidates(count: int) -> list[ContextPointer]:
    return [
        ContextPointer(
            pointer_id=f"{number:012x}",
            query_id="q",
            tool_name="web_search",
            created_at="2025-01-01T00:00:00+00:00",
            summary=f"web_search query=topic {number} of many " + "and more words " * 15,
            result_path="",
        )
        for number in range(count)
    ]


class NaiveSelector:
    """Shows whatever there is."""

    def __init__(self, client: ScriptedClient) -> None:
        self._client = client

    async def select(
        self, *, query: str, pointers: Sequence[ContextPointer]
    ) -> list[ContextPointer]:
        lines = [
            f'{{"id":"{pointer.pointer_id}","summary":"{pointer.summary}"}}' for pointer in pointers
        ]
        await self._client.chat_completion(
            [LLMMessage(role=MessageRole.USER, content="\n".join([query, *lines]))]
        )
        return []


async def shown(
    selector: ContextRelevanceSelector | NaiveSelector, client: ScriptedClient, count: int
) -> tuple[int, int, float]:
    """Return the number and bytes of the candidates that the model saw, and the CPU seconds."""
    pointers = candidates(count)
    start = time.process_time()
    await selector.select(query="topic 77 of many", pointers=pointers)
    seconds = time.process_time() - start
    prompt = "\n".join(str(message.content) for message in client.calls[-1].messages)
    return prompt.count('{"id":'), len(prompt.encode()), seconds


@COUNTS
async def test_of_many_candidates_few_are_shown_l13_s0_39(
    count: int, show_figures: ShowFigures
) -> None:
    client = ScriptedClient([], default='{"pointer_ids":[]}')
    pointers = candidates(count)
    start = time.process_time()
    build_relevance_prompt("topic 77 of many", pointers, max_selected=6, include_digest=False)
    shortlist_s = time.process_time() - start
    number, size, seconds = await shown(ContextRelevanceSelector(client), client, count)
    show_figures(
        shown=number,
        prompt_bytes=size,
        shortlist_cpu_ms=round(shortlist_s * 1e3),
        whole_cpu_ms=round(seconds * 1e3),
    )
    assert 0 < number <= 200
    assert size < 64 * 1024


@COUNTS
async def test_the_harness_catches_a_selector_that_shows_all_l13(
    count: int, show_figures: ShowFigures
) -> None:
    client = ScriptedClient([], default='{"pointer_ids":[]}')
    number, size, _ = await shown(NaiveSelector(client), client, count)
    show_figures(shown=number, prompt_bytes=size)
    assert number == count
    assert size > 64 * 1024
