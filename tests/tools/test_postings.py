"""Scores of documents by their terms."""

import math

import pytest

from llm_common.ranking.lexical import BM25
from llm_common.tools.tool_index import Postings, stems_and_letters

DOCUMENTS = {
    "b": ["mail", "mail", "send"],
    "a": ["mail"],
    "c": ["send", "file", "open", "close", "list", "read", "save", "move"],
}


def postings() -> Postings:
    return Postings(BM25(), DOCUMENTS)


def idf(matches: int, documents: int) -> float:
    """Return the weight of a term by Robertson's formula with one added."""
    return math.log(1 + (documents - matches + 0.5) / (matches + 0.5))


def gain(count: int, length: int) -> float:
    """Return what repetitions earn in a document of a length, of four terms on average."""
    return count / (count + 1.2 * (0.25 + 0.75 * length / 4))


def test_documents_score_by_the_formula_relative_to_the_best() -> None:
    index = postings()
    assert index.keys == ("a", "b", "c")
    mail = {0: idf(2, 3) * gain(1, 1), 1: idf(2, 3) * gain(2, 3)}
    best = max(mail.values())
    assert index.scores(["mail"]) == pytest.approx(
        {key: score / best for key, score in mail.items()}
    )
    assert index.scores(["absent"]) == {}
    assert index.scores([]) == {}


def test_documents_far_below_the_best_are_kept() -> None:
    documents = {f"{number:02}": ["common", "word"] for number in range(30)}
    index = Postings(BM25(), {"best": ["rare", "rare", "rare"], **documents})
    scores = index.scores(["rare", "common"])
    assert scores[index.keys.index("best")] == 1.0
    assert len(scores) == 31
    assert min(scores.values()) < 0.2


def test_only_rare_terms_count() -> None:
    index = postings()
    assert [*index.scores(["mail", "file"], max_matches=1)] == [2]
    assert {*index.scores(["mail", "file"], max_matches=2)} == {0, 1, 2}


def test_a_share_is_the_weight_of_the_terms_in_the_document() -> None:
    index = postings()
    mail, send = idf(2, 3), idf(2, 3)
    assert index.shares(["mail"]) == pytest.approx({0: 1.0, 1: mail / (mail + send)})
    assert index.shares(["mail", "send"])[1] == pytest.approx(1.0)
    assert index.shares(["absent"]) == {}


def test_the_score_of_one_document_compares_between_pools() -> None:
    index = postings()
    expected = idf(2, 50) * gain(2, 3) + idf(2, 50) * gain(1, 3)
    assert index.score_of(1, ["mail", "send", "file"], min_documents=50) == pytest.approx(expected)
    small = idf(2, 3) * gain(1, 1)
    assert index.score_of(0, ["mail"], min_documents=2) == pytest.approx(small)


def test_words_have_stems_and_runs_of_four_letters() -> None:
    assert stems_and_letters("getUser api") == (
        ["getus", "get", "user", "api"],
        ["getu", "etus", "tuse", "user", "get", "user", "api"],
    )
    long = "x" * 33
    assert stems_and_letters(f"{long} ab") == ([long, "ab"], [])
    assert stems_and_letters("Éclair") == (["eclair"], ["ecla", "clai", "lair"])
