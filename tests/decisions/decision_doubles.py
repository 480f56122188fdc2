"""Decision models in the shape of langchain-core's and pydantic-ai's, small enough to read.

What the adapters rely on of those packages is all here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field

Told = Mapping[str, object]


def answer_to(question: Any, told: Told) -> dict[str, Any]:
    given = told[question.instructions]
    if question.type == "noul":
        return {"type": "noul", "noul": given}
    shares = dict(enumerate(given)) if isinstance(given, list) else given
    return {"type": question.type, question.type: 0, "confidence": 0.5, "probabilities": shares}


# --- in the shape of langchain_core.decisions


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
    told: dict[str, Any] = {}
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
        asked = input["questions"]
        assert all(isinstance(question, Noul | Choice | Score) for question in asked.values())
        found = {
            name: answer_to(q, self.told)
            for name, q in asked.items()
            if q.instructions in self.told
        }
        return ClassifierResponse.model_validate(
            {"model": self.model, "answers": found, "usage": self.usage}
        )


# --- in the shape of pydantic_ai.models.decision


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
    told: Told
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
        found = {
            name: answer_to(q, self.told)
            for name, q in request.questions.items()
            if q.instructions in self.told
        }
        answers = {name: Answer.model_validate(answer) for name, answer in found.items()}
        return DecisionResponse(answers=answers, model_name=self.model_name, usage=self.usage)
