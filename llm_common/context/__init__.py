"""Pack turns, files, memories and stored outputs under one hard budget."""

from llm_common.context.bundle import ContextBundle, ItemAccount
from llm_common.context.comparison import StrategyComparison, compare_strategies
from llm_common.context.compression import Summarise, compress_turns
from llm_common.context.feedback import AdaptiveWeights
from llm_common.context.intent import classify_intent
from llm_common.context.mentions import extract_keywords
from llm_common.context.packer import pack
from llm_common.context.prefetch import PrefetchHint, prefetch_hints
from llm_common.context.request import (
    APIType,
    BudgetAllocation,
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    ExtractedEntity,
    FileMetadata,
    IntentType,
    MemoryMetadata,
    MemorySnippet,
    ProjectState,
    Score,
    Scores,
    TurnEntry,
    UserIntent,
    allocate_budget,
)
from llm_common.context.scoring import MeasuredStrategy, Strategy
from llm_common.context.selector import ContextEvent, ContextSelector, select_and_pack_context
from llm_common.context.spec_scoring import (
    score_context_file,
    score_conversation_turn,
    score_memory_snippet,
)

__all__ = [
    "APIType",
    "AdaptiveWeights",
    "BudgetAllocation",
    "ContextBundle",
    "ContextEvent",
    "ContextFile",
    "ContextSelectionRequest",
    "ContextSelector",
    "DataPoolSnapshot",
    "ExtractedEntity",
    "FileMetadata",
    "IntentType",
    "ItemAccount",
    "MeasuredStrategy",
    "MemoryMetadata",
    "MemorySnippet",
    "PrefetchHint",
    "ProjectState",
    "Score",
    "Scores",
    "Strategy",
    "StrategyComparison",
    "Summarise",
    "TurnEntry",
    "UserIntent",
    "allocate_budget",
    "classify_intent",
    "compare_strategies",
    "compress_turns",
    "extract_keywords",
    "pack",
    "prefetch_hints",
    "score_context_file",
    "score_conversation_turn",
    "score_memory_snippet",
    "select_and_pack_context",
]
