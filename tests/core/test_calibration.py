from hypothesis import given, strategies as st

from llm_common.core import CalibratedCounter


class Words:
    def count(self, text: str) -> int:
        return len(text.split())


PROMPT = "word " * 1_000


def test_counts_fall_to_those_that_the_endpoint_reports() -> None:
    counter = CalibratedCounter(Words())
    assert counter.count(PROMPT) == 1_000
    for _ in range(3):
        counter.observe(counted_tokens=counter.count(PROMPT), reported_tokens=650)
    assert 650 <= counter.count(PROMPT) <= 680


def test_counts_rise_after_one_higher_report() -> None:
    counter = CalibratedCounter(Words())
    counter.observe(counted_tokens=1_000, reported_tokens=650)
    counter.observe(counted_tokens=counter.count(PROMPT), reported_tokens=1_300)
    assert counter.count(PROMPT) >= 1_300


def test_short_prompts_and_missing_reports_are_ignored() -> None:
    counter = CalibratedCounter(Words())
    for counted, reported in ((1_000, 0), (50, 500), (0, 10)):
        counter.observe(counted_tokens=counted, reported_tokens=reported)
    assert counter.factor == 1.0


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(-5, 10**7)), max_size=20))
def test_an_absurd_report_has_a_bounded_effect(reports: list[tuple[int, int]]) -> None:
    counter = CalibratedCounter(Words())
    for counted, reported in reports:
        counter.observe(counted_tokens=counted, reported_tokens=reported)
    assert 200 <= counter.count(PROMPT) <= 4_200


@given(st.floats(0.3, 3.0), st.lists(st.integers(200, 5_000), min_size=1, max_size=12))
def test_a_steady_endpoint_is_never_undercounted(ratio: float, sizes: list[int]) -> None:
    counter = CalibratedCounter(Words())
    for size in sizes:
        text = "word " * size
        reported = round(size * ratio)
        assert counter.factor == 1.0 or counter.count(text) >= reported
        counter.observe(counted_tokens=counter.count(text), reported_tokens=reported)
