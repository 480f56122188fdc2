"""Doubles of langchain-core's and pydantic-ai's decision models.

They have everything that the adapters rely on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field

AnswersByText = Mapping[str, object]


def answer_to(question: Any, by_text: AnswersByText) -> dict[str, Any]:
    value = by_text[question.instructions]
    if question.type == "noul":
        return {"type": "noul", "noul": value}
    shares = dict(enumerate(value)) if isinstance(value, list) else value
    return {"type": question.type, question.type: 0, "confidence": 0.5, "probabilities": shares}


# --- langchain_core.decisions


class Noul(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["noul"] = "noul"
    instructions: str


class Choice(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["choice"] = "choice"
    criteria: dict[str, Any] = Field(min_length=1)
    instructions: str


class Score(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["score"] = "score"
    criteria: list[Any] = Field(min_length=2)
    instructions: str


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")
    type: str


class ClassifierRequest(TypedDict):
    state: str | Sequence[Any] | Mapping[str, Any]
    questions: Mapping[str, Annotated[Noul | Choice | Score, Field(discriminator="type")]]


class ClassifierResponse(BaseModel):
    model: str
    answers: dict[str, Answer]
    usage: dict[str, int] | None = None


class Runnable:
    async def ainvoke(self, input: Any, config: Any = None, **_: Any) -> Any:  # noqa: A002 - LangChain's name
        raise NotImplementedError


class BaseDecisionModel(BaseModel, Runnable):
    model: str
    by_text: dict[str, Any] = {}
    usage: dict[str, int] | None = None
    fault: Exception | None = None
    model_config = ConfigDict(arbitrary_types_allowed=True)

    async def ainvoke(
        self,
        input: ClassifierRequest,  # noqa: A002
        config: Any = None,
        **_: Any,
    ) -> ClassifierResponse:
        if self.fault is not None:
            raise self.fault
        entries = input["questions"]
        assert all(isinstance(question, Noul | Choice | Score) for question in entries.values())
        replies = {
            name: answer_to(q, self.by_text)
            for name, q in entries.items()
            if q.instructions in self.by_text
        }
        return ClassifierResponse.model_validate(
            {"model": self.model, "answers": replies, "usage": self.usage}
        )


# --- pydantic_ai.models.decision


@dataclass(kw_only=True)
class NoulQuestion:
    instructions: Any = None
    type: Literal["noul"] = "noul"


@dataclass(kw_only=True)
class ChoiceQuestion:
    criteria: dict[str, Any]
    instructions: Any = None
    type: Literal["choice"] = "choice"


@dataclass(kw_only=True)
class ScoreQuestion:
    criteria: list[Any]
    instructions: Any = None
    type: Literal["score"] = "score"


@dataclass(kw_only=True)
class DecisionRequest:
    state: Any
    questions: dict[str, NoulQuestion | ChoiceQuestion | ScoreQuestion]


@dataclass
class RequestUsage:
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Any = None


@dataclass(kw_only=True)
class DecisionResponse:
    answers: dict[str, Any]
    model_name: str
    usage: RequestUsage = field(default_factory=RequestUsage)


@dataclass
class DecisionModel:
    by_text: AnswersByText
    usage: RequestUsage = field(default_factory=RequestUsage)
    fault: Exception | None = None
    model_name: str = "test-model"

    async def decide(
        self, request: DecisionRequest, model_settings: dict[str, Any]
    ) -> DecisionResponse:
        raise NotImplementedError


class SystemOneModel(DecisionModel):
    async def decide(self, request: Any, model_settings: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        assert isinstance(request, DecisionRequest)
        assert model_settings == {}
        replies = {
            name: answer_to(q, self.by_text)
            for name, q in request.questions.items()
            if q.instructions in self.by_text
        }
        answers = {name: Answer.model_validate(answer) for name, answer in replies.items()}
        return DecisionResponse(answers=answers, model_name=self.model_name, usage=self.usage)
