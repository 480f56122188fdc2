"""Passages of a text around the words of a request."""

import re
import time

import pytest
from hypothesis import given, strategies as st

from llm_common.parts.passages import RankedPassages
from llm_common.ranking.lexical import search_stems
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


def test_the_matching_passage_is_shown() -> None:
    ranked = RankedPassages(document(at120="The key is saffron."), search_stems("keys of saffron"))
    passages = ranked.best(max_size=1_500, count=len)
    assert passages is not None
    assert "The key is saffron." in passages.text


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
