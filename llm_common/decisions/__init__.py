"""Decision models: typed questions about a state, answered by probabilities."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports
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

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
