"""Tests the telemetry of selections: a warning for each failure, and spans."""

from collections.abc import Awaitable, Callable
from unittest.mock import MagicMock

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from llm_common.agents import (
    ContextRelevanceSelector,
    LexicalRelevanceSelector,
    LexicalToolSelector,
    RelevanceSelection,
    ToolSelection,
    ToolSelectionConfig,
)
from llm_common.errors import LLMConnectionError, LLMStatusError
from llm_common.testing import ScriptedClient
from tests.selection.doubles import TASK, candidate, select_tools

CONFIG = ToolSelectionConfig(model="a-model", fallback_model="b-model")
POINTERS = [candidate(f"{number:012x}", summary=f"snow in Oslo {number}") for number in range(60)]
Chooses = Callable[[ScriptedClient], Awaitable[RelevanceSelection | ToolSelection]]


BROKEN = MagicMock(get_tools_schema=MagicMock(side_effect=RuntimeError("private words")))


def outputs(client: ScriptedClient, *, fail_closed: bool = True) -> Awaitable[RelevanceSelection]:
    selector = ContextRelevanceSelector(client, "a-model", fail_closed=fail_closed)
    return selector.select_detailed(query="snow in Oslo", pointers=POINTERS)


def tools(client: ScriptedClient) -> Awaitable[ToolSelection]:
    return select_tools(client, config=CONFIG)


def broken_registry(client: ScriptedClient) -> Awaitable[ToolSelection]:
    return select_tools(client, BROKEN, CONFIG)


def lexical_tools(client: ScriptedClient) -> Awaitable[ToolSelection]:
    return LexicalToolSelector(CONFIG).select_detailed(task=TASK, tool_registry=BROKEN)


@pytest.mark.parametrize(
    ("choose", "replies", "warning_text"),
    [
        (outputs, ["no JSON"], "no outputs were chosen: status invalid: model a-model: "),
        (tools, ["no JSON", "neither"], "no tools were chosen: status invalid: model b-model: "),
        (
            tools,
            [LLMConnectionError("down"), LLMConnectionError("down")],
            "status error: model b-model: ",
        ),
        (broken_registry, [], "no tools were chosen: status error: "),
        (lexical_tools, [], "no tools were chosen: status error: "),
    ],
)
async def test_a_failed_selection_logs_one_warning(
    choose: Chooses,
    replies: list[str],
    warning_text: str,
    caplog: pytest.LogCaptureFixture,
    exported: InMemorySpanExporter,
) -> None:
    selection = await choose(ScriptedClient(replies))
    assert selection.failed
    [warning] = caplog.records
    assert (warning.levelname, warning.args is not None) == ("WARNING", True)
    assert warning_text in warning.getMessage()
    assert warning.getMessage().endswith(selection.problem)
    assert warning.getMessage().count("-model") <= 1
    assert "private" not in caplog.text
    [span] = [span for span in exported.get_finished_spans() if span.name.startswith("retrieval")]
    assert span.status.status_code is StatusCode.ERROR
    assert dict(span.attributes or {})["error.type"] == selection.status


async def test_the_endpoints_words_are_told_and_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = LLMStatusError("the endpoint refused it; check the request", status=400)
    error.endpoint_message = "the prompt 'private matters' is not allowed"
    selection = await outputs(ScriptedClient([error]))
    assert selection.problem.endswith(error.endpoint_message)
    [warning] = caplog.records
    assert warning.getMessage().endswith("refused it; check the request")


@pytest.mark.parametrize(
    ("choose", "replies", "expected"),
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
            ['{"calls": [{"tool": "get_weather", "args": {"city": "Oslo"}}]}'],
            ("ok", "model", False),
        ),
    ],
)
async def test_empty_selections_and_fallbacks_are_recorded(
    choose: Chooses,
    replies: list[str],
    expected: tuple[str, str, bool],
    exported: InMemorySpanExporter,
) -> None:
    await choose(ScriptedClient(replies))
    [span] = [span for span in exported.get_finished_spans() if span.name.startswith("retrieval")]
    attributes = dict(span.attributes or {})
    assert attributes["gen_ai.data_source.id"] in {"tools", "tool_outputs"}
    names = ("status", "used", "fallback")
    assert tuple(attributes[f"llm_common.selection.{name}"] for name in names) == expected


async def test_a_span_has_at_most_50_ids_and_scores(exported: InMemorySpanExporter) -> None:
    await LexicalRelevanceSelector(max_selected=60).select(query="snow in Oslo", pointers=POINTERS)
    [span] = exported.get_finished_spans()
    attributes = dict(span.attributes or {})
    ids = attributes["llm_common.retrieval.ids"]
    scores = attributes["llm_common.retrieval.scores"]
    assert isinstance(ids, tuple)
    assert isinstance(scores, tuple)
    assert attributes["llm_common.retrieval.count"] == 60
    assert attributes["gen_ai.retrieval.top_k"] == 60
    assert len(ids) == len(scores) == 50
    assert [*scores] == sorted(scores, reverse=True)
