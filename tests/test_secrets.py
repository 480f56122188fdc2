"""Secrets of every known shape go in where an agent puts them.

None comes out where the library writes or speaks.
"""

import json
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from llm_common.agents import (
    AgenticExecutor,
    ContextPointer,
    ContextRelevanceSelector,
    FileContextPointerStore,
    LexicalRelevanceSelector,
    PlannedTask,
    SubTask,
    ToolContextManager,
    ToolRegistry,
    ToolResult,
    ToolSelector,
    format_selected_contexts,
    read_context,
)
from llm_common.context import ContextSelector, DataPoolSnapshot, MemorySnippet
from llm_common.errors import LLMCommonError
from llm_common.testing import ScriptedClient
from tests.context.samples import NOON, memory, request_of
from tests.secret_samples import SAMPLES, Sample

HAYSTACKS = 10  # samples share a query: a listing of all of them is one prompt


@pytest.fixture(
    params=[pytest.param(8, id="some"), pytest.param(1, id="all", marks=pytest.mark.torture)]
)
def samples(request: pytest.FixtureRequest) -> tuple[Sample, ...]:
    """Return samples of every kind, and all samples at full size."""
    return SAMPLES[:: request.param]


@pytest.fixture
def store(tmp_path: Path) -> FileContextPointerStore:
    return FileContextPointerStore(tmp_path, durability="rename")


@pytest.fixture
def redacting(tmp_path: Path) -> FileContextPointerStore:
    return FileContextPointerStore(tmp_path, durability="rename", redact_results=True)


def found_in(data: bytes | str, samples: tuple[Sample, ...] = SAMPLES) -> list[str]:
    """Return the names of the samples whose secrets are in the data, plainly or as JSON."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    return [
        sample.name
        for sample in samples
        if any(
            form in text
            for secret in sample.secrets
            if secret
            for form in (secret, json.dumps(secret)[1:-1])
        )
    ]


def call_of(sample: Sample) -> dict[str, Any]:
    text = sample.text
    return {
        "args": {
            "query": text,
            "note": [text, {"deep": text}],
            "body": json.dumps({"inner": text}),
        },
        "result": {
            "text": text,
            "rows": [{"a": text}, text],
            "body": json.dumps({"inner": [text]}),
            text: 1,
        },
        "source_urls": [f"https://h.example/x?note={text}", text],
    }


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Record every byte that is written to a file descriptor, even if the file is removed."""
    chunks: list[bytes] = []
    write = os.write

    def recording(descriptor: int, data: Any) -> int:
        chunks.append(bytes(data))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", recording)
    yield chunks
    monkeypatch.undo()


async def save_all(
    store: FileContextPointerStore, samples: tuple[Sample, ...]
) -> list[ContextPointer]:
    return [
        await store.save(
            query_id=f"q{number % HAYSTACKS}", task_id=None, tool_name="fetch", **call_of(sample)
        )
        for number, sample in enumerate(samples)
    ]


async def test_with_redacted_results_no_byte_on_disk_holds_a_secret(
    tmp_path: Path,
    samples: tuple[Sample, ...],
    written: list[bytes],
    redacting: FileContextPointerStore,
) -> None:
    for sample in samples:
        call = call_of(sample)
        pointer = await redacting.save(query_id="q", task_id=None, tool_name="fetch", **call)
        await redacting.save(query_id="q", task_id=None, tool_name="fetch", **call)
        loaded = redacting.load_result(pointer=pointer)
        assert list(loaded)[:3] == ["text", "rows", "body"]
        assert list(json.loads(loaded["body"])) == ["inner"]
    assert len(written) > 4 * len(samples)
    assert found_in(b"\n".join(written)) == []
    assert found_in(b"\n".join(bytes_below(tmp_path).values())) == []


async def test_only_results_hold_secrets_when_they_are_not_redacted_f_046(
    tmp_path: Path, samples: tuple[Sample, ...], store: FileContextPointerStore
) -> None:
    await save_all(store, samples)
    files = bytes_below(tmp_path)
    results = [files.pop(path) for path in [*files] if path.endswith(".result.json")]
    assert found_in(b"\n".join(files.values())) == []
    assert len(found_in(b"\n".join(results))) == len(samples)


async def test_the_error_of_a_failed_tool_is_always_redacted(
    tmp_path: Path, samples: tuple[Sample, ...], store: FileContextPointerStore
) -> None:
    for sample in samples:
        failed = ToolResult(success=False, data={"status": 401}, error=f"refused: {sample.text}")
        pointer = await store.save(
            query_id="q", task_id=None, tool_name="fetch", args={}, result=failed
        )
        assert store.load_result(pointer=pointer)["data"] == {"status": 401}
        assert found_in(b"\n".join(bytes_below(tmp_path).values())) == []


def prompts_of(client: ScriptedClient) -> str:
    return "\n".join(str(message.content) for call in client.calls for message in call.messages)


