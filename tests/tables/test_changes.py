"""What differs between two results: rows by key, fields, lines of text."""

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.tables.changes import changes_between, line_changes

ROWS: list[dict[str, Any]] = [
    {"name": f"part {n}", "id": n, "size": {"w": n, "h": "5"}} for n in range(100)
]


def changed(old: Any, new: Any) -> str | None:
    return changes_between(old, new, max_chars=5_000)


def rows(**cells: Any) -> list[dict[str, Any]]:
    """Return the rows with other cells in one of them."""
    return [*ROWS[:7], ROWS[7] | cells, *ROWS[8:]]


BOLT = rows(name="bolt", size={"w": 7, "h": 5})
LINES = [f"line {n}" for n in range(1, 101)]
MEMBERS = {f"n{n}": {"key": "k", "v": n} for n in range(5)}
TOWNS: list[dict[str, Any]] = [{"sort": "a", "city": f"town {n}", "lines": n} for n in range(5)]
KEYLESS = [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 2, "b": 3}]
ONE_OF_100 = "100 records before, 100 now: 99 are the same, 1 changed, 0 came, 0 went.\n"
JSON_LINES = "\n".join(map(json.dumps, ROWS))
CSV = "id,name\n" + "\n".join(f"{number},part {number}" for number in range(100))
ONE_LINE = " lines before, {0} now: 1 went (-), 1 came (+), the others are the same.\n"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        pytest.param(
            ROWS,
            [*BOLT[:3], *BOLT[4:], {"name": "nut", "id": 900}],
            "100 records before, 100 now: 98 are the same, 1 changed, 1 came, 1 went.\n"
            "Changed, by id:\n"
            '7: name: part 7 → bolt; size.h: "5" → 5\n'
            "Columns: name | id | size.w | size.h\n"
            "Came:\n"
            "nut | 900 | (missing) | (missing)\n"
            "Went:\n"
            'part 3 | 3 | 3 | "5"',
            id="rows by their id, cells old then new",
        ),
        pytest.param(
            {"a": {"key": "k", "v": 101}, "b": {"key": "k", "v": 102}, **MEMBERS},
            {"a": {"key": "k", "v": 102}, "b": {"key": "k", "v": 101}, **MEMBERS},
            "7 records before, 7 now: 5 are the same, 2 changed, 0 came, 0 went.\n"
            "Changed, by key_2:\n"
            "a: v: 101 → 102\n"
            "b: v: 102 → 101",
            id="members with a key that swap their owners",
        ),
        pytest.param(
            {name: {"v": member["v"]} for name, member in MEMBERS.items()},
            MEMBERS,
            "5 records before, 5 now: 0 are the same, 5 changed, 0 came, 0 went.\n"
            "Changed, by key_2:\n" + "\n".join(f"n{n}: key: (missing) → k" for n in range(5)),
            id="only the new members have a key",
        ),
        *(
            pytest.param(
                rows(name=old),
                rows(name=new),
                f"{ONE_OF_100}Changed, by id:\n7: name: {line}",
                id=f"cells of two kinds {line}",
            )
            for old, new, line in (
                (1, True, "1 → true"),
                (1, 1.0, "1 → 1.0"),
                (None, "null", 'null → "null"'),
            )
        ),
        pytest.param(
            ROWS,
            ROWS[::-1],
            "100 records, all the same. Only their order changed.",
            id="the order alone",
        ),
        pytest.param(
            ROWS,
            rows(name="bolt")[::-1],
            f"{ONE_OF_100.strip()} The order of the others changed too.\n"
            "Changed, by id:\n7: name: part 7 → bolt",
            id="the order too",
        ),
        pytest.param(
            TOWNS,
            [*TOWNS[:2], TOWNS[2] | {"lines": 50}, *TOWNS[3:]],
            "5 records before, 5 now: 4 are the same, 1 changed, 0 came, 0 went.\n"
            "Changed, by city:\ntown 2: lines: 2 → 50",
            id="the first unique column is the key",
        ),
        pytest.param(
            KEYLESS,
            [KEYLESS[0], {"a": 2, "b": 2}, KEYLESS[2]],
            "3 records before, 3 now: 2 are the same, 0 changed, 1 came, 1 went.\n"
            "Columns: a | b\nCame:\n2 | 2\nWent:\n1 | 3",
            id="rows without a key",
        ),
        *(
            pytest.param(
                {"items": ROWS} | old,
                {"items": ROWS} | new,
                f"Other fields that changed:\n{line}",
                id=f"a field beside records {line}",
            )
            for old, new, line in (
                ({"page": {"next": "a"}}, {"page": {"next": "b"}}, "page.next: a → b"),
                ({"total": 1}, {"total": 1, "next": None}, "next: (missing) → null"),
                ({"total": 1}, {"total": True}, "total: 1 → true"),
                ({"total": 1}, {"total": "1"}, 'total: 1 → "1"'),
                ({"at": "a → b"}, {"at": ""}, 'at: "a → b" → ""'),
            )
        ),
        *(
            pytest.param(
                CSV,
                CSV.replace("7,part 7\n", f"7,{cell}\n"),
                f"101{ONE_LINE.format(101)}-9: 7,part 7\n+9: 7,{cell}",
                id=f"a line of a table {cell}",
            )
            for cell in (" bolt", '"bolt', "bolt,")
        ),
        pytest.param(
            JSON_LINES,
            "\n".join(map(json.dumps, rows(name="bolt"))),
            f"100{ONE_LINE.format(100)}-8: {json.dumps(ROWS[7])}\n"
            f"+8: {json.dumps(rows(name='bolt')[7])}",
            id="JSON lines",
        ),
        pytest.param(
            "\n".join(LINES),
            "\n".join([*LINES[:9], "### new", *LINES[9:49], *LINES[50:]]),
            f"100{ONE_LINE.format(100)}+10: ### new\n-50: line 50",
            id="lines with their numbers",
        ),
    ],
)
def test_what_changed_between_two_results_is_told_t_05(old: Any, new: Any, text: str) -> None:
    assert changed(old, new) == text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ROWS, json.dumps(ROWS)),
        (ROWS, {"items": ROWS}),
        ({"a": [1, [2]]}, {"a": [1, [2], 3]}),
        ({"a": {"b": 1}}, {"a": 1}),
        ([{"id": 1, "a.b": 1}, {"id": 2, "c": 1}], [{"id": 1, "a": {"b": 1}}, {"id": 2, "c": 2}]),
        (json.dumps(ROWS), json.dumps(ROWS, indent=1)),
        # Which of two equal rows went, and whether the others moved, is open.
        ([*KEYLESS, KEYLESS[0]], KEYLESS[::-1]),
    ],
)
def test_what_cannot_be_written_has_no_changes_t_05(old: Any, new: Any) -> None:
    assert changed(old, new) is None


