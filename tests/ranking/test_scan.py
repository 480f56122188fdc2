"""BM25 over texts in memory, without an index."""

import random
import re
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.ranking.lexical import (
    BM25,
    StreamedScan,
    folded,
    scan_columns,
    search_stems,
)


def scan(request: str, documents: Sequence[tuple[str, ...]], **options: Any) -> list[float]:
    return scan_columns(request, [*zip(*documents, strict=True)], **options)


def scores(request: str, *texts: str) -> list[float]:
    return scan(request, [(folded(text),) for text in texts], weights=(1.0,))


@pytest.mark.parametrize(
    ("query", "match", "other"),
    [
        ("delivery", "it was delivered late", "the driver was late"),
        ("stopped", "do not stop me", "step by step"),
        ("parsing", "class Parser", "class Reader"),
        ("connections", "def getConnection(self)", "def get_contact(self)"),
        ("rain", "rainy days", "the train station"),
        ("art", "arts and crafts", "start of the article"),
        ("café", "the CAFE is open", "the bar is open"),
        ("ｗｉｄｇｅｔ", "a widget", "a gadget"),
        ("天気予報", "明日の天気", "明日の会議"),
        ("прогноз", "Прогноз погоды", "Новости дня"),
        ("café", "cafe\u0301 noir", "coffee"),
        ("서울 날씨를 알려줘", "서울 여행", "부산 여행"),
        ("getUserName", "get_user_name", "delete_file"),
        ("get__user__name", "GetUserName", "delete file"),
    ],
)
def test_a_word_finds_its_forms_and_no_other_word(query: str, match: str, other: str) -> None:
    assert scores(query, match, other, "nothing of it") == [1.0, 0.0, 0.0]


def test_rare_words_count_more_than_common_ones() -> None:
    common, rare = "the report of monday", "the invoice of monday"
    result = scores("report invoice", common, common, common, rare)
    assert result[3] == 1.0
    assert result[0] == result[1] == result[2] < 0.5


def test_length_normalization_prefers_the_shorter_of_two_matches() -> None:
    documents = [("invoice " + "other words here " * 50,), ("invoice now",)]
    mild = scan("invoice", documents, weights=(1.0,), bm25=BM25(b=0.1))
    full = scan("invoice", documents, weights=(1.0,), bm25=BM25(b=1.0))
    assert full[0] < mild[0] < mild[1] == 1.0


def test_fields_count_by_their_weight() -> None:
    documents = [("invoice", "report"), ("report", "invoice")]
    assert scan("invoice", documents, weights=(3.0, 1.0))[0] == 1.0
    assert scan("invoice", documents, weights=(1.0, 3.0))[1] == 1.0


@pytest.mark.parametrize("request_text", ["", "?? !!", "the of and", "\ud800", "zzz"])
def test_a_request_without_words_scores_zero(request_text: str) -> None:
    assert scores(request_text, "one text", "") == [0.0, 0.0]
    assert scores(request_text) == []


HOSTILE = [
    '"',
    '"unclosed',
    'alpha"beta',
    "NEAR(alpha beta, 2)",
    "-alpha",
    "(alpha",
    "alpha AND NOT beta",
    "alpha\0beta",
]
HOSTILE += [
    "'; DROP TABLE texts; --",
    "alpha\ud800",
    "\u202ealpha",
    "[a-z]+",
    "a" * 100_000,
    "alpha " * 10_000,
]


@pytest.mark.parametrize("request_text", HOSTILE)
def test_a_request_has_no_syntax(request_text: str) -> None:
    matches = [score > 0 for score in scores(request_text, "alpha", "beta", "gamma")]
    assert matches == ["alpha" in request_text, "beta" in request_text, False]


@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_can_be_searched_for_and_in(query: str, text: str) -> None:
    assert all(0 <= score <= 1 for score in scores(query, text, "rain"))


def test_search_stems_are_distinct() -> None:
    assert search_stems("Parsing the parser's parse errors") == ("pars", "error")


@given(
    st.lists(st.text(alphabet="abc dé", max_size=30), min_size=1, max_size=8),
    st.text(alphabet="abc dé", max_size=30),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_texts_never_matters_s1_11(
    texts: list[str], query: str, rnd: random.Random
) -> None:
    expected = dict(zip(texts, scores(query, *texts), strict=True))
    shuffled = rnd.sample(texts, len(texts))
    assert dict(zip(shuffled, scores(query, *shuffled), strict=True)) == expected
    assert all(0.0 <= value <= 1.0 for value in expected.values())


def plain_scores(stem: str, documents: list[tuple[str, str]]) -> list[float]:
    """Score one word of four letters by BM25F, straight from the formula."""
    totals = [
        sum(
            weight * len(re.findall(f"(?<![a-z]){stem}", text))
            for weight, text in zip((2, 1), fields, strict=True)
        )
        for fields in documents
    ]
    lengths = [sum(map(len, fields)) for fields in documents]
    average = sum(lengths) / len(lengths) or 1
    gains = [
        total / (total + 1.2 * (0.25 + 0.75 * length / average))
        for total, length in zip(totals, lengths, strict=True)
    ]
    return [gain / (max(gains) or 1) for gain in gains]


_FIELD = st.lists(
    st.sampled_from(("rain", "train", "rainy", " ", "-", "3", "é", "x")), max_size=6
).map("".join)


@given(st.lists(st.tuples(_FIELD, _FIELD), max_size=6))
def test_documents_and_columns_score_as_the_plain_formula(
    documents: list[tuple[str, str]],
) -> None:
    scores = scan("rain", documents, weights=(2.0, 1.0))
    assert scores == scan_columns("rain", [*zip(*documents, strict=True)], weights=(2.0, 1.0))
    assert scores == pytest.approx(plain_scores("rain", documents) if documents else [])


def test_documents_of_equal_score_are_in_the_order_of_their_keys_s0_39() -> None:
    streamed = StreamedScan("rain")
    for key in ("b", "c", "a"):
        streamed.add(key, [("rain", 1.0)])
    hits, total = streamed.best(2)
    assert ([hit.key for hit in hits], total) == (["a", "b"], 3)


@pytest.mark.torture
def test_a_megabyte_of_one_letter_is_scanned_quickly() -> None:
    started = time.thread_time()
    scores("aaaa bbb " + "a" * 500, "a" * 1_000_000)
    assert time.thread_time() - started < 1  # a hundred times what it takes


@pytest.mark.parametrize(
    ("request_text", "texts"),
    [
        ("दिल्ली की बारिश", ["कल दिल्ली में बारिश होगी", "ट्रेन देर से आई", "क्रिकेट मैच कल है"]),
        ("القِطَار", ["وصل القطار متأخرا", "سعر الشاي ارتفع", "المطر غدا"]),
        ("القطار", ["وَصَلَ القِطَارُ", "سِعرُ الشَّاي", "المَطَرُ غَدًا"]),
        ("שלום", ["שָׁלוֹם לכם", "בַּיִת", "גֶּשֶׁם"]),
        ("ราคาข้าว", ["ราคาข้าววันนี้ขึ้น", "รถไฟมาสาย", "ฝนตกที่กรุงเทพ"]),
    ],
    ids=["Hindi", "points in the request", "points in the texts", "Hebrew", "Thai"],
)
def test_words_of_other_scripts_find_their_text(request_text: str, texts: list[str]) -> None:
    match, *unrelated = scores(request_text, *texts)
    assert match == 1.0
    assert max(unrelated) < 0.2
