"""Excerpts of JSON and of text."""

import json
import re

import pytest
from hypothesis import example, given, strategies as st

from llm_common.text.display import excerpt_json, excerpt_text, fair_shares, head_end, to_json

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters())
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=30), inner, max_size=6)
    ),
    max_leaves=60,
)


@given(VALUES, st.integers(3, 400))
def test_an_excerpt_is_json_that_fits_s0_51(value: object, max_chars: int) -> None:
    excerpt = excerpt_json(value, max_chars)
    json.loads(excerpt.text)
    excerpt.text.encode()
    assert len(excerpt.text.splitlines()) == 1
    assert len(excerpt.text) <= max_chars
    assert excerpt.chars_shown <= len(to_json(value))
    assert (excerpt.text == to_json(value)) == (len(to_json(value)) <= max_chars)


@given(st.text(alphabet="ab \n,}e\u0301\u200d👩", max_size=600), st.integers(0, 300))
def test_a_text_keeps_its_head_and_tail_s0_51(text: str, max_chars: int) -> None:
    excerpt = excerpt_text(text, max_chars)
    assert len(excerpt.text) <= max_chars
    if len(text) <= max_chars:
        assert excerpt.text == text
        return
    mark = re.search(r"\n\[… ([\d,]+) characters left out …\] ", excerpt.text)
    if mark:
        head, tail = excerpt.text[: mark.start()], excerpt.text[mark.end() :]
        assert text.startswith(head)
        assert text.endswith(tail)
        assert (
            int(mark[1].replace(",", ""))
            == len(text) - len(head) - len(tail)
            == len(text) - excerpt.chars_shown
        )
    else:
        assert text.startswith(excerpt.text.removesuffix("…"))


def test_a_list_keeps_its_first_items_whole_s0_51() -> None:
    items = [{"id": number, "name": "x" * 20} for number in range(40)]
    *shown, mark = json.loads(excerpt_json(items, 200).text)
    assert shown == items[: len(shown)]
    assert len(shown) >= 4
    assert mark == f"… {40 - len(shown)} of 40 items left out"


def test_a_list_shows_a_part_of_a_long_first_item_s0_51() -> None:
    shown = json.loads(excerpt_json([{"id": 1, "text": "word " * 500}, 2], 200).text)
    assert shown[0]["id"] == 1
    assert shown[0]["text"].startswith("word word")
    assert shown[-1] == "… 1 of 2 items left out"


def test_an_object_keeps_its_short_members_whole_s0_51() -> None:
    value = {"rows": list(range(1_000)), "total": 1_000, "text": "word " * 500, "next": None}
    shown = json.loads(excerpt_json(value, 400).text)
    assert list(shown) == list(value)
    assert (shown["total"], shown["next"]) == (1_000, None)
    assert shown["rows"][:3] == [0, 1, 2]
    assert "characters left out" in shown["text"]


def test_an_object_with_many_members_keeps_the_first_s0_51() -> None:
    shown = json.loads(excerpt_json({f"key{number}": number for number in range(500)}, 120).text)
    assert shown.pop("…").endswith("of 500 members left out")
    assert shown == {f"key{number}": number for number in range(len(shown))}
    assert shown


def test_long_integers_and_half_surrogates_survive_s0_51() -> None:
    value = {"n": 10**30, "s": "\ud800", "line": "a\u2028b"}
    text = to_json(value)
    text.encode()
    assert json.loads(text) == value
    assert "\u2028" not in text


def test_deep_nesting_fits_too() -> None:
    value: object = "x" * 500
    for _ in range(200):
        value = [value]
    assert len(excerpt_json(value, 100).text) <= 100


def test_eight_levels_are_shown_s0_51() -> None:
    value: object = "x" * 5_000
    for _ in range(12):
        value = [value]
    assert excerpt_json(value, 3_000).text == "[" * 8 + '"…"' + "]" * 8
    value = "x" * 5_000
    for _ in range(7):
        value = {"k": value}
    assert "xxx" in excerpt_json(value, 300).text


