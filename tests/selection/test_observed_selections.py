"""Every selection says what became of it: one warning for a failed one, a span, and a count."""

from collections.abc import Awaitable, Callable

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from llm_common.agents import (
    ContextPointer,
    ContextRelevanceSelector,
    LexicalRelevanceSelector,
    LexicalToolSelector,
    PlannedTask,
    RelevanceSelection,
    ToolRegistry,
    ToolSelection,
    ToolSelectionConfig,
    ToolSelector,
)
from llm_common.errors import LLMConnectionError
from llm_common.testing import ScriptedClient

TASK = PlannedTask(id=1, description="Tell the snow in Oslo")
CONFIG = ToolSelectionConfig(model="a-model", fallback_model="b-model")
POINTERS = [
    ContextPointer(
        pointer_id=f"{number:012x}",
        query_id="q",
        task_id=None,
        tool_name="snow",
        args={},
        summary=f"snow in Oslo {number}",
        created_at="2026-01-01T00:00:00Z",
        result_path="",
    )
    for number in range(60)
]
Chooses = Callable[[ScriptedClient], Awaitable[RelevanceSelection | ToolSelection]]


def snow(city: str) -> str:
    """The snow in a city."""
    return city


def unreadable() -> str:
    raise RuntimeError("private words")


class Broken:
    """A registry whose list of tools cannot be had."""

    def get_tools_schema(self) -> str:
        return unreadable()


def outputs(client: ScriptedClient, *, fail_closed: bool = True) -> Awaitable[RelevanceSelection]:
    selector = ContextRelevanceSelector(client, "a-model", fail_closed=fail_closed)
    return selector.select_detailed(query="snow in Oslo", pointers=POINTERS)


def tools(client: ScriptedClient) -> Awaitable[ToolSelection]:
    return ToolSelector(client, CONFIG).select_detailed(
        task=TASK, tool_registry=ToolRegistry([snow])
    )


def broken_registry(client: ScriptedClient) -> Awaitable[ToolSelection]:
    return ToolSelector(client, CONFIG).select_detailed(task=TASK, tool_registry=Broken())


def lexical_tools(client: ScriptedClient) -> Awaitable[ToolSelection]:
    return LexicalToolSelector(CONFIG).select_detailed(task=TASK, tool_registry=Broken())


def counted(measured: InMemoryMetricReader) -> list[dict[str, object]]:
    data = measured.get_metrics_data()
    assert data is not None
    metrics = [
        one
        for each in data.resource_metrics
        for scope in each.scope_metrics
        for one in scope.metrics
    ]
    [durations] = [
        metric for metric in metrics if metric.name == "gen_ai.client.operation.duration"
    ]
    return [dict(point.attributes or {}) for point in durations.data.data_points]


@pytest.mark.parametrize(
    ("choose", "replies", "said"),
    [
        (outputs, ["no JSON"], "no outputs were chosen: status invalid, model a-model: "),
        (tools, ["no JSON", "neither"], "no tools were chosen: status invalid, model b-model: "),
        (
            tools,
            [LLMConnectionError("down"), LLMConnectionError("down")],
            "status error, model b-model: ",
        ),
        (broken_registry, [], "no tools were chosen: status error: "),
        (lexical_tools, [], "no tools were chosen: status error: "),
    ],
)
async def test_a_failed_selection_is_one_warning(
    choose: Chooses,
    replies: list[str],
    said: str,
    caplog: pytest.LogCaptureFixture,
    exported: InMemorySpanExporter,
) -> None:
    selection = await choose(ScriptedClient(replies))
    assert selection.failed
    [warning] = caplog.records
    assert (warning.levelname, warning.args is not None) == ("WARNING", True)
    assert said in warning.getMessage()
    assert warning.getMessage().endswith(selection.problem)
    assert "private" not in caplog.text
    [span] = [one for one in exported.get_finished_spans() if one.name.startswith("retrieval")]
    assert span.status.status_code is StatusCode.ERROR
    assert dict(span.attributes or {})["error.type"] == selection.status


@pytest.mark.parametrize(
    ("choose", "replies", "counts_as"),
    [
        (outputs, ['{"pointer_ids": []}'], ("empty", "model", False)),
        (
            lambda client: outputs(client, fail_closed=False),
            ["no JSON"],
            ("invalid", "lexical", True),
        ),
        (tools, ["no JSON", '{"calls": []}'], ("empty", "model", True)),
        (
            tools,
            ['{"calls": [{"tool": "snow", "args": {"city": "Oslo"}}]}'],
            ("ok", "model", False),
        ),
    ],
)
async def test_empties_and_fallbacks_are_counted(
    choose: Chooses,
    replies: list[str],
    counts_as: tuple[str, str, bool],
    measured: InMemoryMetricReader,
) -> None:
    await choose(ScriptedClient(replies))
    [facts] = counted(measured)
    assert facts.pop("gen_ai.data_source.id") in {"tools", "tool_outputs"}
    assert (
        tuple(facts[f"llm_common.selection.{name}"] for name in ("status", "used", "fallback"))
        == counts_as
    )


async def test_ids_and_scores_of_a_retrieval_are_bounded(exported: InMemorySpanExporter) -> None:
    await LexicalRelevanceSelector(max_selected=60).select(query="snow in Oslo", pointers=POINTERS)
    [span] = exported.get_finished_spans()
    facts = dict(span.attributes or {})
    ids, scores = facts["llm_common.retrieval.ids"], facts["llm_common.retrieval.scores"]
    assert isinstance(ids, tuple)
    assert isinstance(scores, tuple)
    assert facts["llm_common.retrieval.count"] == facts["gen_ai.retrieval.top_k"] == 60
    assert len(ids) == len(scores) == 50
    assert [*scores] == sorted(scores, reverse=True)
