"""What is remembered of texts."""

from typing import NamedTuple

import pytest

from llm_common.context.measured_scoring import AnalysisCache
from llm_common.context.request import Kind


class Item(NamedTuple):
    """A text under a key."""

    key: str
    text: str


class Describe:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, item: Item) -> tuple[tuple[Kind, str], tuple[str, ...]]:
        self.calls += 1
        return ("turn", item.key), (item.text,)


def get(cache: AnalysisCache, key: str, text: str, analyse: "Upper") -> tuple[str, ...]:
    return cache.get_all([Item(key, text)], Describe(), analyse)[1][0]


class Upper:
    """Counts how often it works."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> tuple[str, ...]:
        self.calls += 1
        return (text.upper(),)


def test_an_equal_text_is_analysed_once() -> None:
    cache, upper = AnalysisCache(max_chars=100), Upper()
    assert get(cache, "a", "one", upper) == ("ONE",)
    assert get(cache, "a", "eno"[::-1], upper) == ("ONE",)
    assert upper.calls == 1


def test_a_changed_text_is_analysed_again() -> None:
    cache, upper = AnalysisCache(max_chars=100), Upper()
    assert [get(cache, "a", text, upper) for text in ("one", "two", "one")] == [("ONE",), ("TWO",), ("ONE",)]
    assert (len(cache), upper.calls) == (1, 3)


def test_the_least_recently_used_is_forgotten_first() -> None:
    cache, upper = AnalysisCache(max_chars=6), Upper()
    for key in ("one", "two", "one", "six"):
        get(cache, key, key, upper)
    calls = upper.calls
    get(cache, "one", "one", upper)
    assert upper.calls == calls
    get(cache, "two", "two", upper)
    assert upper.calls == calls + 1
    assert len(cache) == 2


def test_a_text_beyond_the_limit_is_analysed_and_not_kept() -> None:
    cache, upper = AnalysisCache(max_chars=3), Upper()
    get(cache, "small", "a", upper)
    assert get(cache, "large", "large", upper) == ("LARGE",)
    assert get(cache, "small", "a", upper) == ("A",)
    assert (len(cache), upper.calls) == (1, 2)


def test_a_cache_of_no_characters_keeps_nothing() -> None:
    cache, upper = AnalysisCache(max_chars=0), Upper()
    for text in ("", "one"):
        get(cache, text, text, upper)
    assert len(cache) == 0


@pytest.mark.parametrize(("max_chars", "looks"), [(100, [3, 0, 1, 3, 4]), (2, [3, 3, 4, 3, 4])])
def test_objects_that_were_there_the_last_time_are_not_looked_at_again(max_chars: int, looks: list[int]) -> None:
    cache, upper = AnalysisCache(max_chars=max_chars), Upper()
    one, two, three, four = (Item(text, text) for text in ("one", "two", "three", "four"))
    asked = []
    for items in (
        [one, two, three],
        [one, two, three],
        [one, two, three, four],
        [two, three, four],
        [one, *items_of()],
    ):
        describe = Describe()
        keys, found = cache.get_all(items, describe, upper)
        assert keys == [("turn", item.key) for item in items]
        assert found == [(item.text.upper(),) for item in items]
        asked.append(describe.calls)
    assert asked == looks


def items_of() -> list[Item]:
    """Equal to others, but not the same objects."""
    return [Item(text, text) for text in ("two", "three", "four")]
