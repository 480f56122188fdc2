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
ANSWERS = re.compile(
    r'1196: 1195 \| customer 1195 \| Oslo \| 2987.5 \| ""\n'
    r'1199: 1198 \| customer 1198 \| Oslo \| 2995(?:.0)? \| ""\n'
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


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
    file, text = block_of(folder, QUESTION, 256)
    assert file.form == "passages"
    assert re.match(rf"### {re.escape(name)} \(\d+ of 1,200 records\)\n", text)
    assert text.count("id | name | city | balance | note\n") == 1
    assert '"id"' not in text
    assert ANSWERS.search(text)


def test_every_packed_record_is_whole(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", {"customers.csv": FORMS["customers.csv"]})
    for budget in (256, 400, 900, 3_000):
        _, text = block_of(folder, QUESTION, budget)
        numbers = re.findall(
            r'^(\d+): (\d+) \| customer (\d+) \| (\w+) \| ([\d.]+) \| ""$', text, re.MULTILINE
        )
        count = re.search(r"\((\d+) of 1,200 records\)", text)
        assert count
        assert len(numbers) == int(count[1]) == len(text.strip().splitlines()) - 2
        for number, customer, name, city, balance in numbers:
            assert int(number) == int(customer) + 1
            assert name == customer
            assert city == CITIES[int(customer) % 3]
            assert float(balance) == int(customer) * 2.5


@pytest.mark.parametrize("name", ["customers.csv", "customers.json"])
def test_more_budget_never_shows_fewer_records(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "data", {name: FORMS[name]})
    before: set[str] = set()
    tokens = 0
    for budget in (256, 300, 500, 1_000, 3_000, 9_000, 100_000):
        file, text = block_of(folder, QUESTION, budget)
        records = set(re.findall(r"^\d+: .*$", text, re.MULTILINE))
        assert before <= records
        assert tokens <= file.tokens
        before, tokens = records, file.tokens
    assert len(before) == 1_200
    assert file.form == "whole"


def test_values_beside_the_records_are_kept(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", {"customers.json": FORMS["customers.json"]})
    assert "page: 1\ncustomers: id | name" in block_of(folder, QUESTION, 256)[1]


def test_several_tables_of_a_file_keep_their_own_fields(tmp_path: Path) -> None:
    orders = [{"order": f"W{n}", "customer": n, "state": "open"} for n in range(300)]
    text = json.dumps({"customers": ROWS[:300], "orders": orders}, indent=1)
    folder = write(tmp_path / "data", {"shop.json": text})
    _, packed = block_of(folder, "What is the state of order W217?", 256)
    assert "orders: order | customer | state\n218: W217 | 217 | open\n" in packed
    assert "of 600 records" in packed


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
    assert re.search(r"^8: 7 \| ", pack.text, re.MULTILINE)
    assert pack.tokens <= 2_500
    if len(cell) > 2_000:
        assert f"8: 7 | {'x' * 1_999}…" in pack.text


def test_a_record_that_does_not_fit_is_not_cut(tmp_path: Path) -> None:
    rows = [{"id": n, "note": "long " * 300} for n in range(9)]
    folder = write(tmp_path / "data", {"notes.json": json.dumps(rows)})
    path = folder / "notes.json"
    assert "long" not in pack_folder("What is the note of id 7?", path, budget_tokens=256).text
    assert '8: 7 | "long' in pack_folder("What is the note of id 7?", path, budget_tokens=900).text


@pytest.mark.parametrize("settings", [20, 100, 101])
def test_all_values_beside_the_records_are_packed(tmp_path: Path, settings: int) -> None:
    data: dict[str, Any] = {f"setting_{n}": f"v{n}" for n in range(settings)}
    data["rows"] = [{"id": n, "name": f"item number {n}"} for n in range(200)]
    folder = write(tmp_path / "data", {"conf.json": json.dumps(data, indent=1)})
    last = f"setting_{settings - 1}"
    for budget in (1_300, 40_000):
        file, text = block_of(folder, f"conf item {last}", budget)
        assert last in text
        # A file with more values beside its records is packed as text.
        assert (" of 200 records" in text) == (settings <= 100)
    if settings <= 100:
        assert file.form == "whole"
        assert "(200 of 200 records)" in text
        assert all(f"{name}: {value}\n" in text for name, value in data.items() if name != "rows")


def test_text_around_a_table_within_a_value_is_packed(tmp_path: Path) -> None:
    table = "| part | price |\n| --- | --- |\n" + "| bolt | 3 |\n" * 20
    data = {"note": f"Prices rise in June.\n\n{table}\n", "rows": ROWS[:100]}
    folder = write(tmp_path / "data", {"shop.json": json.dumps(data, indent=1)})
    assert "Prices rise in June." in block_of(folder, "When do prices rise?", 40_000)[1]


@pytest.mark.parametrize("name", ["rows.csv", "rows.json"])
def test_cells_beyond_the_header_are_packed_with_their_record(tmp_path: Path, name: str) -> None:
    rows = [["id", "name", "note"]]
    rows += [[str(n), f"customer {n}", "fine"] for n in range(300)]
    rows[150] = ["149", "Smith", "John", "URGENT", "refund"]
    text = "\n".join([",".join(row) for row in rows])
    if name == "rows.json":
        text = json.dumps(rows, indent=1)
    file, packed = block_of(write(tmp_path / "data", {name: text}), "customer refund", 40_000)
    assert file.form == "whole"
    assert "\n150: 149 | Smith | John | URGENT | refund\n" in packed


@pytest.mark.parametrize(
    "data",
    [
        [{"id": n, "note": "x" * (2_001 if n == 7 else 200)} for n in range(30)],
        [{"id": n, "note": " \n" * 9_000 + "x" * (2_001 if n == 7 else 9)} for n in range(30)],
        {"rows": ROWS[:100], "note": "x" * 201},
        [{f"c{n}": n for n in range(501)} for _ in range(3)],
    ],
    ids=["a long cell", "a long cell after blanks", "a long value beside", "many fields"],
)
def test_a_file_with_a_cut_value_is_not_whole(tmp_path: Path, data: object) -> None:
    folder = write(tmp_path / "data", {"rows.json": json.dumps(data, indent=1)})
    file, text = block_of(folder / "rows.json", "rows", 40_000)
    total = len(data) if isinstance(data, list) else 100
    assert f"{total} of {total} records" in text
    assert "…" in text
    assert file.form == "passages"
