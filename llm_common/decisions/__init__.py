"""Decision models: typed questions about a state, answered by probabilities instead of text.

A name's module is imported on first use: questions need no HTTP client.
"""

from typing import TYPE_CHECKING

from llm_common._lazy import lazy_exports

if TYPE_CHECKING:
    from llm_common.decisions.external_decisions import (
        LangChainDecisions as LangChainDecisions,
        PydanticAIDecisions as PydanticAIDecisions,
    )
    from llm_common.decisions.http_client import (
        DecisionConfig as DecisionConfig,
        HttpDecisionClient as HttpDecisionClient,
        decision_config_from_env as decision_config_from_env,
    )
    from llm_common.decisions.logprobs import LogprobDecisions as LogprobDecisions
    from llm_common.decisions.questions import (
        REFUSED as REFUSED,
        Choice as Choice,
        DecisionClient as DecisionClient,
        Decisions as Decisions,
        Predicate as Predicate,
        Question as Question,
        Score as Score,
        State as State,
        decisions_of as decisions_of,
    )

__getattr__, __all__ = lazy_exports(__name__)
