"""Full-text ranking on SQLite FTS5."""

import gc
import sqlite3
import threading
import time

import pytest
from hypothesis import example, given, settings, strategies as st

from llm_common.errors import ConfigError
from llm_common.ranking.lexical import MAX_QUERY_TERMS, LexicalIndex, query_terms, split_identifiers, split_request


def keys(index: LexicalIndex, query: str, limit: int = 10) -> list[str]:
    return [hit.key for hit in index.search(query, limit=limit)]


def index_of(**texts: str) -> LexicalIndex:
    index = LexicalIndex({"text": 1})
    index.add_many((key, {"text": text}) for key, text in texts.items())
    return index


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
        ("x" * 40 + "Y" * 40, "x" * 40 + "Y" * 40),
        ("?! … 🙂", ""),
        ("", ""),
    ],
)
def test_identifiers_are_followed_by_their_parts(text: str, words: str) -> None:
    assert split_identifiers(text) == words


@pytest.mark.parametrize("query", ["user", "getUserName", "get_user_name", "getusername", "names of users"])
@pytest.mark.parametrize("spelling", ["getUserName", "get_user_name", "GetUserName", "get__user__name"])
def test_one_spelling_of_an_identifier_finds_another(query: str, spelling: str) -> None:
    with index_of(it=spelling, other="delete file") as index:
        assert keys(index, query) == ["it"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("running shoes", "run"),
        ("policies", "policy"),
        ("Café Zürich", "cafe zurich"),
        ("cafe\u0301", "café"),
        ("東京都の天気予報", "天気"),
        ("서울 날씨를 알려줘", "날씨"),
        ("天", "天"),
        ("天気", "気"),
        ("погода в Москве", "ПОГОДА"),
    ],
)
def test_stems_accents_case_and_unspaced_scripts_match(text: str, query: str) -> None:
    with index_of(it=text, other="unrelated") as index:
        assert keys(index, query) == ["it"]


ANY_TEXT = st.text(st.characters())  # lone surrogates too
HOSTILE = [
    '"',
    '"unclosed',
    'alpha"beta',
    "alpha NEAR beta",
    "NEAR(alpha beta, 2)",
    "text: alpha",
    "{f0} : alpha",
    "-alpha",
    "^alpha",
    "alph*",
    "*",
    "(alpha",
    "alpha) OR (beta",
    "alpha AND NOT beta",
    "'; DROP TABLE texts; --",
    "alpha\0beta",
    "alpha\ud800",
    "\u202ealpha",
    "a" * 100_000,
    "alpha " * 10_000,
]


@pytest.mark.parametrize("query", HOSTILE)
def test_a_query_has_no_syntax(query: str) -> None:
    with index_of(a="alpha", b="beta") as index:
        assert set(keys(index, query)) == {key for key, word in (("a", "alpha"), ("b", "beta")) if word in query}


@settings(max_examples=25, deadline=None)
@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
@example("\ud800", "rain", "rain")
def test_any_text_may_be_key_row_and_query(key: str, text: str, query: str) -> None:
    with LexicalIndex({"text": 1}) as index:
        index.add_many([(key, {"text": text})])
        assert keys(index, query) in ([], [key])
        assert keys(index, "rain") == [key] * ("rain" in query_terms(text))


@pytest.mark.parametrize("query", ["", "   ", "?!", "the of and", "What is it?"])
def test_a_query_without_words_finds_nothing(query: str) -> None:
    with index_of(a="what is the matter of it and") as index:
        assert keys(index, query) == []


def test_the_weights_of_the_fields_decide() -> None:
    rows = [("named", {"name": "weather", "text": "today"}), ("told", {"name": "today", "text": "weather"})]
    with LexicalIndex({"name": 3, "text": 1}) as by_name, LexicalIndex({"name": 1, "text": 3}) as by_text:
        for index in (by_name, by_text):
            index.add_many([*rows, ("x", {"name": "x"}), ("y", {"name": "y"}), ("z", {"text": "z"})])
        assert keys(by_name, "weather") == ["named", "told"]
        assert keys(by_text, "weather") == ["told", "named"]


