"""Where a text is cut into passages and pieces, and in which order they are shown."""

import pytest

from llm_common.parts.passages import RankedPassages, gap_mark, join_spans
from llm_common.ranking.lexical import stem


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("stopped", "stop"),
        ("calling", "call"),
        ("putting", "putt"),
        ("planning", "plan"),
        ("passes", "pass"),
        ("adding", "adding"),
        ("eggs", "eggs"),
        ("ebbed", "ebbed"),
        ("added", "added"),
        ("class", "class"),
        ("organizations", "organiz"),
    ],
)
def test_a_stem_has_at_least_four_letters(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_gaps_are_marked_with_their_characters() -> None:
    text = "0123456789\nabcdefghij"
    assert join_spans(text, [(0, 21)]) == text
    assert join_spans(text, [(2, 4), (11, 21)]) == (
        "[… 2 characters left out …]\n23\n[… 7 characters left out …]\nabcdefghij"
    )
    assert join_spans(text, [(0, 11)]) == ("0123456789\n[… 10 characters left out …]\n")
    assert gap_mark(1_234) == "[… 1,234 characters left out …]\n"


def test_the_last_mark_has_no_line_end_of_its_own() -> None:
    text = "saffron " + "stone " * 600
    ranked = RankedPassages(text, ["saffron"])
    assert ranked.join(1).text.endswith(" characters left out …]")
    whole = RankedPassages("saffron\n", ["saffron"])
    assert whole.join(1).text == "saffron\n"


def test_pieces_grow_from_the_match_to_both_sides() -> None:
    words = " ".join(f"w{number:03}" for number in range(100))
    text = words.replace("w050", "saffron")
    ranked = RankedPassages(text, ["saffron"])
    pieces = list(ranked.pieces)
    assert "saffron" in text[slice(*pieces[0])]
    # Each next piece touches those before it.
    for count in range(2, len(pieces) + 1):
        spans = sorted(pieces[:count])
        assert [end for _, end in spans[:-1]] == [start for start, _ in spans[1:]]
    assert sum(end - start for start, end in pieces) == len(text)


def test_without_a_match_two_passages_from_the_start_come_for_one_from_the_end() -> None:
    lines = [f"line {number:02} " + "x" * 290 for number in range(9)]
    ranked = RankedPassages("\n".join(lines), ["saffron"])
    starts: list[int] = []
    for start, end in ranked.pieces:
        number = ranked.text[start:end].partition("line ")[2][:2]
        if number:
            starts.append(int(number))
    assert not ranked.matches
    assert starts[0] == 0
    assert starts.index(8) < starts.index(2)
    assert starts.index(1) < starts.index(7)


def test_a_part_is_never_larger_than_the_whole() -> None:
    text = "saffron " + "stone " * 200
    ranked = RankedPassages(text, ["saffron"])
    sizes = ranked.parts(len, overhead=7, whole_tokens=lambda: 900.0)
    all_sizes = [sizes.largest_within(tokens) for tokens in range(0, 2_000, 50)]
    shown = [size for size in all_sizes if size is not None]
    assert shown
    assert shown == sorted(shown, key=lambda size: size.tokens)
    assert max(size.tokens for size in shown) < 900
    first = sizes.smallest_with(1)
    assert first is not None
    spans = list(ranked.pieces)[:1]
    mark = len(gap_mark(len(text)))
    assert first.tokens == 7 + sum(end - start for start, end in spans) + mark
    assert sizes.smallest_with(len(text)) is None
