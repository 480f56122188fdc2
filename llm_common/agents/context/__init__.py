"""Packs turns, files, memories, project state and stored outputs under one hard budget, and says why.

A name's module is imported when the name is first asked for, so that nobody waits for parts that are not used.
"""

from typing import TYPE_CHECKING

from llm_common._faces import late_names

if TYPE_CHECKING:
    from llm_common.agents.context.budget import allocate_budget, effective_budget
    from llm_common.agents.context.bundle import FRACTIONS, BundleMetadata, ContextBundle, Form, ItemAccount
    from llm_common.agents.context.comparison import StrategyComparison, StrategyOutcome, compare_strategies
    from llm_common.agents.context.compression import COMPRESSED_IDS, SUMMARY_ROLE, Summarise, compress_turns
    from llm_common.agents.context.entities import extract_entities, extract_keywords
    from llm_common.agents.context.events import ContextEvent, Listener
    from llm_common.agents.context.feedback import AdaptiveWeights
    from llm_common.agents.context.intent import classify_intent
    from llm_common.agents.context.intent_classifier import LLMIntentClassifier
    from llm_common.agents.context.measured_scoring import MeasuredStrategy
    from llm_common.agents.context.packing import pack
    from llm_common.agents.context.pool import (
        ContextFile,
        DataPoolSnapshot,
        FileMetadata,
        MemoryMetadata,
        MemorySnippet,
        ProjectState,
        TurnEntry,
    )
    from llm_common.agents.context.prefetch import PrefetchHint, PrefetchReason, prefetch_hints
    from llm_common.agents.context.request import (
        APIType,
        BudgetAllocation,
        ContextSelectionRequest,
        ExtractedEntity,
        IntentMetadata,
        IntentType,
        Score,
        Scores,
        UserIntent,
    )
    from llm_common.agents.context.scoring import (
        STRATEGIES,
        Strategy,
        score_context_file,
        score_conversation_turn,
        score_memory_snippet,
        score_pool,
    )
    from llm_common.agents.context.selector import ContextSelector, select_and_pack_context

__all__ = [
    "COMPRESSED_IDS",
    "FRACTIONS",
    "STRATEGIES",
    "SUMMARY_ROLE",
    "APIType",
    "AdaptiveWeights",
    "BudgetAllocation",
    "BundleMetadata",
    "ContextBundle",
    "ContextEvent",
    "ContextFile",
    "ContextSelectionRequest",
    "ContextSelector",
    "DataPoolSnapshot",
    "ExtractedEntity",
    "FileMetadata",
    "Form",
    "IntentMetadata",
    "IntentType",
    "ItemAccount",
    "LLMIntentClassifier",
    "Listener",
    "MeasuredStrategy",
    "MemoryMetadata",
    "MemorySnippet",
    "PrefetchHint",
    "PrefetchReason",
    "ProjectState",
    "Score",
    "Scores",
    "Strategy",
    "StrategyComparison",
    "StrategyOutcome",
    "Summarise",
    "TurnEntry",
    "UserIntent",
    "allocate_budget",
    "classify_intent",
    "compare_strategies",
    "compress_turns",
    "effective_budget",
    "extract_entities",
    "extract_keywords",
    "pack",
    "prefetch_hints",
    "score_context_file",
    "score_conversation_turn",
    "score_memory_snippet",
    "score_pool",
    "select_and_pack_context",
]

_HOMES = {
    "budget": ("allocate_budget", "effective_budget"),
    "bundle": ("BundleMetadata", "ContextBundle", "FRACTIONS", "Form", "ItemAccount"),
    "comparison": ("StrategyComparison", "StrategyOutcome", "compare_strategies"),
    "compression": ("COMPRESSED_IDS", "SUMMARY_ROLE", "Summarise", "compress_turns"),
    "entities": ("extract_entities", "extract_keywords"),
    "events": ("ContextEvent", "Listener"),
    "feedback": ("AdaptiveWeights",),
    "intent": ("classify_intent",),
    "intent_classifier": ("LLMIntentClassifier",),
    "measured_scoring": ("MeasuredStrategy",),
    "packing": ("pack",),
    "pool": (
        "ContextFile",
        "DataPoolSnapshot",
        "FileMetadata",
        "MemoryMetadata",
        "MemorySnippet",
        "ProjectState",
        "TurnEntry",
    ),
    "prefetch": ("PrefetchHint", "PrefetchReason", "prefetch_hints"),
    "request": (
        "APIType",
        "BudgetAllocation",
        "ContextSelectionRequest",
        "ExtractedEntity",
        "IntentMetadata",
        "IntentType",
        "Score",
        "Scores",
        "UserIntent",
    ),
    "scoring": (
        "STRATEGIES",
        "Strategy",
        "score_context_file",
        "score_conversation_turn",
        "score_memory_snippet",
        "score_pool",
    ),
    "selector": ("ContextSelector", "select_and_pack_context"),
}

__getattr__ = late_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
