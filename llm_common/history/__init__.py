"""Folds long histories: what is not shown goes behind pointers, and is found again."""

from llm_common.history.fold import Folded, fold, history_tools, search_history
from llm_common.history.folding import FoldPolicy
from llm_common.history.message_shapes import Message
from llm_common.history.search import FoundMessage

__all__ = [
    "FoldPolicy",
    "Folded",
    "FoundMessage",
    "Message",
    "fold",
    "history_tools",
    "search_history",
]
