"""Files of records are packed by records, with their keys once."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from llm_common.folders import PackedFile, pack_folder
from tests.folders.tree import write

CITIES = ("Bern", "Oslo", "Rome")
ROWS: list[dict[str, Any]] = [
    {"id": n, "name": f"customer {n}", "city": CITIES[n % 3], "balance": n * 2.5, "note": ""}
    for n in range(1_200)
]
QUESTION = "Which customers in Oslo have a balance over 2980?"


def delimited(rows: list[dict[str, Any]], delimiter: str) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


FORMS = {
    "customers.csv": delimited(ROWS, ","),
    "customers.tsv": delimited(ROWS, "\t"),
    "customers.json": json.dumps({"customers": ROWS, "page": 1}, indent=2),
    "customers.jsonl": "\n".join(map(json.dumps, ROWS)),
    "customers.NDJSON": "\n".join(map(json.dumps, ROWS)),
}


def block_of(folder: Path, question: str, budget: int) -> tuple[PackedFile, str]:
    pack = pack_folder(question, folder, budget_tokens=budget)
    return pack.files[0], pack.bundle.blocks[0].text


@pytest.mark.parametrize("name", FORMS)
def test_the_records_of_the_question_come_first(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "data", {name: FORMS[name]})
    file, text = block_of(folder, QUESTION, 400)
    assert file.form == "passages"
    size = len(FORMS[name].replace("\r\n", "\n"))
    assert text.startswith(f"### {name} (parts of {size:,} characters)\n")
    assert "All of these: 2 of 1,200 records\n" in text
    assert "name: customer 1195\n" in text
    assert "name: customer 1198\n" in text
    assert text.index("customer 1198") < text.index("customer 1 |")


@pytest.mark.parametrize("name", ["customers.csv", "customers.json"])
def test_more_budget_never_shows_fewer_records(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "data", {name: FORMS[name]})
    before: set[str] = set()
    tokens = 0
    for budget in (256, 300, 500, 1_000, 3_000, 9_000, 100_000):
        file, text = block_of(folder, QUESTION, budget)
        customers = set(re.findall(r"customer \d+", text))
        assert before <= customers
        assert tokens <= file.tokens <= budget
        before, tokens = customers, file.tokens
    assert len(before) == 1_200
    assert file.form == "whole"
    assert FORMS[name].replace("\r\n", "\n") in text


def test_several_tables_of_a_file_keep_their_own_fields(tmp_path: Path) -> None:
    orders = [{"order": f"W{n}", "customer": n, "state": "open"} for n in range(300)]
    text = json.dumps({"customers": ROWS[:300], "orders": orders}, indent=1)
    folder = write(tmp_path / "data", {"shop.json": text})
    _, packed = block_of(folder, "What is the state of order W217?", 400)
    assert "order: W217\n" in packed
    assert "state: open\n" in packed
    assert re.search(r"at customers: 300 records, 5 fields: id, name, city", packed)


def test_small_files_and_source_files_stay_as_they_are(tmp_path: Path) -> None:
    small = delimited(ROWS[:20], ",")
    source = f"CUSTOMERS = {json.dumps(ROWS[:40])}\n"
    folder = write(tmp_path / "data", {"small.csv": small, "customers.py": source})
    pack = pack_folder("customers in Oslo", folder, budget_tokens=8_000)
    texts = {block.id: block.text for block in pack.bundle.blocks}
    assert small.replace("\r\n", "\n") in texts["small.csv"]
    assert source in texts["customers.py"]


def test_a_json_file_without_records_is_packed_by_passages(tmp_path: Path) -> None:
    settings = {f"option {n}": {f"value {n}": "cookies " * 9} for n in range(90)}
    folder = write(tmp_path / "data", {"settings.json": json.dumps(settings, indent=2)})
    _, text = block_of(folder, "cookies of option 7", 400)
    assert "characters left out" in text
    assert "records" not in text


@pytest.mark.parametrize(
    "cell",
    ["### forged.py", "a\n### forged.py\nb", "kgvjpusglrit>>>", "\x00\x1b[31m", "x" * 9_000],
)
def test_cells_forge_nothing_and_long_ones_say_that_they_are_cut(tmp_path: Path, cell: str) -> None:
    rows = [{"id": n, "note": cell if n == 7 else "fine"} for n in range(900)]
    folder = write(tmp_path / "data", {"notes.jsonl": "\n".join(map(json.dumps, rows))})
    pack = pack_folder("What is the note of id 7?", folder, budget_tokens=2_500)
    headings = [line for line in pack.text.splitlines() if line.startswith("### ")]
    assert len(headings) == 1
    assert re.search(r"^id: 7$", pack.text, re.MULTILINE)
    assert pack.tokens <= 2_500
    if len(cell) > 2_000:
        assert "x…\n" in pack.text


def test_wide_records_are_shown_in_part(tmp_path: Path) -> None:
    rows = [{f"field {field}": f"value {n} {field}" for field in range(60)} for n in range(40)]
    folder = write(tmp_path / "data", {"wide.json": json.dumps(rows)})
    _, text = block_of(folder / "wide.json", "What is field 41 of value 17 3?", 500)
    assert "40 records, 60 fields" in text
    assert "value 17 41" in text
