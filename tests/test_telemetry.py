import asyncio
import re
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from llm_common import _telemetry
from tests.programs import printed


def test_a_span_carries_its_name_and_attributes(exported: InMemorySpanExporter) -> None:
    with _telemetry.span("llm_common.test", {"count": 3}) as span:
        span.set_attributes({"state": "ok"})
    (finished,) = exported.get_finished_spans()
    assert finished.name == "llm_common.test"
    assert dict(finished.attributes or {}) == {"count": 3, "state": "ok"}


def test_a_span_records_only_the_class_of_an_exception(exported: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="private"), _telemetry.span("llm_common.test"):
        raise ValueError("private words")
    (finished,) = exported.get_finished_spans()
    assert dict(finished.attributes or {}) == {"error.type": "ValueError"}
    assert finished.status.status_code is StatusCode.ERROR
    assert [(event.name, dict(event.attributes or {})) for event in finished.events] == [
        ("exception", {"exception.type": "ValueError"})
    ]
    assert "private" not in finished.to_json()


def test_a_cancelled_span_is_not_an_error(exported: InMemorySpanExporter) -> None:
    with pytest.raises(asyncio.CancelledError), _telemetry.span("llm_common.test"):
        raise asyncio.CancelledError
    (finished,) = exported.get_finished_spans()
    assert dict(finished.attributes or {}) == {"llm_common.ended_by": "CancelledError"}
    assert finished.status.status_code is StatusCode.UNSET


def test_a_provider_that_is_set_later_gets_the_later_spans() -> None:
    program = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from llm_common._telemetry import span
with span("before"):
    pass
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
with span("outer"), span("inner"):
    pass
inner, outer = exporter.get_finished_spans()
print(inner.name, outer.name, inner.parent.span_id == outer.context.span_id)
"""
    assert printed(program) == "inner outer True\n"


def test_a_span_does_nothing_without_opentelemetry() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
from llm_common._telemetry import operation, span
with span("llm_common.test", {"count": 3}) as current:
    current.set_attributes({"state": "ok"})
with operation("execute_tool", "tool", detached=True) as current, current.active():
    current.fail("ToolError")
print("done")
"""
    assert printed(program) == "done\n"


def test_the_program_of_the_page_switches_telemetry_on() -> None:
    page = (Path(__file__).parent.parent / "docs" / "telemetry.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    program += """
from llm_common._telemetry import operation
with operation("search_memory"):
    pass
"""
    assert '"name": "search_memory"' in printed(program)
