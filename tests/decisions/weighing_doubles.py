"""A decision model that knows the right candidates, as a double and behind both wire formats."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from llm_common.decisions import Question, State
from tests.core.loopback import Script, Wire, response
from tests.decisions.decision_server import WireName, payload

_LINE = re.compile(r"^((?:output|tool|item) \d+): (.*)$", re.MULTILINE)


def labels_of(state: object) -> dict[str, str]:
    """Return the text of each candidate in a state by its label."""
    return dict(_LINE.findall(str(state)))


def knowing(
    state: object, texts: Sequence[str], probabilities: Mapping[str, float]
) -> dict[str, Any]:
    """Return answers by the question's text: the probability of a wanted text, else 0.02."""
    fits = {
        label: next((p for text, p in probabilities.items() if text in line), 0.02)
        for label, line in labels_of(state).items()
    }
    [which] = [text for text in texts if text.startswith("Which")]
    by_text: dict[str, Any] = {
        text: fits[match[1]] for text in texts if (match := re.match(r"The (\w+ \d+) ", text))
    }
    none = 1 - max(fits.values())
    scale = (1 - none) / sum(fits.values())
    return by_text | {
        which: {label: p * scale for label, p in fits.items()} | {"none of these": none}
    }


def scripted(probabilities: Mapping[str, float]) -> Any:
    """Return an answer for a `ScriptedDecisionClient`."""

    def answer(state: State, questions: Mapping[str, Question]) -> dict[str, object]:
        by_text = knowing(state, [question.text for question in questions.values()], probabilities)
        return {name: by_text[question.text] for name, question in questions.items()}

    return answer


def asked_of(wire: WireName, body: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the state and the texts of the questions of a request."""
    if wire == "openai":
        return str(body["input"]), [question["instructions"] for question in body["questions"]]
    return str(body["state"]), [question["instructions"] for question in body["questions"].values()]


def serving(wire: WireName, probabilities: Mapping[str, float]) -> Script:
    """Answer every request of a connection as `knowing` does."""

    async def script(connection: Wire) -> None:
        while (request := await connection.request()) is not None:
            by_text = knowing(*asked_of(wire, request.body), probabilities)
            await connection.send(
                response(200, json.dumps(payload(wire, request.body, by_text)).encode())
            )

    return script
