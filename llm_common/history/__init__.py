"""Folds long histories: older messages go behind pointers, where the model can find them."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.history.folding import Folded, fold, search_history
    from llm_common.history.message_shapes import Message
    from llm_common.history.policy import FoldPolicy
    from llm_common.history.search import FoundMessage

__all__ = [
    "FoldPolicy",
    "Folded",
    "FoundMessage",
    "Message",
    "fold",
    "search_history",
]

_MODULES = {
    "FoldPolicy": "llm_common.history.policy",
    "Folded": "llm_common.history.folding",
    "FoundMessage": "llm_common.history.search",
    "Message": "llm_common.history.message_shapes",
    "fold": "llm_common.history.folding",
    "search_history": "llm_common.history.folding",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
