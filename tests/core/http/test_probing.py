"""`probe_endpoint` on endpoints that support every format, none, or do not answer."""

import json

import pytest

from llm_common.core.http.probing import EndpointReport, probe_endpoint
from tests.core.loopback import KEY, Received, Wire, loopback, ok, response

CALL = {
    "id": "1",
    "type": "function",
    "function": {"name": "answer", "arguments": '{"answer": "yes"}'},
}


def wanted(request: Received) -> str:
    """Return the format that a request asks for."""
    for name in ("response_format", "tools", "stream"):
        if request.body.get(name):
            return name
    return "nothing"


async def able(wire: Wire) -> None:
    """Support every format."""
    while request := await wire.request():
        match wanted(request):
            case "response_format":
                await wire.send(response(200, ok('{"answer": "yes"}')))
            case "tools":
                message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
                body = {
                    "id": "1",
                    "model": "m",
                    "choices": [{"message": message, "finish_reason": "tool_calls"}],
                }
                await wire.send(response(200, json.dumps(body).encode()))
            case "stream":
                parts: list[dict[str, object]] = [
                    {"choices": [{"delta": {"content": "yes"}}]},
                    {"choices": [{"delta": {}, "finish_reason": "stop"}]},
                ]
                lines = [
                    *(
                        f"data: {json.dumps({'id': '1', 'model': 'm', **part})}\n\n"
                        for part in parts
                    ),
                    "data: [DONE]\n\n",
                ]
                await wire.send(
                    response(200, "".join(lines).encode(), {"Content-Type": "text/event-stream"})
                )
            case _:
                await wire.send(response(200, ok("yes")))


async def plain(wire: Wire) -> None:
    """Answer in plain words, and refuse schemas."""
    while request := await wire.request():
        if (request.body.get("response_format") or {}).get("type") == "json_schema":
            await wire.send(
                response(400, b'{"error": {"message": "response_format is not supported"}}')
            )
        else:
            await wire.send(response(200, ok("yes")))


def works(report: EndpointReport) -> dict[str, bool]:
    return {one.name: one.works for one in report.formats}


async def test_a_capable_endpoint_supports_every_format() -> None:
    async with loopback(able) as server:
        report = await probe_endpoint(server.config())
    assert report.answers
    assert works(report) == {"json_schema": True, "tools": True, "stream": True}
    assert [one.note for one in report.formats] == [""] * 3


async def test_each_unsupported_format_has_a_note() -> None:
    async with loopback(plain) as server:
        report = await probe_endpoint(server.config())
    assert report.answers
    assert works(report) == {"json_schema": False, "tools": False, "stream": True}
    assert all(one.note for one in report.formats if not one.works)
    assert report.formats[0].note == "refused"


@pytest.mark.parametrize("status", [401, 500])
@pytest.mark.usefixtures("no_waits")
async def test_a_failing_endpoint_is_asked_only_once(status: int) -> None:
    async def refusing(wire: Wire) -> None:
        while await wire.request():
            await wire.send(
                response(status, json.dumps({"error": {"message": f"no {KEY}"}}).encode())
            )

    async with loopback(refusing) as server:
        report = await probe_endpoint(server.config())
        assert {wanted(request) for request in server.requests} == {"nothing"}
    assert not report.answers
    assert report.problem
    assert KEY not in report.model_dump_json()
