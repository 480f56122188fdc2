"""A decision model that knows which candidates are wanted, as a double and behind both wire formats."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from llm_common.decisions import Question, State
from tests.core.loopback import Script, Wire, response
from tests.decisions.decision_server import WireName, payload

_LINE = re.compile(r"^((?:output|tool|item) \d+): (.*)$", re.MULTILINE)


def labels_of(state: object) -> dict[str, str]:
    """The text of each candidate by its label, as the model is shown them."""
    return dict(_LINE.findall(str(state)))


def knowing(state: object, texts: Sequence[str], wanted: Mapping[str, float]) -> dict[str, Any]:
    """The answers by a question's text: the probability of each candidate that holds a wanted text, else .02."""
    fits = {
        label: next((p for text, p in wanted.items() if text in line), 0.02)
        for label, line in labels_of(state).items()
    }
    [which] = [text for text in texts if text.startswith("Which")]
    told: dict[str, Any] = {
        text: fits[match[1]] for text in texts if (match := re.match(r"The (\w+ \d+) ", text))
    }
    none = 1 - max(fits.values())
    scale = (1 - none) / sum(fits.values())
    return told | {which: {label: p * scale for label, p in fits.items()} | {"none of these": none}}


def scripted(wanted: Mapping[str, float]) -> Any:
    """An answer of a `ScriptedDecisionClient`."""

    def answer(state: State, questions: Mapping[str, Question]) -> dict[str, object]:
        told = knowing(state, [question.text for question in questions.values()], wanted)
        return {name: told[question.text] for name, question in questions.items()}

    return answer


def asked_of(wire: WireName, body: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The state and the questions' texts of a request."""
    if wire == "openai":
        return str(body["input"]), [question["instructions"] for question in body["questions"]]
    return str(body["state"]), [question["instructions"] for question in body["questions"].values()]


def serving(wire: WireName, wanted: Mapping[str, float]) -> Script:
    """Answers every request of a connection by what is wanted."""

    async def script(connection: Wire) -> None:
        while (request := await connection.request()) is not None:
            told = knowing(*asked_of(wire, request.body), wanted)
            await connection.send(
                response(200, json.dumps(payload(wire, request.body, told)).encode())
            )

    return script
