"""Folds long histories: older messages go behind pointers, where the model can find them."""

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