def test_scores_are_positive_and_fall() -> None:
    with index_of(a="weather weather forecast", b="weather", c="forecast tomorrow", d="x", e="y") as index:
        scores = [hit.score for hit in index.search("weather forecast", limit=10)]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] > 0


@settings(max_examples=25, deadline=None)
@given(st.permutations([("b", "weather"), ("a", "weather"), ("c", "weather today"), ("d", "rain"), ("e", "snow")]))
def test_the_order_of_insertion_never_matters_and_ties_go_by_key(rows: list[tuple[str, str]]) -> None:
    with LexicalIndex({"text": 1}) as index:
        for key, text in rows:
            index.add_many([(key, {"text": text})])
        assert keys(index, "weather") == ["a", "b", "c"]


def test_the_last_row_of_a_repeated_key_counts() -> None:
    with LexicalIndex({"text": 1}) as repeated, index_of(a="sun", b="rain") as fresh:
        repeated.add_many([("a", {"text": "x"}), ("a", {"text": "sun"}), ("b", {"text": "rain"})])
        assert repeated.search("sun rain", limit=5) == fresh.search("sun rain", limit=5)


def test_an_unknown_field_changes_nothing() -> None:
    with index_of(a="weather") as index:
        with pytest.raises(ValueError, match=r"unknown fields \['title'\]; the index has \['text'\]"):
            index.add_many([("b", {"text": "weather"}), ("a", {"title": "x"})])
        assert keys(index, "weather") == ["a"]


def test_an_index_needs_a_field() -> None:
    with pytest.raises(ValueError, match="at least one field"):
        LexicalIndex({})


def test_the_limit_bounds_the_hits() -> None:
    with index_of(a="rain", b="rain", c="rain") as index:
        assert keys(index, "rain", limit=2) == ["a", "b"]
        assert keys(index, "rain", limit=0) == []
        assert keys(index, "rain", limit=-1) == []


def test_only_the_first_distinct_words_of_a_long_query_count() -> None:
    query = " ".join(f"word{number:03}" for number in range(1_000))
    assert len(query_terms(query)) == MAX_QUERY_TERMS == 64
    assert query_terms("rain RAIN Rain the rain") == ["rain"]


def test_serves_other_threads() -> None:
    with index_of(a="rain") as index:
        found: list[list[str]] = []

        def work(number: int) -> None:
            index.add_many([(f"k{number}", {"text": "snow"})])
            found.append(keys(index, "rain"))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [["a"]] * 8
        assert len(keys(index, "snow")) == 8


def test_closes_twice_and_with_its_last_reference() -> None:
    closed, dropped = index_of(a="rain"), index_of(a="rain")
    connections = [closed._connection, dropped._connection]
    closed.close()
    closed.close()
    del dropped
    gc.collect()
    for connection in connections:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


def test_a_sqlite_without_fts5_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutFts5(sqlite3.Connection):
        def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
            raise sqlite3.OperationalError("no such module: fts5")

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **options, factory=WithoutFts5))
    with pytest.raises(ConfigError, match="no FTS5") as caught:
        LexicalIndex({"text": 1})
    assert caught.value.value == sqlite3.sqlite_version


@pytest.mark.torture
def test_indexes_hundreds_of_rows_at_once_and_answers_quickly() -> None:
    text = "returns the current weather and the forecast for a city in getWeatherByCity units metric or imperial "
    with LexicalIndex({"name": 3, "text": 1}) as index:
        start = time.perf_counter()
        index.add_many((f"tool{number}", {"name": f"get_tool_{number}", "text": text * 3}) for number in range(500))
        indexed_s = time.perf_counter() - start
        start = time.perf_counter()
        index.search("forecast in my city", limit=10)
        found_s = time.perf_counter() - start
    assert indexed_s < 0.7  # ten times what it takes on an idle machine
    assert found_s < 0.1


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
