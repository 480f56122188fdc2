"""What differs between two results: rows by key, fields, lines of text."""

import copy
import json
import random
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.tables.changes import changes_between
from llm_common.text.line_changes import line_changes

ROWS: list[dict[str, Any]] = [
    {"name": f"part {n}", "id": n, "size": {"w": n, "h": "5"}} for n in range(100)
]


def changed(old: Any, new: Any) -> str | None:
    return changes_between(old, new, max_chars=5_000)


def rows(**cells: Any) -> list[dict[str, Any]]:
    copied = copy.deepcopy(ROWS)
    copied[7].update(cells)
    return copied


def test_members_with_a_key_that_swap_their_owners_are_told_t_05() -> None:
    members = {f"n{n}": {"key": "k", "v": n} for n in range(5)}
    old = {"a": {"key": "k", "v": 101}, "b": {"key": "k", "v": 102}, **members}
    new = {"a": {"key": "k", "v": 102}, "b": {"key": "k", "v": 101}, **members}
    assert changed(old, new) == (
        "7 records before, 7 now: 5 are the same, 2 changed, 0 came, 0 went.\n"
        "Changed, by key_2:\n"
        "a: v: 101 → 102\n"
        "b: v: 102 → 101"
    )


def test_keys_have_one_name_if_only_the_new_members_have_a_key_t_05() -> None:
    old: dict[str, Any] = {f"n{n}": {"v": n} for n in range(5)}
    new: dict[str, Any] = {f"n{n}": {"v": n, "key": "k"} for n in range(5)}
    assert str(changed(old, new)).endswith("\nn4: key: (missing) → k")


def test_rows_are_matched_by_their_id_and_cells_are_old_then_new_t_05() -> None:
    new = rows(name="bolt", size={"w": 7, "h": 5})
    del new[3]
    new.append({"name": "nut", "id": 900})
    assert changed(ROWS, new) == (
        "100 records before, 100 now: 98 are the same, 1 changed, 1 came, 1 went.\n"
        "Changed, by id:\n"
        '7: name: part 7 → bolt; size.h: "5" → 5\n'
        "Columns: name | id | size.w | size.h\n"
        "Came:\n"
        "nut | 900 | (missing) | (missing)\n"
        "Went:\n"
        'part 3 | 3 | 3 | "5"'
    )


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [(1, True, "1 → true"), (1, 1.0, "1 → 1.0"), (None, "null", 'null → "null"')],
)
def test_cells_of_different_kinds_differ_t_05(old: Any, new: Any, line: str) -> None:
    text = changed(rows(name=old), rows(name=new))
    assert text is not None
    assert text.endswith(f"7: name: {line}")


def test_an_order_alone_is_said_as_such_t_05() -> None:
    text = changed(ROWS, ROWS[::-1])
    assert text == "100 records, all the same. Only their order changed."
    moved = changed(ROWS, rows(name="bolt")[::-1])
    assert moved is not None
    assert "The order of the others changed too." in moved


def test_the_first_unique_column_is_the_key_if_none_is_named_as_an_id() -> None:
    old = [{"sort": "a", "city": f"town {n}", "lines": n} for n in range(5)]
    new = copy.deepcopy(old)
    new[2]["lines"] = 50
    text = changed(old, new)
    assert text is not None
    assert "Changed, by city:\ntown 2: lines: 2 → 50" in text


def test_without_a_key_rows_come_and_go_as_a_whole() -> None:
    old = [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 2, "b": 3}]
    new = [{"a": 1, "b": 2}, {"a": 2, "b": 2}, {"a": 2, "b": 3}]
    text = changed(old, new)
    assert text is not None
    assert text.endswith("Columns: a | b\nCame:\n2 | 2\nWent:\n1 | 3")
    # Which of two equal rows went, and whether the others moved, is open.
    assert changed([*old, old[0]], old[::-1]) is None


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ({"page": {"next": "a"}}, {"page": {"next": "b"}}, "page.next: a → b"),
        ({"total": 1}, {"total": 1, "next": None}, "next: (missing) → null"),
        ({"total": 1}, {"total": True}, "total: 1 → true"),
        ({"total": 1}, {"total": "1"}, 'total: 1 → "1"'),
        ({"at": "a → b"}, {"at": ""}, 'at: "a → b" → ""'),
    ],
)
def test_fields_beside_records_are_told(old: Any, new: Any, line: str) -> None:
    data = {"items": ROWS}
    assert changed(data | old, data | new) == f"Other fields that changed:\n{line}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ROWS, json.dumps(ROWS)),
        (ROWS, {"items": ROWS}),
        ({"a": [1, [2]]}, {"a": [1, [2], 3]}),
        ({"a": {"b": 1}}, {"a": 1}),
        ([{"id": 1, "a.b": 1}, {"id": 2, "c": 1}], [{"id": 1, "a": {"b": 1}}, {"id": 2, "c": 2}]),
        (json.dumps(ROWS), json.dumps(ROWS, indent=1)),
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


@pytest.mark.parametrize("cell", [" bolt", '"bolt', "bolt,"])
def test_a_table_in_a_text_is_compared_by_lines_t_05(cell: str) -> None:
    old = "id,name\n" + "\n".join(f"{number},part {number}" for number in range(100))
    text = changed(old, old.replace("7,part 7\n", f"7,{cell}\n"))
    assert text is not None
    assert f"-9: 7,part 7\n+9: 7,{cell}" in text


def test_json_lines_are_compared_by_lines_t_05() -> None:
    old = [json.dumps(row) for row in ROWS]
    new = [json.dumps(row) for row in rows(name="bolt")]
    assert changed("\n".join(old), "\n".join(new)) == (
        "100 lines before, 100 now: 1 went (-), 1 came (+), the others are the same.\n"
        f"-8: {old[7]}\n+8: {new[7]}"
    )


def test_more_than_a_preview_has_room_for_is_not_written() -> None:
    old: Any = ROWS
    new: Any = [row | {"name": "x" * 60} for row in ROWS]
    assert changed(old, new) is None
    new = rows(name="bolt")
    assert changes_between(old, new, max_chars=50) is None
    new = [{"id": n, "stock": n} for n in range(1_000)]
    assert changes_between([], new, max_chars=10**6) is None


def test_lines_are_told_with_their_numbers_t_05() -> None:
    old = [f"line {n}" for n in range(1, 101)]
    new = [*old[:9], "### new", *old[9:49], *old[50:]]
    assert line_changes("\n".join(old), "\n".join(new), max_chars=500) == (
        "100 lines before, 100 now: 1 went (-), 1 came (+), the others are the same.\n"
        "+10: ### new\n"
        "-50: line 50"
    )


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


def test_texts_of_repeated_lines_take_bounded_work() -> None:
    rng = random.Random(1)
    texts = ["\n".join(rng.choices("ab", k=50_000)) for _ in range(2)]
    texts += ["a\n" * 50_000, "a\nb\n" * 25_000, "\n".join(map(str, range(100_000)))]
    started_s = time.process_time()
    for old in texts:
        for new in texts:
            assert old == new or line_changes(old, new, max_chars=5_000) is None
    assert time.process_time() - started_s < 60
