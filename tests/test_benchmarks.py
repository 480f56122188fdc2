import random
import re
from pathlib import Path

import pytest

from benchmarks.bench_store import (
    FLOOR,
    FULL,
    RENAME,
    Limit,
    Setting,
    main,
    measure_listings,
    report,
)
from benchmarks.preview_peers import PEERS
from benchmarks.quality_previews import log_cases, measure, text_of
from benchmarks.scale_gateway import (
    shares_of,
)
from benchmarks.scale_table import Row
from benchmarks.store_measuring import Sample, quiet_place, search_hits
from benchmarks.store_subjects import Floor, Ours
from benchmarks.store_table import Column, Table, replace_between_markers

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", DOCUMENT, re.MULTILINE))
SCRIPT = re.compile(r"\b((?:bench|quality)_\w+\.py)\b")


def test_every_script_is_named_in_the_document_and_exists() -> None:
    scripts = {
        path.name
        for pattern in ("bench_*.py", "quality_*.py")
        for path in (ROOT / "benchmarks").glob(pattern)
    }
    assert scripts == set(SCRIPT.findall(DOCUMENT))


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_with_numbers_names_the_script_that_prints_them(section: str) -> None:
    assert SCRIPT.search(SECTIONS[section])


def test_smallest_run_shows_a_row_for_each_store(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["--sizes", "1KB", "--rounds", "1", "--folder", str(tmp_path), "--only", "load"])
    printed = capsys.readouterr().out
    rows = [line.split("|")[1].strip() for line in printed.splitlines() if line.startswith("|")]
    assert rows.count(FLOOR) == rows.count(RENAME) == 2
    assert not list(tmp_path.iterdir())


def test_listings_are_measured_cold_and_hot(tmp_path: Path) -> None:
    setting = Setting(quiet_place(tmp_path), rounds=2, payloads={}, pointers=5, peers=[])
    [table], limits = measure_listings(setting)
    assert [*table.columns] == ["cold, CPU", "cold, wall", "hot, CPU", "hot, wall"]
    assert {len(column.samples[RENAME]) for column in table.columns.values()} == {2}
    assert [limit.most for limit in limits] == [10]


@pytest.mark.parametrize("size", [1_000, 32_000])
async def test_the_floor_writes_as_many_bytes_as_the_store(tmp_path: Path, size: int) -> None:
    value = search_hits(size)
    for subject in (Floor(FLOOR, tmp_path / FLOOR), Ours(FULL, tmp_path / FULL, durability="full")):
        await subject.save("q", 1, value)
        assert await subject.load("q", 1) == value
    floor, ours = (
        {kind: _size(tmp_path / name, kind) for kind in ("result", "meta")}
        for name in (FLOOR, FULL)
    )
    assert size <= floor["result"] <= size + 1_000
    assert floor["result"] == ours["result"]
    assert floor["meta"] == pytest.approx(ours["meta"], rel=0.25)


def test_every_measured_framework_is_pinned() -> None:
    pinned = (ROOT / "benchmarks/peers.txt").read_text(encoding="utf-8")
    names = set(re.findall(r"^([\w-]+)(?:\[\w+\])?==", pinned, re.MULTILINE))
    assert {package for package, _ in PEERS.values()} <= names


def test_table_of_previews_has_a_row_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    cases = list(log_cases(random.Random(7)))
    previews = {
        "whole": lambda case, _: text_of(case.result),
        "empty": lambda _case, _tokens: "",
    }
    measure("log", cases, 400, previews=previews)
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines()[4:]]
    assert [(row[1].strip(), row[2].strip(), row[3].strip()) for row in rows] == [
        ("whole", "1.00", "1.00"),
        ("empty", "0.00", "0.00"),
    ]


def test_table_shows_medians_and_the_median_of_the_rounds_ratios() -> None:
    samples = {
        "floor": [Sample(0.001, 0.1), Sample(0.002, 0.1), Sample(0.004, 0.1)],
        "ours": [Sample(0.002, 0.1), Sample(0.006, 0.1), Sample(0.006, 0.1)],
    }
    table = Table(
        "Save",
        {"CPU": Column("cpu_s", samples), "other": Column("wall_s", {"ours": samples["ours"]})},
        {"ours": "floor"},
    )
    assert table.markdown().splitlines() == [
        "**Save**",
        "",
        "| store | CPU             | other  |",
        "| ----- | --------------- | ------ |",
        "| floor | 2.00 ms         | -      |",
        "| ours  | 6.00 ms (2.00x) | 100 ms |",
    ]


def test_an_exceeded_limit_ends_the_run_with_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report([], [Limit("kept", 1.5, 1.5)], where="here", write=False)
    with pytest.raises(SystemExit, match="over a limit"):
        report([], [Limit("kept", 1.5, 1.5), Limit("broken", 1.51, 1.5)], where="here", write=False)
    assert "OVER" in capsys.readouterr().out


def test_only_the_text_between_the_markers_is_replaced(tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text(
        "before\n<!-- bench_store: start -->\nold\n<!-- bench_store: end -->\nafter\n"
    )
    for _ in range(2):
        replace_between_markers(document, "bench_store", "new")
    assert (
        document.read_text()
        == "before\n<!-- bench_store: start -->\nnew\n<!-- bench_store: end -->\nafter\n"
    )


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (Row("save, ms", {1_000: 0.5, 10_000: 1.0, 1_000_000: 1.3}, max_growth=1.3), ""),
        (
            Row("save, ms", {1_000: 0.5, 10_000: 1.0, 1_000_000: 1.4}, max_growth=1.3),
            "save, ms: x1.40 from 10,000 to 1,000,000",
        ),
        (Row("save, ms", {1_000: 0.5, 10_000: 1.0}, max_growth=1.3), ""),
        (
            Row("memory, MB", {1_000: 100.0, 10_000: 301.0}, most=300.0),
            "memory, MB: 301 at 10,000, at most 300",
        ),
    ],
    ids=["growth", "over the growth", "one size", "over the most"],
)
def test_a_row_over_its_limit_says_so(row: Row, problem: str) -> None:
    assert row.problem() == problem


def test_recall_of_searches_counts_a_tool_once_and_by_its_place() -> None:
    first = [f"tool_{number}" for number in range(12)]
    answers = [first, ["tool_0", "other"]]
    assert shares_of({"tool_0", "tool_7", "tool_11", "none"}, answers) == (0.25, 0.5, 0.75)


def _size(folder: Path, kind: str) -> int:
    [file] = folder.rglob(f"*.{kind}.json")
    return file.stat().st_size
