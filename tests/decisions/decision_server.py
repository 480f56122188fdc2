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
    wire: WireName, asked: Mapping[str, Any], told: Mapping[str, object], **fields: Any
) -> dict[str, Any]:
    """The reply to a request: the told answers by a question's text.

    `fields` replace what stands at its top.
    """
    if wire == "systemone":
        rows = [(name, question, told) for name, question in asked["questions"].items()]
        answers: Any = {
            name: _answer(wire, told[q["instructions"]])
            for name, q, _ in rows
            if q["instructions"] in told
        }
    else:
        answers = [
            {"name": question["name"]} | _answer(wire, told[question["instructions"]])
            for question in asked["questions"]
            if question["instructions"] in told
        ]
    return {"model": "served-model", "answers": answers, "usage": USAGE} | fields


def _answer(wire: WireName, given: object) -> dict[str, Any]:
    if given is REFUSED:
        return {"type": "refusal"}
    listed = isinstance(given, list)
    if not listed and not isinstance(given, dict):
        return (
            {"type": "noul", "noul": given}
            if wire == "systemone"
            else {"type": "predicate", "probability": given}
        )
    shares: dict[Any, Any] = dict(enumerate(given)) if isinstance(given, list) else given  # type: ignore[assignment]
    if wire == "systemone":
        found: Any = {str(name): share for name, share in shares.items()}
    else:
        found = [
            {"value": name, "probability": share, "label": str(name)}
            for name, share in shares.items()
        ]
    if listed:
        level = sum(number * share for number, share in shares.items() if isinstance(share, float))
        return {
            "type": "score",
            "score": level,
            "confidence": 0.5,
            "probabilities": found,
            "legend": {},
        }
    return {
        "type": "choice",
        "choice": next(iter(shares), ""),
        "confidence": 0.5,
        "probabilities": found,
    }


def telling(wire: WireName, told: Mapping[str, object], **fields: Any) -> Script:
    """Answers every request of the connection by the same answers."""
    return changed(wire, told, lambda reply, _: json.dumps(reply | fields).encode())


def changed(
    wire: WireName,
    told: Mapping[str, object],
    change: Callable[[dict[str, Any], dict[str, Any]], bytes],
) -> Script:
    """Answers every request with what `change` makes of the good reply and the request."""

    async def script(connection: Wire) -> None:
        while (request := await connection.request()) is not None:
            await connection.send(
                response(200, change(payload(wire, request.body, told), request.body))
            )

    return script


def config(server: Loopback, wire: WireName, **changes: Any) -> DecisionConfig:
    """One that does not retry, since retries wait."""
    facts = {
        "url": f"http://127.0.0.1:{server.port}",
        "model": "test-model",
        "wire": wire,
        "api_key": SecretStr(KEY),
    }
    return DecisionConfig.model_validate(facts | {"timeout_s": 5.0, "max_attempts": 1} | changes)


@asynccontextmanager
async def served(
    wire: WireName, *scripts: Script, **changes: Any
) -> AsyncIterator[tuple[Loopback, HttpDecisionClient]]:
    """A server with these scripts, and a client of it."""
    async with (
        loopback(*scripts) as server,
        HttpDecisionClient(config(server, wire, **changes)) as client,
    ):
        yield server, client
