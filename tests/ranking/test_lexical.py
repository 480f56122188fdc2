"""Words of texts and requests."""

import pytest

from llm_common.ranking.lexical import MAX_QUERY_TERMS, query_terms, split_identifiers


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