@pytest.mark.parametrize("include_digest", [False, True])
async def test_no_prompt_of_the_relevance_selector_holds_a_secret(
    store: FileContextPointerStore, samples: tuple[Sample, ...], include_digest: bool
) -> None:
    await save_all(store, samples)
    client = ScriptedClient([], default='{"pointer_ids": []}')
    selector = ContextRelevanceSelector(client, include_digest=include_digest)
    for number in range(HAYSTACKS):
        pointers = store.list(query_id=f"q{number}")
        await selector.select(query="what came back?", pointers=pointers)
        detailed = await LexicalRelevanceSelector().select_detailed(
            query="what came back?", pointers=pointers
        )
        assert found_in(detailed.model_dump_json()) == []
    assert len(client.calls) == HAYSTACKS
    assert found_in(prompts_of(client)) == []


async def test_no_prompt_made_of_redacted_results_holds_a_secret(
    redacting: FileContextPointerStore, samples: tuple[Sample, ...]
) -> None:
    await save_all(redacting, samples)
    manager = ToolContextManager(pointer_store=redacting)
    client = ScriptedClient([], default='{"calls": []}')
    task = PlannedTask(id=1, description="go on", sub_tasks=[SubTask(id=1, description="read")])
    for number in range(HAYSTACKS):
        pointers = await manager.resume(f"q{number}")
        shown = format_selected_contexts(pointers=pointers, store=redacting, max_chars=500_000)
        assert shown.count("<<<") == len(pointers)
        assert found_in(shown) == []
        pool = DataPoolSnapshot(memory_hits=(MemorySnippet(**memory(number, shown).model_dump()),))
        request = request_of(400_000, "what came back?").model_copy(update={"now": NOON})
        bundle = await ContextSelector().select(request, pool)
        assert found_in(repr(bundle)) == []
        context = {"outputs": [pointer.model_dump() for pointer in pointers]}
        await ToolSelector(client).select_detailed(
            task=task, tool_registry=ToolRegistry([search]), context=context
        )
        for pointer in pointers:
            reading = await read_context(
                pointer.pointer_id, load=manager.load_payload, max_tokens=4_000
            )
            assert found_in(reading.rendered) == []
    assert len(client.calls) == HAYSTACKS
    assert found_in(prompts_of(client)) == []


def search(query: str) -> str:
    """Find things."""
    raise RuntimeError(f"refused: {query}")


def told(error: LLMCommonError, *, with_its_cause: bool = True) -> list[str]:
    """Return every text that an error shows."""
    return [str(error), repr(error), *traceback.format_exception(error, chain=with_its_cause)]


class Unknown:
    """A tool's argument that cannot be stored."""


async def test_errors_logs_and_spans_of_the_store_hold_no_secret(
    tmp_path: Path,
    samples: tuple[Sample, ...],
    caplog: pytest.LogCaptureFixture,
    exported: InMemorySpanExporter,
) -> None:
    caplog.set_level("DEBUG")
    store = FileContextPointerStore(tmp_path / "base", durability="rename", max_result_bytes=10_000)
    texts: list[str] = []
    for number, sample in enumerate(samples):
        call = {
            "query_id": f"q{number}",
            "task_id": None,
            "tool_name": "fetch",
            "result": sample.text,
        } | call_of(sample)
        for change in (
            {"query_id": f"../{sample.text}"},
            {"args": {"password": sample.text, sample.text: iter("")}},
            {"args": {"note": sample.text, "bad": Unknown()}},
            {"result": [sample.text, (number for number in range(3))]},
            {"result": "x" * 10_001 + sample.text},
        ):
            with pytest.raises(LLMCommonError) as caught:
                await store.save(**(call | change))
            texts += told(caught.value)
        pointer = await store.save(**call)
        Path(pointer.result_path).write_text(json.dumps(sample.text), encoding="utf-8")  # noqa: ASYNC240 - a test
        with pytest.raises(LLMCommonError) as caught:
            store.load_result(pointer=pointer)
        texts += told(caught.value)
        store.list(query_id=f"q{number}")
    assert found_in("\n".join(texts)) == []
    assert found_in(caplog.text) == []
    spans = exported.get_finished_spans()
    assert len(spans) >= 3 * len(samples)
    assert found_in("\n".join(span.to_json() for span in spans)) == []


async def test_errors_logs_and_spans_of_a_tool_hold_no_secret(
    store: FileContextPointerStore,
    samples: tuple[Sample, ...],
    caplog: pytest.LogCaptureFixture,
    exported: InMemorySpanExporter,
) -> None:
    """Only the cause of a tool's error may contain one, since it belongs to the tool."""
    caplog.set_level("DEBUG")
    registry = ToolRegistry([search])
    texts: list[str] = []
    for sample in samples:
        for query in (sample.text, [sample.text]):
            with pytest.raises(LLMCommonError) as caught:
                await registry.execute("search", {"query": query})
            texts += told(caught.value, with_its_cause=False)
        call = {"tool": "search", "args": {"query": sample.text}}
        client = ScriptedClient([json.dumps({"calls": [call]})])
        manager = ToolContextManager(pointer_store=store)
        executor = AgenticExecutor(client, registry, manager)
        results = await executor.execute_plan(["go on"], query_id="q")
        texts += [str(result.error) for result in results]
    assert found_in("\n".join(texts)) == []
    assert found_in(caplog.text) == []
    assert found_in("\n".join(span.to_json() for span in exported.get_finished_spans())) == []
