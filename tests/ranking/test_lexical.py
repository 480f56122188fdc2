"""Words of texts and requests."""

import pytest

from llm_common.ranking.lexical import (
    MAX_QUERY_TERMS,
    query_terms,
    split_identifiers,
    split_request,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getUserName", "getUserName get User Name"),
        ("get_user_name", "getusername get user name"),
        ("HTTPServer2", "HTTPServer2 HTTP Server 2"),
        ("__init__", "init"),
        ("plain words, and Names.", "plain words and Names"),
        ("web-search/v2", "web search v2 v 2"),
        ("GRÖSSE größeMax", "GRÖSSE größeMax größe Max"),
        ("ｆｕｌｌ ﬁt", "full fit"),
        ("東京都", "東 京 都 東京 京都"),
        ("売上Report", "売 上 売上 Report"),
        ("a\0b\ud800c", "a b c"),
        ("हिन्दी में तमिழ்", "हिन्दी में तमिழ்"),
        ("ฝนตก", "ฝ น ต ก ฝน นต ตก"),
        ("כָּתַב בית־ספר", "כתב בית ספר"),
        ("القِطَار", "القطار"),
        ("x" * 40 + "Y" * 40, "x" * 40 + "Y" * 40),
        ("?! … 🙂", ""),
        ("", ""),
    ],
)
def test_identifiers_are_followed_by_their_parts(text: str, words: str) -> None:
    assert split_identifiers(text) == words


def test_only_the_first_distinct_words_of_a_long_query_count() -> None:
    query = " ".join(f"word{index:03}" for index in range(1_000))
    assert len(query_terms(query)) == MAX_QUERY_TERMS == 64
    assert query_terms("rain RAIN Rain the rain") == ["rain"]


def test_only_the_beginning_of_a_very_long_query_is_read() -> None:
    assert query_terms("rain " + "the " * 4_000 + "harbour") == ["rain", "harbour"]
    assert query_terms("rain " + "the " * 5_000 + "harbour") == ["rain"]
    assert split_request("Find rain now. " + "the " * 5_000 + "\nthen find the harbour") == ()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "How large is my kitchen? Which magazine does it look like?",
            ("How large is my kitchen?", "Which magazine does it look like?"),
        ),
        (
            "Refactor the request router and then update its tests",
            ("Refactor the request router", "update its tests"),
        ),
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
def test_a_request_is_split_at_sentences_lines_and_then(text: str, parts: tuple[str, ...]) -> None:
    assert split_request(text) == parts


def test_prose_is_not_split_into_parts() -> None:
    assert split_request(" ".join(f"Sentence number{n} tells more things." for n in range(5))) == ()


@pytest.mark.parametrize("space", [" ", "\t", "\n ", " \r\n"])
def test_a_long_run_of_white_space_separates_parts(space: str) -> None:
    request = f"find the price{space * 6_000}and then send an email"
    assert split_request(request) == ("find the price", "send an email")
