import builtins
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from llm_common import _telemetry


def test_a_span_carries_its_name_and_attributes(exported: InMemorySpanExporter) -> None:
    with _telemetry.span("llm_common.test", count=3) as span:
        span.set_attribute("state", "ok")
    (finished,) = exported.get_finished_spans()
    assert finished.name == "llm_common.test"
    assert dict(finished.attributes or {}) == {"count": 3, "state": "ok"}


def test_a_span_records_an_exception_by_its_class_alone(exported: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="private"), _telemetry.span("llm_common.test"):
        raise ValueError("private words")
    (finished,) = exported.get_finished_spans()
    assert dict(finished.attributes or {}) == {"error.type": "ValueError"}
    assert not finished.events
    assert "private" not in finished.to_json()


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
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == "inner outer True\n"


def test_nothing_happens_without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(
        name: str,
        scope: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        wanted: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, scope, local, wanted, level)

    _telemetry._tracer.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with _telemetry.span("llm_common.test") as span:
        span.set_attribute("state", "ok")
    assert isinstance(span, _telemetry._NoSpan)
    monkeypatch.undo()
    _telemetry._tracer.cache_clear()
