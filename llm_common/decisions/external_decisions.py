"""Decision models of other packages as decision clients, known by their shape.

No package is imported. Shapes read from langchain-core 1.8.2 (`decisions/base.py`,
`decisions/types.py`) and pydantic-ai-slim 2.68.0 (`models/decision.py`, which `SystemOneModel`,
`TypeSafeModel` and `OpenAIDecisionsModel` inherit). Both follow the wire format `systemone`, as
objects.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from time import monotonic
from typing import Any, Protocol, get_type_hints

from pydantic import TypeAdapter

from llm_common._telemetry import Attribute, span
from llm_common.core.external_errors import external_errors
from llm_common.core.models import LLMUsage
from llm_common.decisions.questions import Decisions, Question, State, check_arguments, decisions_of
from llm_common.decisions.wire_formats import systemone_answers, systemone_questions
from llm_common.errors import ModelNotFoundError


class SupportsClassify(Protocol):
    """What is called of a `BaseDecisionModel` of langchain-core."""

    @property
    def model(self) -> str:
        """The model's name at its provider."""

    def ainvoke(self, input: Any, /) -> Awaitable[Any]:  # noqa: A002 - LangChain's name
        """The answers to a dict of `state` and `questions`."""


class SupportsDecide(Protocol):
    """What is called of a `DecisionModel` of pydantic-ai.

    The annotations of its `decide` say what it takes.
    """

    @property
    def model_name(self) -> str:
        """The model's name at its provider."""

    def decide(self, request: Any, model_settings: Any, /) -> Awaitable[Any]:
        """The answers to a request."""


class _ExternalDecisions(ABC):
    """A decision client around an object of another package.

    The object keeps its connections, keys and retries.
    """

    def __init__(self, *, model: str, timeout_s: float) -> None:
        self._model = model
        self._timeout_s = timeout_s

    async def decide(
        self,
        state: State,
        questions: Mapping[str, Question],
        *,
        model: str | None = None,
        timeout_s: float | None = None,
    ) -> Decisions:
        """The answers to all questions about one state, by one call of the wrapped object.

        Args:
            state: What the questions are about.
            questions: By ids, which the wrapped object sends to its endpoint.
            model: None takes the wrapped object's.
            timeout_s: None takes the one that this client was made with.

        Returns:
            An answer, or a reason why there is none, for each question. `cost_usd` is None if the
            package has none.

        Raises:
            LLMTimeoutError: No answer within the deadline, or within the wrapped object's own.
            MalformedReplyError: No usable answer, or an answer to what was not asked.
            LLMError: Any other exception of the wrapped object, as its cause; the subclasses say
                which.
            ValueError: No questions, or a deadline that is not positive.
            TypeError: An argument of the wrong kind, or a state that is not JSON.
        """
        check_arguments(state, questions, timeout_s)
        timeout_s = timeout_s or self._timeout_s
        started = monotonic()
        name = type(self).__name__
        # A lone surrogate, which UTF-8 cannot hold, is sent as `?`.
        text = json.dumps(
            [state, systemone_questions(questions)], ensure_ascii=False, allow_nan=False
        )
        sent_state, sent_questions = json.loads(text.encode(errors="replace"))
        facts: dict[str, Attribute] = {
            "llm_common.model": model or self._model,
            "llm_common.questions": len(questions),
        }
        with span("llm_common.decide", facts):
            with external_errors(name, timeout_s=timeout_s):
                async with asyncio.timeout(timeout_s):
                    answered_by, answers, usage, cost_usd = await self._send(
                        sent_state, sent_questions, model or self._model
                    )
                given = systemone_answers(
                    {"answers": {name: _plain(answer) for name, answer in answers.items()}},
                    questions,
                )
            return decisions_of(
                questions,
                given,
                model=answered_by or model or self._model,
                usage=usage,
                cost_usd=cost_usd,
                latency_ms=round((monotonic() - started) * 1000),
            )

    @abstractmethod
    async def _send(
        self, state: State, questions: Mapping[str, Any], model: str
    ) -> tuple[str, Mapping[str, Any], LLMUsage, float | None]:
        """Model, answers as objects, usage and cost of one call; may raise anything."""


