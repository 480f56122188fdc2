"""The two wire formats of decision models: questions as JSON, JSON as answers.

- `systemone`: `POST /v1/systemone`, read from typesafe-sdk 0.7.5 (`_schemas/models.py`, generated
  from the vendor's OpenAPI document) and from pydantic-ai-slim 2.68.0 (`models/system_one.py`).
  Questions and answers are objects by name; a yes/no question is called a noul there.
- `openai`: `POST /v1/decisions`, read from openai 3.54.0 (`types/decision_create_params.py`,
  `types/decision.py`). Questions and answers are lists; the model may refuse single questions.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from llm_common.decisions.questions import REFUSED, Choice, Predicate, Question, State
from llm_common.errors import MalformedReplyError

# resources/decisions.py and types/decision_create_params.py of openai 3.54.0
_MAX_OPENAI_QUESTIONS, _MAX_OPENAI_OPTIONS = 400, 255


@dataclass(frozen=True, slots=True)
class WireFormat:
    """One format.

    Attributes:
        name: As `LLM_COMMON_DECISION_WIRE` names it.
        path: Behind `/v1`.
        max_questions: Of one request; None if it depends on the model.
        max_options: Of one choice; None if it depends on the model.
        fields: Makes the fields of a request, besides the model, from a state and questions.
        answers: Finds the answers in a reply, by the questions' names, in the form that
            `decisions_of` takes.
    """

    name: str
    path: str
    max_questions: int | None
    max_options: int | None
    fields: Callable[[State, Mapping[str, Question]], dict[str, Any]]
    answers: Callable[[Mapping[str, Any], Mapping[str, Question]], dict[str, object]]

    def check_sizes(self, questions: Mapping[str, Question]) -> None:
        """Raises ValueError for more questions or options than the endpoint takes."""
        if self.max_questions is not None and len(questions) > self.max_questions:
            raise ValueError(
                f"there are {len(questions):,} questions; the endpoint takes "
                f"{self.max_questions}: ask in several calls"
            )
        options = max(
            (len(each.options) for each in questions.values() if isinstance(each, Choice)),
            default=0,
        )
        if self.max_options is not None and options > self.max_options:
            raise ValueError(
                f"a choice has {options:,} options; the endpoint takes {self.max_options}: ask "
                "a Predicate for each"
            )


def systemone_questions(questions: Mapping[str, Question]) -> dict[str, dict[str, Any]]:
    """The questions as `POST /v1/systemone` takes them.

    Langchain-core's and pydantic-ai's classes read them too.
    """
    return {name: _systemone_question(question) for name, question in questions.items()}


def _systemone_question(question: Question) -> dict[str, Any]:
    if isinstance(question, Predicate):
        return {"type": "noul", "instructions": question.text}
    if isinstance(question, Choice):
        criteria = {option: description or None for option, description in question.options.items()}
        return {"type": "choice", "instructions": question.text, "criteria": criteria}
    return {"type": "score", "instructions": question.text, "criteria": list(question.levels)}


def systemone_answers(
    payload: Mapping[str, Any], questions: Mapping[str, Question]
) -> dict[str, object]:
    """The answers of a reply; one of another type than its question is None.

    Raises:
        MalformedReplyError: `no_answers` if the reply holds no object of answers.
    """
    answers = payload.get("answers")
    if not isinstance(answers, dict):
        raise _without_answers()
    return {
        name: _systemone_answer(answer, questions.get(name)) for name, answer in answers.items()
    }


def _systemone_answer(answer: object, question: Question | None) -> object:
    if not isinstance(answer, dict):
        return None
    if answer.get("type") == "refusal":
        return REFUSED
    if question is None or answer.get("type") != _systemone_question(question)["type"]:
        return None
    return answer.get("noul" if isinstance(question, Predicate) else "probabilities")


def _openai_question(name: str, question: Question) -> dict[str, Any]:
    asked = {"name": name, "instructions": question.text}
    if isinstance(question, Predicate):
        return asked | {"type": "predicate"}
    if isinstance(question, Choice):
        return asked | {
            "type": "choice",
            "choices": [_named("value", *option) for option in question.options.items()],
        }
    levels = [
        _named("label", str(level), description)
        for level, description in enumerate(question.levels)
    ]
    return asked | {"type": "score", "levels": levels}


def _named(key: str, name: str, description: str) -> dict[str, str]:
    if not description:
        return {key: name}
    return {key: name, "description": description}


def _openai_answers(
    payload: Mapping[str, Any], questions: Mapping[str, Question]
) -> dict[str, object]:
    answers = payload.get("answers")
    if not (isinstance(answers, list) and all(isinstance(answer, dict) for answer in answers)):
        raise _without_answers()
    found = {str(answer.get("name")): answer for answer in answers}
    if len(found) < len(answers):
        raise MalformedReplyError(
            "the reply answers a question twice; check the endpoint, or take another model",
            reason="wrong_question",
        )
    return {name: _openai_answer(answer, questions.get(name)) for name, answer in found.items()}


def _openai_answer(answer: Mapping[str, Any], question: Question | None) -> object:
    kind = answer.get("type")
    if kind == "refusal":
        return REFUSED
    if question is None or kind != _openai_question("", question)["type"]:
        return None
    if isinstance(question, Predicate):
        return answer.get("probability")
    return _by_value(answer.get("probabilities"), str if isinstance(question, Choice) else int)


def _by_value(rows: object, kind: type) -> dict[str, object] | None:
    """Probabilities by option or level.

    None if a row has no value of that type, or two have the same.
    """
    if not (
        isinstance(rows, list)
        and all(isinstance(row, dict) and type(row.get("value")) is kind for row in rows)
    ):
        return None
    found = {str(row["value"]): row.get("probability") for row in rows}
    if len(found) < len(rows):
        return None
    return found


def _without_answers() -> MalformedReplyError:
    return MalformedReplyError(
        "the reply holds no answers; check that the address serves this wire format, or take "
        "another model",
        reason="no_answers",
    )


SYSTEMONE = WireFormat(
    name="systemone",
    path="/systemone",
    max_questions=None,
    max_options=None,
    fields=lambda state, questions: {"state": state, "questions": systemone_questions(questions)},
    answers=systemone_answers,
)
OPENAI = WireFormat(
    name="openai",
    path="/decisions",
    max_questions=_MAX_OPENAI_QUESTIONS,
    max_options=_MAX_OPENAI_OPTIONS,
    fields=lambda state, questions: {
        "input": state
        if isinstance(state, str)
        else json.dumps(state, ensure_ascii=False, allow_nan=False),
        "questions": [_openai_question(name, question) for name, question in questions.items()],
    },
    answers=_openai_answers,
)
WIRE_FORMATS: Mapping[str, WireFormat] = MappingProxyType(
    {wire.name: wire for wire in (SYSTEMONE, OPENAI)}
)
