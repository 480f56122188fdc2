"""Adapters that turn decision models of other packages into decision clients.

None of those packages is imported. Their classes were read from langchain-core 1.8.2
(`decisions/base.py`, `decisions/types.py`) and pydantic-ai-slim 2.68.0 (`models/decision.py`, the
base of `SystemOneModel`, `TypeSafeModel` and `OpenAIDecisionsModel`). Both follow the wire format
`systemone`, as objects.
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
    """The members that are used of a `BaseDecisionModel` of langchain-core."""

    @property
    def model(self) -> str:
        """Return the model's name at its provider."""

    def ainvoke(self, input: Any, /) -> Awaitable[Any]:  # noqa: A002 - LangChain's name
        """Return the answers to a dict of `state` and `questions`."""


class SupportsDecide(Protocol):
    """The members that are used of a `DecisionModel` of pydantic-ai.

    The annotations of its `decide` name the class of a request.
    """

    @property
    def model_name(self) -> str:
        """Return the model's name at its provider."""

    def decide(self, request: Any, model_settings: Any, /) -> Awaitable[Any]:
        """Return the answers to a request."""


class _ExternalDecisions(ABC):
    """A decision client that wraps an object of another package.

    The wrapped object keeps its connections, keys and retries.
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
        """Return the answers to all questions about one state, with one call.

        Args:
            state: The subject of the questions.
            questions: The questions by id. The wrapped object sends the ids to its endpoint.
            model: None uses the wrapped object's model.
            timeout_s: Deadline in seconds. None uses the client's.

        Returns:
            An answer, or the reason for its absence, for each question. `cost_usd` is None if the
            package reports none.

        Raises:
            LLMTimeoutError: If no answer came within the deadline, or within the wrapped object's.
            MalformedReplyError: If no answer is usable, or the reply answers a question that was
                not sent.
            LLMError: For any other exception of the wrapped object, which is its cause. The
                subclass says which.
            ValueError: If there are no questions, or the deadline is not positive.
            TypeError: If an argument has the wrong type, or the state is not JSON.
        """
        check_arguments(state, questions, timeout_s)
        model = model or self._model
        timeout_s = timeout_s or self._timeout_s
        started = monotonic()
        # A lone surrogate, which UTF-8 cannot encode, is sent as `?`.
        text = json.dumps(
            [state, systemone_questions(questions)], ensure_ascii=False, allow_nan=False
        )
        sent_state, sent_questions = json.loads(text.encode(errors="replace"))
        attributes: dict[str, Attribute] = {
            "llm_common.model": model,
            "llm_common.questions": len(questions),
        }
        with span("llm_common.decide", attributes):
            with external_errors(type(self).__name__, timeout_s=timeout_s):
                # Inside the block above, which translates the TimeoutError.
                async with asyncio.timeout(timeout_s):
                    answered_by, objects, usage, cost_usd = await self._send(
                        sent_state, sent_questions, model
                    )
                # Inside the block: attributes of third-party objects may raise anything.
                answers = {name: _plain(answer) for name, answer in objects.items()}
                raw_answers = systemone_answers({"answers": answers}, questions)
            return decisions_of(
                questions,
                raw_answers,
                model=answered_by or model,
                usage=usage,
                cost_usd=cost_usd,
                latency_ms=round((monotonic() - started) * 1000),
            )

    @abstractmethod
    async def _send(
        self, state: State, questions: Mapping[str, Any], model: str
    ) -> tuple[str, Mapping[str, Any], LLMUsage, float | None]:
        """Return model, answer objects, usage and cost of one call. May raise anything."""


class LangChainDecisions(_ExternalDecisions):
    """A decision client that calls a `BaseDecisionModel` of langchain-core.

    A call that names another model is made on a copy of the object with that name.

    Args:
        decision_model: The object to call, which is never modified.
        timeout_s: Deadline of one call in seconds, retries included.

    Raises:
        TypeError: If the annotations of `ainvoke` mention no questions.
    """

    def __init__(self, decision_model: SupportsClassify, *, timeout_s: float = 10.0) -> None:
        super().__init__(model=decision_model.model, timeout_s=timeout_s)
        self._decision_model = decision_model
        # Runnable, and subclasses, may annotate `ainvoke` without questions.
        for method in _definitions(decision_model, "ainvoke"):
            request = get_type_hints(method).get("input")
            if "questions" in getattr(request, "__annotations__", ()):
                break
        else:
            raise TypeError(
                f"{type(decision_model).__name__} is not a decision model; pass a BaseDecisionModel"
            )
        # With extras, since the discriminator of the question types is one.
        self._questions = TypeAdapter(get_type_hints(request, include_extras=True)["questions"])

    async def _send(
        self, state: State, questions: Mapping[str, Any], model: str
    ) -> tuple[str, Mapping[str, Any], LLMUsage, float | None]:
        decision_model: Any = self._decision_model
        if model != self._model:  # a copy, since the object may be shared
            decision_model = decision_model.model_copy(update={"model": model})
        reply = await decision_model.ainvoke(
            {"state": state, "questions": self._questions.validate_python(questions)}
        )
        counts = reply.usage or {}
        usage = _usage_of(counts.get("input_tokens"), counts.get("output_tokens"))
        return reply.model, reply.answers, usage, None


class PydanticAIDecisions(_ExternalDecisions):
    """A decision client that calls a `DecisionModel` of pydantic-ai.

    pydantic-ai itself rejects a reply in which any answer is missing, refused or unusable. Such a
    call raises MalformedReplyError, while the other clients leave out the one answer.

    Args:
        decision_model: The object to call. A call that names another model fails.
        timeout_s: Deadline of one call in seconds, retries included.
    """

    def __init__(self, decision_model: SupportsDecide, *, timeout_s: float = 10.0) -> None:
        super().__init__(model=decision_model.model_name, timeout_s=timeout_s)
        self._decision_model = decision_model
        # The last class in the MRO, whose `decide` is abstract, names the class of a request.
        hints = get_type_hints(_definitions(decision_model, "decide")[-1])
        self._request = TypeAdapter(hints["request"])

    async def _send(
        self, state: State, questions: Mapping[str, Any], model: str
    ) -> tuple[str, Mapping[str, Any], LLMUsage, float | None]:
        if model != self._model:
            raise ModelNotFoundError(
                f"this client has only the model {self._model}; make another for {model[:80]}",
                status=404,
            )
        request = self._request.validate_python({"state": state, "questions": questions})
        reply = await self._decision_model.decide(request, {})
        usage = reply.usage
        cost = getattr(usage, "cost", None)  # since pydantic-ai 2
        counts = _usage_of(usage.input_tokens, usage.output_tokens)
        return reply.model_name, reply.answers, counts, None if cost is None else float(cost)


def _definitions(owner: object, method: str) -> list[Any]:
    """Return a method as each class of an object defines it, subclasses first."""
    return [vars(base)[method] for base in type(owner).__mro__ if method in vars(base)]


def _plain(answer: Any) -> dict[str, Any]:
    """Return an answer object in the wire format."""
    return {
        "type": answer.type,
        "noul": getattr(answer, "noul", None),
        "probabilities": getattr(answer, "probabilities", None),
    }


def _usage_of(input_tokens: int | None, output_tokens: int | None) -> LLMUsage:
    prompt, completion = input_tokens or 0, output_tokens or 0
    return LLMUsage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )
