"""Folds long histories: older messages go behind pointers, where the model can find them."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.history.compaction_losses import (
        Losses as Losses,
        contains_value as contains_value,
        losses as losses,
        values_needed as values_needed,
    )
    from llm_common.history.folding import Folded, fold, search_history
    from llm_common.history.message_shapes import (
        HistoryMessage as HistoryMessage,
        Message,
        called_outputs as called_outputs,
        read_messages as read_messages,
        text_of as text_of,
        texts_of as texts_of,
    )
    from llm_common.history.policy import FoldPolicy
    from llm_common.history.search import FoundMessage

# The other names are for the applications of this library, and may change.
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
    "HistoryMessage": "llm_common.history.message_shapes",
    "Losses": "llm_common.history.compaction_losses",
    "Message": "llm_common.history.message_shapes",
    "called_outputs": "llm_common.history.message_shapes",
    "contains_value": "llm_common.history.compaction_losses",
    "fold": "llm_common.history.folding",
    "losses": "llm_common.history.compaction_losses",
    "read_messages": "llm_common.history.message_shapes",
    "search_history": "llm_common.history.folding",
    "text_of": "llm_common.history.message_shapes",
    "texts_of": "llm_common.history.message_shapes",
    "values_needed": "llm_common.history.compaction_losses",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