class LangChainDecisions(_ExternalDecisions):
    """Answers through a `BaseDecisionModel` of langchain-core.

    A call that names another model goes to a copy of the object with that name.

    Args:
        decision_model: Never modified.
        timeout_s: Deadline of one call in seconds, retries included.

    Raises:
        TypeError: Its `ainvoke` does not say that it takes questions.
    """

    def __init__(self, decision_model: SupportsClassify, *, timeout_s: float = 10.0) -> None:
        super().__init__(model=decision_model.model, timeout_s=timeout_s)
        self._decision_model = decision_model
        # The annotation of `ainvoke` names the classes of questions; subclasses and Runnable may
        # annotate less.
        methods = (
            vars(kind)["ainvoke"]
            for kind in type(decision_model).__mro__
            if "ainvoke" in vars(kind)
        )
        requests = (get_type_hints(method).get("input") for method in methods)
        request = next(
            (each for each in requests if "questions" in getattr(each, "__annotations__", ())), None
        )
        if request is None:
            raise TypeError(
                f"{type(decision_model).__name__} is no decision model; pass a BaseDecisionModel"
            )
        self._questions = TypeAdapter(get_type_hints(request, include_extras=True)["questions"])

    async def _send(
        self, state: State, questions: Mapping[str, Any], model: str
    ) -> tuple[str, Mapping[str, Any], LLMUsage, float | None]:
        asked: Any = self._decision_model
        if model != self._model:
            asked = asked.model_copy(update={"model": model})
        reply = await asked.ainvoke(
            {"state": state, "questions": self._questions.validate_python(questions)}
        )
        usage = reply.usage or {}
        counts = _usage_of(usage.get("input_tokens"), usage.get("output_tokens"))
        return reply.model, reply.answers, counts, None


class PydanticAIDecisions(_ExternalDecisions):
    """Answers through a `pydantic_ai.models.decision.DecisionModel`, such as a `SystemOneModel`.

    pydantic-ai itself refuses a reply in which any answer is missing, refused or unusable: such a
    call raises MalformedReplyError, where the other clients leave out the one answer.

    Args:
        decision_model: Answers every call; one that names another model fails.
        timeout_s: Deadline of one call in seconds, retries included.
    """

    def __init__(self, decision_model: SupportsDecide, *, timeout_s: float = 10.0) -> None:
        super().__init__(model=decision_model.model_name, timeout_s=timeout_s)
        self._decision_model = decision_model
        # The annotations of the abstract `decide`, that of the last class in the MRO, name the
        # class of a request.
        hints = get_type_hints(
            [
                vars(kind)["decide"]
                for kind in type(decision_model).__mro__
                if "decide" in vars(kind)
            ][-1]
        )
        self._request = TypeAdapter(hints["request"])

    async def _send(
        self, state: State, questions: Mapping[str, Any], model: str
    ) -> tuple[str, Mapping[str, Any], LLMUsage, float | None]:
        if model != self._model:
            raise ModelNotFoundError(
                f"this client has the one model {self._model}; make another for {model[:80]}",
                status=404,
            )
        request = self._request.validate_python({"state": state, "questions": questions})
        reply = await self._decision_model.decide(request, {})
        usage = reply.usage
        cost = getattr(usage, "cost", None)
        counts = _usage_of(usage.input_tokens, usage.output_tokens)
        return reply.model_name, reply.answers, counts, None if cost is None else float(cost)


def _plain(answer: Any) -> dict[str, Any]:
    """An answer object as the wire format has it."""
    probabilities = getattr(answer, "probabilities", None)
    return {
        "type": answer.type,
        "noul": getattr(answer, "noul", None),
        "probabilities": probabilities,
    }


def _usage_of(input_tokens: int | None, output_tokens: int | None) -> LLMUsage:
    prompt, completion = input_tokens or 0, output_tokens or 0
    return LLMUsage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )
