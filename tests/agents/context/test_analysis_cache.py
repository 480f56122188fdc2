"""What is remembered of texts."""

from llm_common.agents.context.analysis_cache import AnalysisCache


class Upper:
    """Counts how often it works."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> tuple[str, ...]:
        self.calls += 1
        return (text.upper(),)


def test_an_equal_text_is_analysed_once() -> None:
    cache, upper = AnalysisCache(max_chars=100), Upper()
    assert cache.get("a", ("one",), upper) == ("ONE",)
    assert cache.get("a", ("eno"[::-1],), upper) == ("ONE",)
    assert upper.calls == 1


def test_a_changed_text_is_analysed_again() -> None:
    cache, upper = AnalysisCache(max_chars=100), Upper()
    assert [cache.get("a", (text,), upper) for text in ("one", "two", "one")] == [("ONE",), ("TWO",), ("ONE",)]
    assert (len(cache), upper.calls) == (1, 3)


def test_the_least_recently_used_is_forgotten_first() -> None:
    cache, upper = AnalysisCache(max_chars=6), Upper()
    for key in ("one", "two", "one", "six"):
        cache.get(key, (key,), upper)
    calls = upper.calls
    cache.get("one", ("one",), upper)
    assert upper.calls == calls
    cache.get("two", ("two",), upper)
    assert upper.calls == calls + 1
    assert len(cache) == 2


def test_a_text_beyond_the_limit_is_analysed_and_not_kept() -> None:
    cache, upper = AnalysisCache(max_chars=3), Upper()
    cache.get("small", ("a",), upper)
    assert cache.get("large", ("large",), upper) == ("LARGE",)
    assert cache.get("small", ("a",), upper) == ("A",)
    assert (len(cache), upper.calls) == (1, 2)
