"""Passages of a text around the words of a request: where it is cut, and in which order."""

import re
import time

import pytest
from hypothesis import given, strategies as st

from llm_common.parts.passages import RankedPassages, gap_mark, join_spans
from llm_common.ranking.lexical import search_stems, stem
from tests.context.samples import texts_of

GAP = re.compile(r"\n?\[… [\d,]+ characters left out …\]\n?")
PARAGRAPHS = [
    f"Paragraph {number} speaks of stone and of light, and of nothing else at all."
    for number in range(200)
]


def document(**inserted: str) -> str:
    paragraphs = PARAGRAPHS.copy()
    for place, text in inserted.items():
        paragraphs[int(place.removeprefix("at"))] = text
    return "\n\n".join(paragraphs)


def test_distant_passages_keep_their_order_and_gaps_are_counted() -> None:
    text = document(at20="Saffron first.", at180="Saffron last.")
    passages = RankedPassages(text, ["saffron"]).best(max_size=2_000, count=len)
    assert passages is not None
    assert passages.text.index("Saffron first.") < passages.text.index("Saffron last.")
    missing = sum(
        int(count.replace(",", ""))
        for count in re.findall(r"\[… ([\d,]+) characters left out …\]", passages.text)
    )
    assert missing + passages.chars_shown == len(text)


def test_the_last_gap_has_what_was_not_searched_too() -> None:
    text = "Saffron first. " + "stone and light " * 200_000
    passages = RankedPassages(text, ["saffron"]).best(max_size=2_000, count=len)
    assert passages is not None
    gap = re.findall(r"\[… ([\d,]+) characters left out …\]", passages.text)[-1]
    assert int(gap.replace(",", "")) == len(text) - passages.chars_shown


def test_a_passage_that_does_not_fit_is_cut_around_its_match() -> None:
    words = [f"stone{number}" for number in range(60)]
    text = " ".join([*words[:40], "saffron", *words[40:]])
    passages = RankedPassages(text, ["saffron"]).best(max_size=220, count=len)
    assert passages is not None
    assert "saffron" in passages.text
    assert "stone0 " not in passages.text


@given(text=texts_of(60), sizes=st.lists(st.integers(1, 3_000), min_size=2, max_size=2))
def test_a_higher_limit_shows_the_same_and_more(text: str, sizes: list[int]) -> None:
    small, large = (
        RankedPassages(text, ["rain", "cloud"]).best(max_size=size, count=len)
        for size in sorted(sizes)
    )
    if small is None:
        return
    assert large is not None
    assert large.chars_shown >= small.chars_shown
    for part in GAP.split(small.text):
        assert part.rstrip("\n") in large.text


def test_a_text_without_a_word_of_the_request_has_no_passages() -> None:
    assert RankedPassages(document(), ["saffron"]).best(max_size=1_000, count=len) is None
    assert RankedPassages(document(), []).best(max_size=1_000, count=len) is None


@given(text=texts_of(60), max_size=st.integers(1, 3_000))
def test_passages_stay_within_their_limit_and_show_only_the_text(text: str, max_size: int) -> None:
    passages = RankedPassages(text, ["rain", "cloud"]).best(max_size=max_size, count=len)
    if passages is None:
        return
    assert 0 < passages.chars_shown <= len(text)
    assert len(passages.text) <= max_size + len("\n[… 1,234 characters left out …]\n")
    for part in GAP.split(passages.text):
        assert part.rstrip("\n") in text


@pytest.mark.torture
def test_a_huge_text_takes_little_time() -> None:
    text = "\n".join(PARAGRAPHS * 100)
    started = time.process_time()
    RankedPassages(text, search_stems("stone and light of saffron in the roof garden")).best(
        max_size=4_000, count=len
    )
    assert time.process_time() - started < 1


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
