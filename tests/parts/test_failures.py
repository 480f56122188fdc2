"""A preview of a text shows what failed, and calls nothing a failure that is none."""

import pytest

from llm_common.parts.text_lines import TextLines, failures_in
from llm_common.parts.text_sketch import TextSketch
from tests.parts.failing_outputs import FAILING, SUCCEEDING, Output


@pytest.mark.parametrize("question", ["", "Why did it fail?", "Run it and tell me what went wrong"])
@pytest.mark.parametrize("output", FAILING, ids=lambda output: output.wanted)
def test_what_failed_is_shown(output: Output, question: str) -> None:
    assert output.wanted in TextSketch(output.text, question).text(1_200)


@pytest.mark.parametrize("output", SUCCEEDING, ids=lambda output: output.tool)
def test_no_failure_is_told_of_where_nothing_failed(output: Output) -> None:
    assert failures_in(TextLines(output.text)) == []
