"""Packs turns, files, memories and stored outputs under one hard budget."""

from llm_common.context.bundle import FRACTIONS, BundleMetadata, ContextBundle, Form, ItemAccount
from llm_common.context.extras.comparison import (
    StrategyComparison,
    StrategyOutcome,
    compare_strategies,
)
from llm_common.context.extras.compression import (
    COMPRESSED_IDS,
    SUMMARY_ROLE,
    Summarise,
    compress_turns,
)
from llm_common.context.extras.feedback import AdaptiveWeights
from llm_common.context.extras.llm_intent import LLMIntentClassifier
from llm_common.context.extras.prefetch import PrefetchHint, PrefetchReason, prefetch_hints
from llm_common.context.intent import classify_intent
from llm_common.context.mentions import extract_entities, extract_keywords
from llm_common.context.packing import pack
from llm_common.context.request import (
    APIType,
    BudgetAllocation,
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    ExtractedEntity,
    FileMetadata,
    IntentMetadata,
    IntentType,
    MemoryMetadata,
    MemorySnippet,
    ProjectState,
    Score,
    Scores,
    TurnEntry,
    UserIntent,
    allocate_budget,
    effective_budget,
)
from llm_common.context.scoring import STRATEGIES, MeasuredStrategy, Strategy, score_pool
from llm_common.context.selector import (
    ContextEvent,
    ContextSelector,
    Listener,
    select_and_pack_context,
)
from llm_common.context.spec_scoring import (
    score_context_file,
    score_conversation_turn,
    score_memory_snippet,
)

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
