"""A preview shows the field that made a record match, the one that names it, and its neighbours."""

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from llm_common.agents import InMemoryContextPointerStore, OffloadPolicy, Session, SessionConfig

Records = Sequence[dict[str, Any]]


async def preview(result: Any, question: str) -> str:
    policy = OffloadPolicy(max_whole_tokens=0, max_preview_tokens=400, max_turn_tokens=None)
    session = Session(InMemoryContextPointerStore(), config=SessionConfig(offload=policy))
    return str(await session.offload(result, tool="api", args={}, query=question))


def as_csv(records: Records) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, records[0].keys())
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def as_blocks(records: Records) -> str:
    blocks = []
    for record in records:
        blocks.append("\n".join(f"{name}: {value}" for name, value in record.items()))
    return "\n\n".join(blocks)


def as_logfmt(records: Records) -> str:
    return "\n".join(
        " ".join(f'{name}="{value}"' for name, value in record.items()) for record in records
    )


def git_log() -> str:
    """Return 150 commits as mcp-server-git prints them."""
    commits = []
    for number in range(150):
        subject = "Handle the zanzibar case" if number == 77 else "Keep the order of options"
        message = f"Explain {number}. {'The printer wrote what the parser had read. ' * 6}{subject}"
        commits.append(
            f"Commit: '{number * 7_919:040x}'\n"
            f'Author: <git.Actor "Ann Lee <ann{number % 7}@example.org>">\n'
            f"Date: 2026-03-05 10:{number % 60:02}:00+00:00\n"
            f"Message: {message + chr(10)!r}\n"
        )
    return "Commit history:\n" + "\n".join(commits)


async def test_a_commit_shows_the_words_of_its_message_that_matched() -> None:
    text = await preview(git_log(), "the change about zanzibar")
    [message] = [line for line in text.splitlines() if line.startswith("Message: ")]
    assert message.startswith("Message: …")
    assert "Handle the zanzibar case" in message
    assert f"Commit: '{77 * 7_919:040x}'" in text


@pytest.mark.parametrize("write", [list, as_csv, as_blocks, as_logfmt])
@pytest.mark.parametrize("fields", [12, 30])
@pytest.mark.parametrize("matches", [1, 9])
async def test_the_field_that_matched_comes_first(
    write: Callable[[Records], Any], fields: int, matches: int
) -> None:
    records = []
    for number in range(150):
        record = {f"field_{field}": f"value {number}-{field}" for field in range(fields - 1)}
        place = "zanzibar" if number % 16 == 13 and number // 16 < matches else "madagascar"
        record["remark"] = f"{'a text about other things that goes on ' * 3}{place}, and so on"
        records.append(record)
    text = await preview(write(records), "Which record speaks of zanzibar?")
    body = text.partition("For the question:\n")[2]
    assert body.splitlines()[1 if matches == 1 else 0].startswith(("remark: ", "Records: remark |"))
    assert body.count("zanzibar") == matches
    assert "value 13-0" in body


KINDS = ("Road Bike", "City Bike", "Road Tyre", "City Tyre")
PARTS = [{"no": n, "kind": KINDS[n % 4], "stock": n % 5} for n in range(200)]
FILMS = [
    {
        "year": 1980 + n % 40,
        "score": n % 10,
        "title": "Dune" if n in (3, 9) else f"Film {chr(65 + n % 26)}{n}",
        "gross": 9 + n * 7,
    }
    for n in range(100)
]
ORDERS = [{"order": f"A-{n}", "euros": n * 37 % 401} for n in range(600)]
STOPS = [{"stop": f"Stop {chr(65 + n % 26)}{n}", "line": n % 4} for n in range(90)]
NEIGHBOURS = (
    "Neighbour before:\nstop: Stop C28\nline: 0\n"
    "Record 1:\nstop: Stop D29\nline: 1\n"
    "Neighbour after:\nstop: Stop E30\nline: 2\n"
)
METRES = [{"stop": f"Stop {n}", "metres": n * 10} for n in range(90)]


@pytest.mark.parametrize(
    ("records", "question", "shown", "absent"),
    [
        pytest.param(
            PARTS,
            "Which kind has road in it?",
            [
                "kind has Road: 100 of 200 records",
                "Records: kind | no\nRoad Bike | 0\nRoad Tyre | 2\n",
            ],
            "Neighbour",
            id="a condition on a word of a value shows the value",
        ),
        pytest.param(
            FILMS,
            "Which movie has the highest gross?",
            ["Records: title | gross", "Film V99 | 702"],
            "Neighbour",
            id="an order shows the name though two records share it",
        ),
        pytest.param(
            ORDERS,
            "What was the highest amount in euros?",
            ["Records: order | euros\nA-65 | 400\n", " more records\n"],
            "match",
            id="of ordered records none is said to match",
        ),
        pytest.param(
            STOPS,
            "What is the next stop after Stop D29?",
            [NEIGHBOURS],
            "L89",
            id="the neighbours of a named record in their order",
        ),
        pytest.param(STOPS, "Which line has Stop D29?", [], "Neighbour", id="no neighbours"),
        pytest.param(
            STOPS,
            "Which stop follows on the one before Stop L89?",
            ["Neighbour before:\nstop: Stop K88\n"],
            "Neighbour after",
            id="the neighbour of the last record",
        ),
        pytest.param(
            METRES,
            "Which stop has metres of 890 and above?",
            ["metres >= 890: 1 of 90 records"],
            "Neighbour",
            id="a range asks for no neighbours",
        ),
    ],
)
async def test_a_preview_shows_the_records_of_the_question(
    records: Records, question: str, shown: list[str], absent: str
) -> None:
    text = await preview(records, question)
    assert [part for part in shown if part not in text] == []
    assert absent not in text


async def test_fields_that_are_empty_in_the_records_are_not_shown() -> None:
    countries = []
    for n in range(200):
        names = {f"name_{code}": f"Land {n}" if n % 50 == code else "" for code in range(40)}
        region = "Melanesia" if n % 40 == 7 else "Europe"
        countries.append({"key": f"K{n}", **names, "region": region})
    text = await preview(countries, "Which countries are in Melanesia?")
    [head] = [line for line in text.splitlines() if line.startswith("Records: ")]
    assert "name_0" not in head.split(" | ")
    assert all(f"K{n}" in text for n in (7, 47, 87, 127, 167))
