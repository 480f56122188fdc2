"""Excerpts of text."""

import json
import re

import pytest
from hypothesis import example, given, strategies as st

from llm_common.text.display import excerpt_text, fair_shares, head_end, to_json


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


def test_long_integers_and_half_surrogates_survive_s0_51() -> None:
    value = {"n": 10**30, "s": "\ud800", "line": "a\u2028b"}
    text = to_json(value)
    text.encode()
    assert json.loads(text) == value
    assert "\u2028" not in text


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
