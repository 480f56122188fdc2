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


async def test_a_condition_on_a_word_of_a_value_shows_the_value() -> None:
    kinds = ("Road Bike", "City Bike", "Road Tyre", "City Tyre")
    parts = [{"no": n, "kind": kinds[n % 4], "stock": n % 5} for n in range(200)]
    text = await preview(parts, "Which kind has road in it?")
    assert "kind has Road: 100 of 200 records" in text
    assert "Records: kind | no\nRoad Bike | 0\nRoad Tyre | 2\n" in text


async def test_an_order_shows_the_name_though_two_records_share_it() -> None:
    films = []
    for n in range(100):
        title = "Dune" if n in (3, 9) else f"Film {chr(65 + n % 26)}{n}"
        films.append({"year": 1980 + n % 40, "score": n % 10, "title": title, "gross": 9 + n * 7})
    text = await preview(films, "Which movie has the highest gross?")
    assert "Records: title | gross" in text
    assert "Film V99 | 702" in text


async def test_of_ordered_records_none_is_said_to_match() -> None:
    orders = [{"order": f"A-{n}", "euros": n * 37 % 401} for n in range(600)]
    text = await preview(orders, "What was the highest amount in euros?")
    assert "Records: order | euros\nA-65 | 400\n" in text
    assert " more records\n" in text
    assert "match" not in text


async def test_the_neighbours_of_a_named_record_are_shown_in_their_order() -> None:
    stops = [{"stop": f"Stop {chr(65 + n % 26)}{n}", "line": n % 4} for n in range(90)]
    text = await preview(stops, "What is the next stop after Stop D29?")
    assert (
        "Neighbour before:\nstop: Stop C28\nline: 0\n"
        "Record 1:\nstop: Stop D29\nline: 1\n"
        "Neighbour after:\nstop: Stop E30\nline: 2\n"
    ) in text
    assert "Neighbour" not in await preview(stops, "Which line has Stop D29?")
    last = await preview(stops, "Which stop follows on the one before Stop L89?")
    assert "Neighbour before:\nstop: Stop K88\n" in last
    assert "Neighbour after" not in last


async def test_a_range_asks_for_no_neighbours() -> None:
    stops = [{"stop": f"Stop {n}", "metres": n * 10} for n in range(90)]
    text = await preview(stops, "Which stop has metres of 890 and above?")
    assert "metres >= 890: 1 of 90 records" in text
    assert "Neighbour" not in text


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
