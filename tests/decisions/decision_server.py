"""A scripted decision model behind both wire formats on loopback."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

from pydantic import SecretStr

from llm_common.decisions import REFUSED, DecisionConfig, HttpDecisionClient
from tests.core.loopback import KEY, Loopback, Script, Wire, loopback, response

WireName = Literal["systemone", "openai"]
USAGE = {"input_tokens": 120, "output_tokens": 12}


def payload(
    wire: WireName, request_body: Mapping[str, Any], by_text: Mapping[str, object], **fields: Any
) -> dict[str, Any]:
    """Return the reply to a request, with answers by the text of their question.

    `fields` replace top-level fields.
    """
    if wire == "systemone":
        rows = [(name, question, by_text) for name, question in request_body["questions"].items()]
        answers: Any = {
            name: _answer(wire, by_text[q["instructions"]])
            for name, q, _ in rows
            if q["instructions"] in by_text
        }
    else:
        answers = [
            {"name": question["name"]} | _answer(wire, by_text[question["instructions"]])
            for question in request_body["questions"]
            if question["instructions"] in by_text
        ]
    return {"model": "served-model", "answers": answers, "usage": USAGE} | fields


def _answer(wire: WireName, answer: object) -> dict[str, Any]:
    if answer is REFUSED:
        return {"type": "refusal"}
    listed = isinstance(answer, list)
    if not listed and not isinstance(answer, dict):
        return (
            {"type": "noul", "noul": answer}
            if wire == "systemone"
            else {"type": "predicate", "probability": answer}
        )
    shares: dict[Any, Any] = dict(enumerate(answer)) if isinstance(answer, list) else answer  # type: ignore[assignment]
    if wire == "systemone":
        probabilities: Any = {str(name): share for name, share in shares.items()}
    else:
        probabilities = [
            {"value": name, "probability": share, "label": str(name)}
            for name, share in shares.items()
        ]
    if listed:
        level = sum(number * share for number, share in shares.items() if isinstance(share, float))
        return {
            "type": "score",
            "score": level,
            "confidence": 0.5,
            "probabilities": probabilities,
            "legend": {},
        }
    return {
        "type": "choice",
        "choice": next(iter(shares), ""),
        "confidence": 0.5,
        "probabilities": probabilities,
    }


def telling(wire: WireName, by_text: Mapping[str, object], **fields: Any) -> Script:
    """Answer every request of the connection with the same answers."""
    return changed(wire, by_text, lambda reply, _: json.dumps(reply | fields).encode())


def changed(
    wire: WireName,
    by_text: Mapping[str, object],
    change: Callable[[dict[str, Any], dict[str, Any]], bytes],
) -> Script:
    """Answer every request with the result of `change` for the good reply and the request."""

    async def script(connection: Wire) -> None:
        while (request := await connection.request()) is not None:
            await connection.send(
                response(200, change(payload(wire, request.body, by_text), request.body))
            )

    return script


def config(server: Loopback, wire: WireName, **changes: Any) -> DecisionConfig:
    """Return a configuration without retries, since retries wait."""
    settings = {
        "url": f"http://127.0.0.1:{server.port}",
        "model": "test-model",
        "wire": wire,
        "api_key": SecretStr(KEY),
    }
    return DecisionConfig.model_validate(settings | {"timeout_s": 5.0, "max_attempts": 1} | changes)


@asynccontextmanager
async def served(
    wire: WireName, *scripts: Script, **changes: Any
) -> AsyncIterator[tuple[Loopback, HttpDecisionClient]]:
    """Run a server with these scripts, and yield it with a client."""
    async with (
        loopback(*scripts) as server,
        HttpDecisionClient(config(server, wire, **changes)) as client,
    ):
        yield server, client
