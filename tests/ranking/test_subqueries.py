"""Requests of several parts."""

import pytest

from llm_common.ranking.lexical import split_request


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "How large is my kitchen? Which magazine does it look like?",
            ("How large is my kitchen?", "Which magazine does it look like?"),
        ),
        ("Refactor the request router and then update its tests", ("Refactor the request router", "update its tests")),
        (
            "- fix the failing parser\n- document the new option\n- release version two",
            ("- fix the failing parser", "- document the new option", "- release version two"),
        ),
        ("修复解析错误。更新文档说明。", ("修复解析错误。", "更新文档说明。")),
        ("Thanks! How large is my kitchen counter?", ()),
        ("how large is my kitchen counter", ()),
        ("", ()),
    ],
)
def test_parts_are_sentences_lines_and_what_comes_then(text: str, parts: tuple[str, ...]) -> None:
    assert split_request(text) == parts


def test_prose_is_not_a_list_of_wishes() -> None:
    assert split_request(" ".join(f"Sentence number{n} tells more things." for n in range(5))) == ()
