"""The parts of a text that fit a request best."""

import re
import time

import pytest
from hypothesis import given, strategies as st

from llm_common.ranking.lexical import search_stems
from llm_common.ranking.passages import RankedPassages
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


def test_the_passage_that_holds_the_request_is_shown_with_its_neighbours() -> None:
    ranked = RankedPassages(document(at120="The key is saffron."), search_stems("keys of saffron"))
    found = ranked.best(room=1_500, count=len)
    assert found is not None
    assert "The key is saffron." in found.text
    assert "Paragraph 119" in found.text
    assert "Paragraph 3 " not in found.text


def test_passages_far_apart_stand_in_the_order_of_the_text_with_counts_between() -> None:
    text = document(at20="Saffron first.", at180="Saffron last.")
    found = RankedPassages(text, ["saffron"]).best(room=2_000, count=len)
    assert found is not None
    assert found.text.index("Saffron first.") < found.text.index("Saffron last.")
    missing = sum(
        int(count.replace(",", ""))
        for count in re.findall(r"\[… ([\d,]+) characters left out …\]", found.text)
    )
    assert missing + found.chars_shown == len(text)


def test_a_passage_that_is_longer_than_the_room_is_cut_around_its_match() -> None:
    words = [f"stone{number}" for number in range(60)]
    text = " ".join([*words[:40], "saffron", *words[40:]])
    found = RankedPassages(text, ["saffron"]).best(room=220, count=len)
    assert found is not None
    assert "saffron" in found.text
    assert "stone0 " not in found.text


@given(text=texts_of(60), rooms=st.lists(st.integers(1, 3_000), min_size=2, max_size=2))
def test_a_larger_room_shows_the_same_and_more(text: str, rooms: list[int]) -> None:
    small, large = (
        RankedPassages(text, ["rain", "cloud"]).best(room=room, count=len) for room in sorted(rooms)
    )
    if small is None:
        return
    assert large is not None
    assert large.chars_shown >= small.chars_shown
    for part in GAP.split(small.text):
        assert part.rstrip("\n") in large.text


def test_no_passages_without_a_word_of_the_request() -> None:
    assert RankedPassages(document(), ["saffron"]).best(room=1_000, count=len) is None
    assert RankedPassages(document(), []).best(room=1_000, count=len) is None


@given(text=texts_of(60), room=st.integers(1, 3_000))
def test_passages_stay_in_their_room_and_show_only_the_text(text: str, room: int) -> None:
    found = RankedPassages(text, ["rain", "cloud"]).best(room=room, count=len)
    if found is None:
        return
    assert 0 < found.chars_shown <= len(text)
    assert len(found.text) <= room + len("\n[… 1,234 characters left out …]\n")
    for part in re.split(r"\n?\[… [\d,]+ characters left out …\]\n?", found.text):
        assert part.rstrip("\n") in text


@pytest.mark.torture
def test_a_huge_text_takes_little_time() -> None:
    text = "\n".join(PARAGRAPHS * 100)
    started = time.process_time()
    RankedPassages(text, search_stems("stone and light of saffron in the roof garden")).best(
        room=4_000, count=len
    )
    assert time.process_time() - started < 1