@pytest.mark.parametrize("cluster", ["e\u0301", "n\u0303\u0302", "👩\u200d💻", "क\u093f"])
def test_a_cut_never_separates_a_character_from_its_marks_s0_51(cluster: str) -> None:
    for max_chars in range(5, 300):
        parts = re.split(r"\n\[…[^\]]*…\] ", excerpt_text(cluster * 400, max_chars).text)
        for part in parts:
            shown = part.removesuffix("…")
            assert shown == cluster * (len(shown) // len(cluster))


def test_a_cut_falls_on_a_nearby_line_end_s0_51() -> None:
    lines = "".join(f"line {number} of the log\n" for number in range(200))
    head, tail = re.split(r"\n\[…[^\]]*…\] ", excerpt_text(lines, 600).text)
    assert set(f"{head}\n{tail}".splitlines()) <= set(lines.splitlines())


@given(st.lists(st.integers(0, 1_000), max_size=12), st.integers(-10, 5_000))
@example([3, 3], 5)
def test_shares_are_max_min_fair_s0_51(wants: list[int], max_chars: int) -> None:
    shares = fair_shares(wants, max_chars)
    assert sum(shares) <= max(max_chars, 0)
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))
    if sum(wants) <= max_chars:
        assert shares == wants
    hungry = [share for share, want in zip(shares, wants, strict=True) if share < want]
    if hungry:
        assert max(shares) <= min(hungry) + 1
        assert sum(shares) >= max(max_chars, 0) - len(wants)


@pytest.mark.parametrize(
    "value",
    [
        list(range(1_000)),
        {f"key{number}": number for number in range(500)},
        {"rows": ["x" * 20] * 40, "total": 40, "text": "word " * 500},
        "word " * 500,
    ],
)
def test_the_characters_shown_are_those_beside_the_marks(value: object) -> None:
    excerpt = excerpt_json(value, 300)
    of_items = r'"… [0-9,]+ of [0-9,]+ (?:items|members) left out"'
    of_text = r"\\n\[… [0-9,]+ characters left out …\] "
    own = re.sub(f'(?:"…":)?{of_items}|{of_text}', "", excerpt.text)
    assert len(own) < len(excerpt.text)
    assert excerpt.chars_shown == len(own)


@pytest.mark.parametrize("max_chars", [120, 200, 500])
def test_an_excerpt_without_boundaries_uses_its_whole_limit(max_chars: int) -> None:
    excerpt = excerpt_text("x" * 999, max_chars)
    assert len(excerpt.text) == max_chars
    head, tail = re.split(r"\n\[…[^\]]*…\] ", excerpt.text)
    assert len(head) + len(tail) == excerpt.chars_shown
    assert len(head) == excerpt.chars_shown * 2 // 3


def test_a_text_of_combining_marks_still_fills_its_limit() -> None:
    assert len(excerpt_text("e" + "\u0301" * 5_000, 300).text) >= 300 - 2 * 16 - 2


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("one two\nthree four five", "one two"),
        ('{"a": 1}, {"b": 2}, {"c": 3}', '{"a": 1}, {"b": 2},'),
        ("alpha, beta, gamma, delta", "alpha, beta,"),
    ],
)
def test_a_head_ends_at_the_best_boundary_of_its_last_quarter(text: str, head: str) -> None:
    assert text[: head_end(text, len(head) + 2)] == head


@pytest.mark.parametrize(
    ("value", "max_chars", "text"),
    [
        ("abcdefgh", 10, '"abcdefgh"'),
        ("abcdefgh", 9, '"abcdef…"'),
        ("abcdefgh", 5, '"ab…"'),
    ],
)
def test_an_excerpt_of_a_string_is_as_long_as_it_may_be_s0_51(
    value: str, max_chars: int, text: str
) -> None:
    assert excerpt_json(value, max_chars).text == text


def test_the_eighth_level_of_a_value_is_left_out_s0_51() -> None:
    def nested(levels: int, kind: str) -> object:
        value: object = ["x" * 60, "y" * 60]
        for _ in range(levels):
            value = {"k": value} if kind == "object" else [value]
        return value

    for kind in ("object", "list"):
        shown = ["xxx" in excerpt_json(nested(levels, kind), 110).text for levels in range(9)]
        assert shown.count(True) not in {0, 9}
        assert shown == sorted(shown, reverse=True)
