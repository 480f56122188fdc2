"""Passages: whole texts in pieces, and the pieces that a question is about."""

import json
from itertools import pairwise
from pathlib import Path

from hypothesis import given, strategies as st

from llm_common.apps.cli.demo.workspace import nearest_passages, split_passages

LINES = st.lists(
    st.sampled_from(["", "    body", "def f():", "text with words", "  "]), max_size=120
)


@given(LINES)
def test_passages_are_the_whole_text_in_order(lines: list[str]) -> None:
    passages = split_passages("\n".join(lines))
    assert [line for passage in passages for line in passage.text.split("\n")] == "\n".join(
        lines
    ).splitlines()
    assert all(passage.last_line - passage.first_line + 1 <= 28 for passage in passages)
    assert all(passage.last_line - passage.first_line + 1 >= 6 for passage in passages[:-1])
    numbers = [(passage.first_line, passage.last_line) for passage in passages]
    assert all(after[0] == before[1] + 1 for before, after in pairwise(numbers))


def test_a_passage_begins_at_a_definition() -> None:
    text = "\n".join(
        [
            "import a",
            *["x = 1"] * 6,
            "",
            "def first():",
            *["    pass"] * 7,
            "",
            "def second():",
            "    pass",
        ]
    )
    assert [passage.text.split("\n")[0] for passage in split_passages(text)] == [
        "import a",
        "def first():",
        "def second():",
    ]


def test_the_passages_of_the_question_come_first() -> None:
    text = Path(json.encoder.__file__).read_text(encoding="utf-8")
    shown = "\n".join(
        passage.text
        for passage in nearest_passages(text, "how are strings escaped", max_chars=4_000)
    )
    assert "def py_encode_basestring(" in shown
    assert "ESCAPE_DCT = {" in shown
    assert len(shown) < 4_100


def test_a_text_without_the_questions_words_shows_its_beginning() -> None:
    text = "\n".join(f"line {number}" for number in range(200))
    [first] = nearest_passages(text, "zebra", max_chars=250)
    assert first.first_line == 1


def test_an_empty_text_has_no_passages() -> None:
    assert nearest_passages("", "anything", max_chars=100) == []
