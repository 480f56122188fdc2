"""The simpler ways of choosing that the demo is compared with."""

from llm_common.apps.cli.demo.agent import best_records, first_tokens
from llm_common.core import DefaultCounter

COUNTER = DefaultCounter()
PARTS = [{"part": f"part {number}", "stock": number} for number in range(1_000)]


def test_the_first_tokens_are_shared_by_the_outputs() -> None:
    text = first_tokens([PARTS, "b " * 5_000], max_tokens=100)
    assert "part 0" in text
    assert "part 999" not in text
    assert "b b" in text
    assert 80 < COUNTER.count(text) <= 102


def test_the_record_that_shares_rare_words_with_the_question_comes_first() -> None:
    text = best_records("How many of part 731?", [PARTS], max_tokens=60)
    assert text.splitlines()[0] == '{"part":"part 731","stock":731}'
    assert 0 < COUNTER.count(text) <= 60


def test_records_of_a_text_are_paragraphs_or_lines() -> None:
    log = "2026-01-01 start\n\n2026-01-02 the pump failed\nat noon\n\n2026-01-03 stop"
    table = "pump,state\na,works\nb,failed"
    assert best_records("pump failed", [log], max_tokens=20) == (
        "2026-01-02 the pump failed\nat noon"
    )
    assert best_records("b failed", [table], max_tokens=4) == "b,failed"


def test_without_outputs_nothing_is_shown() -> None:
    assert first_tokens([], max_tokens=10) == ""
    assert best_records("anything", [], max_tokens=10) == ""
