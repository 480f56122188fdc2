"""The spans of a whole run, by the names of OpenTelemetry's GenAI conventions.

No payload byte.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import SecretStr

from llm_common.agents import (
    AgenticExecutor,
    Answering,
    ContextRelevanceSelector,
    Planner,
    RunLimits,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.core import LLMConfig, OpenAICompatibleClient, TokenPrices
from llm_common.errors import LLMError
from llm_common.memory import InMemoryMemory

CANARY = "canary"
QUERY = f"Does it snow on the {CANARY}query?"
DOCUMENT = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")
# The first column of the table, with what stands in code in the others.
ROWS = {
    cells[0].strip(" `"): set(re.findall(r"`([^`]+)`", "|".join(cells[1:])))
    for line in DOCUMENT.splitlines()
    if line.startswith("| `") and (cells := line.strip("|").split("|"))
}


class Endpoint:
    """A model behind HTTP that plans, chooses two tools and one output, and answers."""

    def __init__(self) -> None:
        self.requests = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        asked = json.loads(request.content)
        reply = self.reply("\n".join(str(message["content"]) for message in asked["messages"]))
        whole: dict[str, Any] = {
            "id": "chatcmpl-1",
            "model": "served-model",
            "usage": {"prompt_tokens": 100, "completion_tokens": 7},
        }
        if not asked.get("stream"):
            choice = {"message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
            return httpx.Response(200, json=whole | {"choices": [choice]})
        chunks: list[dict[str, Any]] = [
            {"delta": {"content": reply}},
            {"delta": {}, "finish_reason": "stop"},
        ]
        lines = [
            f"data: {json.dumps(whole | {'choices': [chunk | {'index': 0}]})}\n\n"
            for chunk in chunks
        ]
        return httpx.Response(
            200, content=sent([*lines, "data: [DONE]\n\n"]), headers={"content-type": EVENTS}
        )

    def reply(self, prompt: str) -> str:
        if prompt.startswith("You plan"):
            return json.dumps({"tasks": [{"description": f"Ask for the {CANARY}task"}]})
        if prompt.startswith("You choose which stored"):
            return json.dumps({"pointer_ids": re.findall(r'"id":\s*"([0-9a-f]+)"', prompt)[:1]})
        if prompt.startswith("You choose the tool calls"):
            chosen = [
                {"tool": tool, "args": {"city": f"{CANARY}argument"}}
                for tool in ("weather", "breaks")
            ]
            return json.dumps({"calls": chosen})
        return f"It snows, says the {CANARY}reply."


EVENTS = "text/event-stream"


async def sent(lines: list[str]) -> AsyncIterator[bytes]:
    for line in lines:
        yield line.encode()


def weather(city: str) -> dict[str, str]:
    """Reads the weather."""
    return {"report": f"snow in {city}, {CANARY}result"}


def breaks(city: str) -> str:
    """Does not work."""
    raise ConnectionError(f"{CANARY}error {city}")


@asynccontextmanager
async def connected(endpoint: Any) -> AsyncIterator[OpenAICompatibleClient]:
    config = LLMConfig(
        base_url="https://llm.example/v1",
        api_key=SecretStr("key"),
        default_model="some-model",
        provider="xai",
        max_attempts=1,
        prices={"some-model": TokenPrices(prompt=1.0, completion=2.0)},
    )
    async with OpenAICompatibleClient(config, transport=httpx.MockTransport(endpoint)) as client:
        yield client


async def run(folder: Path) -> Endpoint:
    endpoint = Endpoint()
    async with connected(endpoint) as client:
        registry = ToolRegistry([weather, breaks])
        manager = ToolContextManager(folder, session_id="chat-42")
        executor = AgenticExecutor(client, registry, manager, limits=RunLimits(max_rounds=1))
        plan = await Planner(client).plan(QUERY, registry)
        answering = Answering(memory=InMemoryMemory(), selector=ContextRelevanceSelector(client))
        answer = await executor.run(QUERY, plan=plan, answering=answering)
    assert answer.status == "ok", answer.problem
    return endpoint


def named(exported: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exported.get_finished_spans() if span.name == name]


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_run_has_the_conventions_spans_and_no_payload(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    endpoint = await run(tmp_path)
    spans = exported.get_finished_spans()
    assert {span.name for span in spans if not span.name.startswith("llm_common.")} == {
        "plan",
        "invoke_agent",
        "chat some-model",
        "execute_tool weather",
        "execute_tool breaks",
        "retrieval tools",
        "retrieval tool_outputs",
        "retrieval context",
        "search_memory",
        "create_memory",
    }
    assert len(named(exported, "chat some-model")) == endpoint.requests
    assert [span.name for span in spans if CANARY in span.to_json()] == []
    undocumented = {
        name for span in spans for name in facts(span) if name not in ROWS[span.name.split()[0]]
    }
    assert undocumented == set()


async def test_a_model_call_reports_its_cost(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    await run(tmp_path)
    chat = named(exported, "chat some-model")[0]
    assert chat.kind is SpanKind.CLIENT
    assert facts(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "x_ai",
        "gen_ai.request.model": "some-model",
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.max_tokens": 3_700,
        "gen_ai.output.type": "json",
        "gen_ai.response.model": "served-model",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "llm_common.cost_usd": pytest.approx(114e-6),
        "server.address": "llm.example",
        "server.port": 443,
    }


async def test_all_of_a_run_is_below_its_span(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    await run(tmp_path)
    [agent] = named(exported, "invoke_agent")
    [plan] = named(exported, "plan")
    assert facts(agent) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": "chat-42",
    }
    assert agent.parent is plan.parent is None
    traces = {
        span.name: span.context.trace_id for span in exported.get_finished_spans() if span.context
    }
    run_names = {
        "execute_tool weather",
        "retrieval tools",
        "retrieval context",
        "create_memory",
        "search_memory",
    }
    assert {traces[name] for name in run_names} == {traces["invoke_agent"]}


async def test_retrievals_hold_ids_and_tools_their_errors(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    await run(tmp_path)
    [tools] = named(exported, "retrieval tools")
    [outputs] = named(exported, "retrieval tool_outputs")
    [context, *_] = named(exported, "retrieval context")
    [failed] = named(exported, "execute_tool breaks")
    assert facts(tools)["llm_common.retrieval.ids"] == ("weather", "breaks")
    assert facts(tools)["llm_common.selection.status"] == "ok"
    [pointer_id] = facts(outputs)["llm_common.retrieval.ids"]
    assert facts(context)["llm_common.retrieval.ids"] == (f"output:{pointer_id}",)
    assert len(facts(context)["llm_common.retrieval.scores"]) == 1
    assert facts(failed)["error.type"] == "ConnectionError"
    assert failed.status.status_code is StatusCode.ERROR


async def test_a_stream_is_one_span_however_it_ends(exported: InMemorySpanExporter) -> None:
    async with connected(Endpoint()) as client:
        async with aclosing(client.stream([{"role": "user", "content": QUERY}])) as deltas:
            assert [bool(delta.response) async for delta in deltas] == [False, True]
        async with aclosing(client.stream([{"role": "user", "content": QUERY}])) as deltas:
            await anext(deltas)
    whole, left = exported.get_finished_spans()
    assert facts(whole)["gen_ai.request.stream"] is True
    assert facts(whole)["gen_ai.usage.output_tokens"] == 7
    assert facts(whole)["gen_ai.response.finish_reasons"] == ("stop",)
    assert facts(whole)["gen_ai.response.time_to_first_chunk"] > 0
    assert left.status.status_code is StatusCode.UNSET
    assert facts(left)["llm_common.ended_by"] == "GeneratorExit"
    assert set(facts(whole)) | set(facts(left)) <= ROWS["chat"]


async def test_a_failed_call_is_recorded_with_its_class(exported: InMemorySpanExporter) -> None:
    async with connected(lambda request: httpx.Response(418, text=CANARY)) as client:
        with pytest.raises(LLMError):
            await client.chat_completion([{"role": "user", "content": QUERY}])
    [span] = exported.get_finished_spans()
    assert facts(span)["error.type"] == "LLMStatusError"
    assert CANARY not in span.to_json()
    assert not [name for name in facts(span) if name.startswith("gen_ai.usage.")]


async def run_once(folder: Path, message: dict[str, Any]) -> None:
    """Run a task for which the model replies with a message."""
    choice = {"message": {"role": "assistant"} | message, "finish_reason": "stop"}
    reply = {"id": "1", "model": "served-model", "choices": [choice]}
    async with connected(lambda _: httpx.Response(200, json=reply)) as client:
        registry, limits = ToolRegistry([weather, breaks]), RunLimits(max_rounds=1)
        executor = AgenticExecutor(client, registry, ToolContextManager(folder), limits=limits)
        await executor.execute_task("Ask for the weather", "q")


async def test_a_tool_call_has_the_id_that_the_api_gave_it(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps({"city": "Oslo"})},
        }
        for name, call_id in (("weather", "call_1"), ("breaks", "call_2\n" * 99))
    ]
    await run_once(tmp_path, {"content": None, "tool_calls": calls})
    [first], [second] = (named(exported, f"execute_tool {name}") for name in ("weather", "breaks"))
    assert facts(first)["gen_ai.tool.call.id"] == "call_1"
    assert len(facts(second)["gen_ai.tool.call.id"]) == 100


async def test_an_id_that_a_model_wrote_reaches_no_span(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    calls = [{"tool": "weather", "args": {"city": "Oslo"}, "id": f"{CANARY}id"}]
    await run_once(tmp_path, {"content": json.dumps({"calls": calls})})
    [call] = named(exported, "execute_tool weather")
    assert "gen_ai.tool.call.id" not in facts(call)
