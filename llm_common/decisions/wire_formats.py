"""The two wire formats of decision models.

- `systemone`: `POST /v1/systemone`, read from typesafe-sdk 0.7.5 (`_schemas/models.py`, generated
  from the vendor's OpenAPI document) and from pydantic-ai-slim 2.68.0 (`models/system_one.py`).
  Questions and answers are objects by name. A yes/no question is called a noul there.
- `openai`: `POST /v1/decisions`, read from openai 3.54.0 (`types/decision_create_params.py`,
  `types/decision.py`). Questions and answers are lists. The model may refuse single questions.
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
    """A format of requests and replies.

    Attributes:
        name: Value of `LLM_COMMON_DECISION_WIRE`.
        path: Path of the endpoint after `/v1`.
        max_questions: Maximum number of questions in a request. None if the model decides.
        max_options: Maximum number of options of a choice. None if the model decides.
        fields: Returns the fields of a request other than the model, from a state and questions.
        answers: Returns the answers of a reply by question name, as `decisions_of` takes them.
    """

    name: str
    path: str
    max_questions: int | None
    max_options: int | None
    fields: Callable[[State, Mapping[str, Question]], dict[str, Any]]
    answers: Callable[[Mapping[str, Any], Mapping[str, Question]], dict[str, object]]

    def check_sizes(self, questions: Mapping[str, Question]) -> None:
        """Check that the endpoint accepts so many questions and options.

        Raises:
            ValueError: If there are more.
        """
        if self.max_questions is not None and len(questions) > self.max_questions:
            raise ValueError(
                f"there are {len(questions):,} questions, and the endpoint accepts "
                f"{self.max_questions}; ask in several calls"
            )
        for question in questions.values():
            if self.max_options is None or not isinstance(question, Choice):
                continue
            if len(question.options) > self.max_options:
                raise ValueError(
                    f"a choice has {len(question.options):,} options, and the endpoint accepts "
                    f"{self.max_options}; ask a Predicate for each"
                )


def state_text(state: State) -> str:
    """Return a state as text: JSON unless it is a text already."""
    if isinstance(state, str):
        return state
    return json.dumps(state, ensure_ascii=False, allow_nan=False)


def systemone_questions(questions: Mapping[str, Question]) -> dict[str, dict[str, Any]]:
    """Return questions in the form of `POST /v1/systemone`.

    langchain-core and pydantic-ai validate their own question classes from this form.
    """
    return {name: _systemone_question(question) for name, question in questions.items()}


def _systemone_question(question: Question) -> dict[str, Any]:
    if isinstance(question, Predicate):
        return {"type": "noul", "instructions": question.text}
    if isinstance(question, Choice):
        # An option without a description is null, not "".
        criteria = {option: description or None for option, description in question.options.items()}
        return {"type": "choice", "instructions": question.text, "criteria": criteria}
    return {"type": "score", "instructions": question.text, "criteria": list(question.levels)}


def systemone_answers(
    payload: Mapping[str, Any], questions: Mapping[str, Question]
) -> dict[str, object]:
    """Return the answers of a reply by name, None for one whose type is not its question's.

    Raises:
        MalformedReplyError: `no_answers` if the reply has no object of answers.
    """
    entries = payload.get("answers")
    if not isinstance(entries, dict):
        raise _missing_answers()
    answers: dict[str, object] = {}
    for name, entry in entries.items():
        question = questions.get(name)
        kind = entry.get("type") if isinstance(entry, dict) else None
        if kind == "refusal":
            answers[name] = REFUSED
        elif question is None or kind != _systemone_question(question)["type"]:
            answers[name] = None
        else:
            key = "noul" if isinstance(question, Predicate) else "probabilities"
            answers[name] = entry.get(key)
    return answers


def _openai_fields(state: State, questions: Mapping[str, Question]) -> dict[str, Any]:
    entries = [_openai_question(name, question) for name, question in questions.items()]
    return {"input": state_text(state), "questions": entries}


def _openai_question(name: str, question: Question) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "instructions": question.text}
    if isinstance(question, Predicate):
        return entry | {"type": "predicate"}
    if isinstance(question, Choice):
        choices = [_described("value", *option) for option in question.options.items()]
        return entry | {"type": "choice", "choices": choices}
    # A scale has no names, so its levels are labelled by number.
    levels = []
    for level, description in enumerate(question.levels):
        levels.append(_described("label", str(level), description))
    return entry | {"type": "score", "levels": levels}


def _described(key: str, name: str, description: str) -> dict[str, str]:
    if not description:
        return {key: name}
    return {key: name, "description": description}


def _openai_answers(
    payload: Mapping[str, Any], questions: Mapping[str, Question]
) -> dict[str, object]:
    entries = payload.get("answers")
    if not (isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)):
        raise _missing_answers()
    answers: dict[str, object] = {}
    for entry in entries:
        # A missing name becomes the name of no question, which `decisions_of` rejects.
        name = str(entry.get("name"))
        # Neither answer can be trusted if a question has two.
        if name in answers:
            raise MalformedReplyError(
                "the reply answers a question twice; check the endpoint, or use another model",
                reason="wrong_question",
            )
        answers[name] = _openai_answer(entry, questions.get(name))
    return answers


def _openai_answer(entry: Mapping[str, Any], question: Question | None) -> object:
    kind = entry.get("type")
    if kind == "refusal":
        return REFUSED
    if question is None or kind != _openai_question("", question)["type"]:
        return None
    if isinstance(question, Predicate):
        return entry.get("probability")
    value_type = str if isinstance(question, Choice) else int
    return _shares_of(entry.get("probabilities"), value_type)


def _shares_of(rows: object, value_type: type) -> dict[str, object] | None:
    """Return the probabilities by option or level, or None for an unusable or repeated one."""
    if not isinstance(rows, list):
        return None
    shares: dict[str, object] = {}
    for row in rows:
        # `type`, since a bool is an int too
        if not isinstance(row, dict) or type(row.get("value")) is not value_type:
            return None
        value = str(row["value"])
        # Neither probability can be trusted.
        if value in shares:
            return None
        shares[value] = row.get("probability")
    return shares


def _missing_answers() -> MalformedReplyError:
    return MalformedReplyError(
        "the reply contains no answers; check that the address serves this wire format, or use "
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
    fields=_openai_fields,
    answers=_openai_answers,
)
WIRE_FORMATS: Mapping[str, WireFormat] = MappingProxyType(
    {wire.name: wire for wire in (SYSTEMONE, OPENAI)}
)
