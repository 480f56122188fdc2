from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from llm_common.memory import Event, FactMemory, InMemoryMemory, MemoryFilters, SqliteMemory

SECRET = "canary"


@pytest.mark.parametrize("kind", [InMemoryMemory, SqliteMemory])
async def test_spans_of_memory_operations_follow_the_conventions_and_contain_no_text(
    kind: type[InMemoryMemory] | type[SqliteMemory], tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    memory: FactMemory = (
        InMemoryMemory() if kind is InMemoryMemory else SqliteMemory(tmp_path / "memory.db")
    )
    async with memory:
        await memory.append_event("s", Event(text=f"the {SECRET} sings"))
        await memory.append_event("s", Event(text=f"{SECRET} lives in Oslo"), key=SECRET)
        hits = await memory.retrieve(f"{SECRET}", 5, MemoryFilters(session_id="s"))
        await memory.forget(session_id="s")
    spans = exported.get_finished_spans()
    assert [span.name for span in spans] == [
        "create_memory",
        "upsert_memory",
        "search_memory",
        "delete_memory",
    ]
    attributes = [dict(span.attributes or {}) for span in spans]
    assert [of["gen_ai.operation.name"] for of in attributes] == [span.name for span in spans]
    assert [of["gen_ai.memory.record.count"] for of in attributes] == [1, 1, 2, 2]
    assert attributes[2]["llm_common.retrieval.ids"] == tuple(hit.id for hit in hits)
    assert {of["llm_common.memory"] for of in attributes} == {kind.__name__}
    assert SECRET not in "".join(span.to_json() for span in spans)
