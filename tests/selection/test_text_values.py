import time

import pytest
from hypothesis import given, strategies as st

from llm_common.selection.argument_filling import informative_words, read_values


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        (
            "say \"hello there\", 'it's', `x` and “y z”",
            "quoted",
            ("hello there", "it's", "x", "y z"),
        ),
        ("don't read the users' words", "quoted", ()),
        (
            "see https://a.example/b?c=1. Or (http://d.example).",
            "urls",
            ("https://a.example/b?c=1", "http://d.example"),
        ),
        ("mail a.b+c@d.example, please", "emails", ("a.b+c@d.example",)),
        ("from 2031-05-02 to 2031-05-03T10:00Z.", "dates", ("2031-05-02", "2031-05-03T10:00Z")),
        (
            "read src/app.py, ./run and docs/ or 'notes.md'.",
            "paths",
            ("src/app.py", "./run", "docs/", "notes.md"),
        ),
        ("e.g. TCP/IP and 3.5 or so", "paths", ()),
        ("5 of 1,200 at 2.5%, -3, and v2 on 2031-05-02 in a1.py", "numbers", (5, 1200, 2.5, -3)),
        ("Weather in New York and Ulm's AAPL.", "proper_names", ("New York", "Ulm", "AAPL")),
        ("Compare it. Then stop", "proper_names", ()),
    ],
)
def test_values_are_found_in_the_order_of_the_text(
    text: str, kind: str, found: tuple[object, ...]
) -> None:
    assert getattr(read_values(text), kind) == found


def test_informative_words_are_what_is_left() -> None:
    assert (
        informative_words("Please search for the retry logic in http.py", without={"search"})
        == "retry logic http.py"
    )


@given(text=st.text(max_size=200))
def test_any_text_has_values(text: str) -> None:
    values = read_values(text)
    assert all(
        value in text
        for value in (*values.quoted, *values.urls, *values.emails, *values.dates)
        if value
    )


@pytest.mark.parametrize(
    "piece",
    ["a", "a.", "-", "1,", "'", "http://", "a@a.", "A ", "/", "../", "1-", "“", "'a", " 'a"],
)
def test_hostile_text_takes_no_time(piece: str) -> None:
    started = time.thread_time()
    read_values(piece * 1_000_000)
    assert time.thread_time() - started < 0.5
