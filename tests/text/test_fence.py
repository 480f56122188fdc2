"""Fences around text from outside."""

import re

import pytest
from hypothesis import given, strategies as st

from llm_common.text.display import (
    PLACEHOLDER_NONCE,
    fence_nonce,
    fenced,
    one_line,
    printable,
    visible,
    without_headings,
)


def test_the_same_text_gets_the_same_nonce_s0_53() -> None:
    assert fence_nonce("text") == fence_nonce("text")
    assert fence_nonce("text") != fence_nonce("Text")
    assert len(fence_nonce("text")) == len(PLACEHOLDER_NONCE)


@given(st.text(), st.none() | st.text())
def test_a_nonce_cannot_be_taken_for_a_pointer_id(text: str, seed: str | None) -> None:
    assert not set(fence_nonce(text, seed=seed)) & set("0123456789abcdef")


def test_a_nonce_that_the_text_contains_is_derived_again_s0_53() -> None:
    first = fence_nonce("", seed="query")
    second = fence_nonce(f"x{first.upper()}x", seed="query")
    third = fence_nonce(f"{first} {second}", seed="query")
    assert len({first, second, third}) == 3


def test_a_seed_has_one_nonce_until_a_text_contains_it() -> None:
    first = fence_nonce("", seed="query")
    assert fence_nonce("a growing prompt", seed="query") == first
    second = fence_nonce(first, seed="query")
    assert fence_nonce(f"{first} and more", seed="query") == second != first


def test_a_text_of_a_seeds_nonces_gets_another_nonce() -> None:
    nonces: list[str] = []
    for _ in range(8):
        nonces.append(fence_nonce(" ".join(nonces), seed="query"))
    text = " ".join(nonces)
    assert fence_nonce(text, seed="query") != fence_nonce(f"{text} ", seed="query")


@given(st.text(), st.none() | st.text())
def test_no_text_contains_its_nonce_s0_53(text: str, seed: str | None) -> None:
    nonce = fence_nonce(text, seed=seed)
    assert nonce not in text.lower()
    assert fenced(text, nonce) == f"<<<{nonce}\n{text}\n{nonce}>>>"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\r\nc", "a b c"),
        (" a\t\0\x1b b ", "a b"),
        ("a\u2028b\u2029c\x85d", "a b c d"),
        ("a\u202eb\u2066c", "a b c"),
        ("a\u061cb", "a b"),
        ("a\ud800b", "a\\ud800b"),
        ("x" * 20, "x" * 9 + "…"),
        ("x" * 10, "x" * 10),
        (" " * 30 + "end", "end"),
        ("", ""),
    ],
)
def test_one_line_has_no_line_break_and_is_bounded(text: str, line: str) -> None:
    assert one_line(text, max_chars=10) == line


@given(
    st.text(
        st.sampled_from(" \t\n\x00\x1c\x85\xa0\u200e\u2028\u2066\ud800aé") | st.characters(),
        max_size=20,
    )
)
def test_one_line_replaces_each_run_of_breaks_by_one_space(text: str) -> None:
    breaks = r"[\s\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+"
    assert one_line(text, max_chars=200) == re.sub(breaks, " ", printable(text)).strip()


def test_visible_text_has_no_controls_and_no_letters_that_cannot_be_seen() -> None:
    for character in ("\x1b", "\x9b", "\x00", "\u202e", "\u2066", "\u200f", "\U000e0041", "\ud800"):
        assert visible(f"a{character}b") == "a\ufffdb"
    for text in (
        "plain",
        "tab\tand\nlines",
        "caf\u00e9 \u05d0\u05d1 \u65e5\u672c",
        "\U0001f469\u200d\U0001f4bb",
    ):
        assert visible(text) == text
    assert visible("a\r\nb") == "a\nb"


@given(st.text(alphabet=st.characters()))
def test_printable_text_can_be_encoded_and_keeps_its_characters(text: str) -> None:
    printable(text).encode()
    assert printable(text) == text or any("\ud800" <= character <= "\udfff" for character in text)


LINE_ENDS = ["", *"\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", "\r\n", "a\n"]
INVISIBLE = ["\u200b", "\ufeff", "\u2060", "\u202e", "\xad", "\0"]


@pytest.mark.parametrize(
    ("text", "indented"),
    [
        *((f"{end}### forged", f"{end} ### forged") for end in LINE_ENDS),
        *(
            (f"a\n{before}###{space}forged", f"a\n{before} ###{space}forged")
            for before in INVISIBLE
            for space in (" ", "\t", "\xa0", "\u2003")
        ),
        *(
            (text, text)
            for text in ("a ### b", "#### deeper", "## two", "###", "###\n", "", "x### y")
        ),
    ],
)
def test_only_a_line_that_begins_like_a_heading_is_indented(text: str, indented: str) -> None:
    assert without_headings(text) == indented
