"""BM25 without an index."""

import random
import re
import time
import weakref

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from llm_common.ranking.lexical import BM25, TermScanner, folded, scan, scan_columns, search_stems


def scores(request: str, *texts: str) -> list[float]:
    return scan(request, [(folded(text),) for text in texts], weights=(1.0,))


@pytest.mark.parametrize(
    ("asked", "found", "missed"),
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
def test_a_word_finds_its_forms_and_no_stranger(asked: str, found: str, missed: str) -> None:
    assert scores(asked, found, missed, "nothing of it") == [1.0, 0.0, 0.0]


def test_rare_words_count_more_than_common_ones() -> None:
    common, rare = "the report of monday", "the invoice of monday"
    result = scores("report invoice", common, common, common, rare)
    assert result[3] == 1.0
    assert result[0] == result[1] == result[2] < 0.5


def test_a_short_text_that_says_it_beats_a_long_one_as_the_length_share_rises() -> None:
    documents = [("invoice " + "other words here " * 50,), ("invoice now",)]
    mild = TermScanner(weights=(1.0,), bm25=BM25(b=0.1)).scan("invoice", documents)
    full = TermScanner(weights=(1.0,), bm25=BM25(b=1.0)).scan("invoice", documents)
    assert full[0] < mild[0] < mild[1] == 1.0


def test_fields_count_by_their_weight() -> None:
    documents = [("invoice", "report"), ("report", "invoice")]
    assert scan("invoice", documents, weights=(3.0, 1.0))[0] == 1.0
    assert scan("invoice", documents, weights=(1.0, 3.0))[1] == 1.0


def test_a_part_of_a_request_is_not_drowned_by_the_words_of_another() -> None:
    texts = [
        "the magazine of the month",
        "large counters, large kitchens, large rooms",
        "the kitchen counter",
    ]
    asked = "How large is the counter of my kitchen{} Which magazine came last month"
    one, two = scores(asked.format(","), *texts), scores(asked.format("?"), *texts)
    assert one[0] < one[1]
    assert one[0] < two[0]


@pytest.mark.parametrize("request_text", ["", "?? !!", "the of and", "\ud800", "zzz"])
def test_nothing_to_look_up_scores_nothing(request_text: str) -> None:
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
    found = scores(request_text, "alpha", "beta", "gamma")
    assert [score > 0 for score in found] == [
        "alpha" in request_text,
        "beta" in request_text,
        False,
    ]


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_may_be_asked_and_searched(asked: str, text: str) -> None:
    assert all(0 <= score <= 1 for score in scores(asked, text, "rain"))


def test_stems_are_words_once_each() -> None:
    assert search_stems("Parsing the parser's parse errors") == ("pars", "error")


@given(
    st.lists(st.text(alphabet="abc dé", max_size=30), min_size=1, max_size=8),
    st.text(alphabet="abc dé", max_size=30),
    st.randoms(use_true_random=False),
)
@hypothesis_settings(max_examples=25)
def test_the_order_of_the_texts_never_matters_s1_11(
    texts: list[str], asked: str, rnd: random.Random
) -> None:
    expected = dict(zip(texts, scores(asked, *texts), strict=True))
    shuffled = rnd.sample(texts, len(texts))
    assert dict(zip(shuffled, scores(asked, *shuffled), strict=True)) == expected
    assert all(0.0 <= value <= 1.0 for value in expected.values())


_POOLS = st.lists(st.text(alphabet="abc d", max_size=12), max_size=4)


@given(st.lists(st.tuples(st.text(alphabet="abcd ", max_size=12), _POOLS), min_size=2, max_size=8))
@hypothesis_settings(max_examples=25)
def test_what_a_scanner_remembers_never_shows(searches: list[tuple[str, list[str]]]) -> None:
    one_for_all = TermScanner(weights=(1.0,))
    for asked, texts in searches * 2:
        documents = [(text,) for text in texts]
        assert one_for_all.scan(asked, documents) == scan(asked, documents, weights=(1.0,))


def plain_scores(stem: str, documents: list[tuple[str, str]]) -> list[float]:
    """BM25F as one would write it down, for one word of four letters."""
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
@hypothesis_settings(max_examples=25)
def test_documents_score_the_same_by_their_columns_and_by_the_plain_formula(
    documents: list[tuple[str, str]],
) -> None:
    found = scan("rain", documents, weights=(2.0, 1.0))
    assert found == scan_columns("rain", [*zip(*documents, strict=True)], weights=(2.0, 1.0))
    assert found == pytest.approx(plain_scores("rain", documents) if documents else [])


@pytest.mark.parametrize(("max_chars", "kept"), [(6, True), (5, False)])
def test_a_scanner_holds_no_more_text_than_it_may(max_chars: int, kept: bool) -> None:
    class Text(str):
        """A text that can be watched."""

        __slots__ = ("__weakref__",)

    scanner, watched = TermScanner(weights=(1.0,), max_chars=max_chars), Text("abcdef")
    gone = weakref.ref(watched)
    scanner.scan("abcd", [(watched,)])
    del watched
    assert (gone() is not None) is kept


@pytest.mark.torture
def test_a_megabyte_of_one_letter_is_no_trap() -> None:
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
    first, *others = scores(request_text, *texts)
    assert first == 1.0
    assert max(others) < 0.2
