"""`pack_results`: one prompt's context from the results of a session and further items."""

from collections.abc import Sequence

from llm_common._threads import in_thread
from llm_common.agents.session.saved import SavedResults
from llm_common.context.bundle import ContextBundle
from llm_common.context.intent import classify_intent
from llm_common.context.request import (
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    MemorySnippet,
    TurnEntry,
)
from llm_common.context.selector import ContextSelector
from llm_common.core.tokens import TokenCounter
from llm_common.history.policy import HISTORY_TOOL


async def pack_results(
    results: SavedResults,
    query: str,
    *,
    max_tokens: int,
    counter: TokenCounter,
    turns: Sequence[TurnEntry],
    files: Sequence[ContextFile],
    memories: Sequence[MemorySnippet],
) -> ContextBundle:
    """Select what answers a question. See `Session.pack`."""
    if max_tokens <= 0:
        raise ValueError(f"max_tokens is {max_tokens}; pass 1 or more tokens")
    pointers = await in_thread(results.list_all)
    request = ContextSelectionRequest(
        intent=classify_intent(query), token_budget=max_tokens, counter=counter
    )
    pool = DataPoolSnapshot(
        session_log=tuple(turns),
        context_files=tuple(files),
        memory_hits=tuple(memories),
        # Folded messages are left out: the caller passes `turns`.
        tool_outputs=tuple(pointer for pointer in pointers if pointer.tool_name != HISTORY_TOOL),
    )
    return await ContextSelector(store=results).select(request, pool)
