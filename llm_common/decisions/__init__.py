"""Decision models: typed questions about a state, answered by probabilities."""

from importlib import import_module
from typing import TYPE_CHECKING

from llm_common.decisions.questions import (
    REFUSED,
    Choice,
    DecisionClient,
    Decisions,
    Predicate,
    Question,
    Score,
    State,
    decisions_of,
)
from llm_common.errors import missing_name

if TYPE_CHECKING:
    from llm_common.decisions.external_decisions import LangChainDecisions, PydanticAIDecisions
    from llm_common.decisions.http_client import (
        DecisionConfig,
        HttpDecisionClient,
        decision_config_from_env,
    )
    from llm_common.decisions.logprobs import LogprobDecisions
    from llm_common.decisions.selectors import DecisionRelevanceSelector, DecisionToolSelector

__all__ = [
    "REFUSED",
    "Choice",
    "DecisionClient",
    "DecisionConfig",
    "DecisionRelevanceSelector",
    "DecisionToolSelector",
    "Decisions",
    "HttpDecisionClient",
    "LangChainDecisions",
    "LogprobDecisions",
    "Predicate",
    "PydanticAIDecisions",
    "Question",
    "Score",
    "State",
    "decision_config_from_env",
    "decisions_of",
]

# Questions need neither a client nor a selector: their modules are imported on first use.
_MODULES = {
    "DecisionConfig": "llm_common.decisions.http_client",
    "DecisionRelevanceSelector": "llm_common.decisions.selectors",
    "DecisionToolSelector": "llm_common.decisions.selectors",
    "HttpDecisionClient": "llm_common.decisions.http_client",
    "LangChainDecisions": "llm_common.decisions.external_decisions",
    "LogprobDecisions": "llm_common.decisions.logprobs",
    "PydanticAIDecisions": "llm_common.decisions.external_decisions",
    "decision_config_from_env": "llm_common.decisions.http_client",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    if name not in _MODULES:
        raise missing_name(__name__, name)
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
