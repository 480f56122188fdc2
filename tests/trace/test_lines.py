"""The format of lines: each fits the published schema and contains no secret."""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from llm_common._telemetry import record
from llm_common.agents import FileContextPointerStore
from llm_common.trace.lines import json_schema
from tests.trace.runs import STORIES, file, long_story, pack, recorded

SCHEMA = Path(__file__).parent.parent.parent / "docs" / "trace.schema.json"
KEY = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z" * 2


def test_the_published_schema_matches_the_models() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json_schema()


@pytest.mark.parametrize("texts", [False, True])
async def test_every_line_of_every_run_fits_the_schema(texts: bool, tmp_path: Path) -> None:
    validator = jsonschema_rs.validator_for(json_schema())
    kinds = set()
    for number, story in enumerate([long_story, *(story for story, *_ in STORIES.values())]):
        run = await recorded(story, tmp_path / str(number), texts=texts)
        assert run.notes == ()
        assert [line.seq for line in run.lines] == [*range(1, len(run.lines) + 1)]
        for text in run.path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            kinds.add(line["kind"])
            assert not [error.message for error in validator.iter_errors(line)], line
    assert kinds == set(json_schema()["discriminator"]["mapping"])


@pytest.mark.parametrize("texts", [False, True])
async def test_secrets_stay_out_of_names_and_texts(texts: bool, tmp_path: Path) -> None:
    async def story(_: FileContextPointerStore) -> None:
        record(
            "tool_call",
            tool=f"tool {KEY}",
            args={"api_key": KEY, "city": "Oslo"},
            failure=f"Error {KEY}",
        )
        await pack(None, 2_000, context_files=(file(f"{KEY}.txt", f"The parcel: key {KEY}"),))

    run = await recorded(story, tmp_path, texts=texts, query=f"Where is {KEY}?")
    written = run.path.read_text(encoding="utf-8")
    assert KEY not in written
    assert "[redacted]" in written
    assert ("Oslo" in written) is texts


async def test_ids_are_not_redacted(tmp_path: Path) -> None:
    run = await recorded(long_story, tmp_path)
    assert "[redacted]" not in run.path.read_text(encoding="utf-8")