@pytest.mark.parametrize(
    "write",
    [
        json.dumps,
        lambda records: {"status": "ok", "data": {"parts": records}},
        lambda records: {f"p{record['id']}": record for record in records},
    ],
    ids=["JSON", "in objects", "members"],
)
def test_records_are_compared_in_every_form(write: Any) -> None:
    text = changed(write(ROWS), write(rows(name="bolt")))
    assert text is not None
    assert "99 are the same, 1 changed" in text
    assert "7: name: part 7 → bolt" in text


@pytest.mark.parametrize(
    ("old", "new", "max_chars"),
    [
        (ROWS, [row | {"name": "x" * 60} for row in ROWS], 5_000),
        (ROWS, rows(name="bolt"), 50),
        ([], [{"id": n, "stock": n} for n in range(1_000)], 10**6),
    ],
    ids=["many changes", "little room", "many new rows"],
)
def test_more_than_a_preview_has_room_for_is_not_written(
    old: Any, new: Any, max_chars: int
) -> None:
    assert changes_between(old, new, max_chars=max_chars) is None


@given(st.lists(st.sampled_from("abc"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30))
def test_the_new_text_follows_from_the_old_one_and_its_changes_t_05(
    old: list[str], new: list[str]
) -> None:
    text = line_changes("\n".join(old), "\n".join(new), max_chars=10_000)
    if text is None:
        assert "\n".join(old) == "\n".join(new)
        return
    lines = "\n".join(old).split("\n")
    edits = [(line[0], *line[1:].split(": ", 1)) for line in text.split("\n")[1:]]
    for sign, number, content in reversed(edits):
        if sign == "-":
            assert lines.pop(int(number) - 1) == content
    for sign, number, content in edits:
        if sign == "+":
            lines.insert(int(number) - 1, content)
    assert "\n".join(lines) == "\n".join(new)


@pytest.mark.parametrize(
    ("old", "new", "summary"),
    [
        ("a\nb\n", "a\nc\n", "2" + ONE_LINE.format(2)),
        ("a\nb", "a\nc", "2" + ONE_LINE.format(2)),
        ("a\nb", "a\nc\n", "2" + ONE_LINE.format(2)),
    ],
)
def test_a_last_line_end_begins_no_further_line_t_05(old: str, new: str, summary: str) -> None:
    assert line_changes(old, new, max_chars=100) == f"{summary}-2: b\n+2: c"


def test_texts_of_repeated_lines_take_bounded_work() -> None:
    rng = random.Random(1)
    texts = ["\n".join(rng.choices("ab", k=50_000)) for _ in range(2)]
    texts += ["a\n" * 50_000, "a\nb\n" * 25_000, "\n".join(map(str, range(100_000)))]
    started_s = time.process_time()
    for old in texts:
        for new in texts:
            assert old == new or line_changes(old, new, max_chars=5_000) is None
    assert time.process_time() - started_s < 60
