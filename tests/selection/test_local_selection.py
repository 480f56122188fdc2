"""Tests ranking and selection without a model."""

import random
import time

import pytest

from llm_common.agents import ContextPointer, LexicalRelevanceSelector
from llm_common.redaction.patterns import REDACTED
from llm_common.selection.relevance_ranking import RankedPointer, rank_pointers, select_by_keywords
from tests.ranking.doubles import FixedEmbedder
from tests.selection.doubles import candidate


def pointer(
    number: int, summary: str, digest: str = "", *, created_at: str | None = None, **args: object
) -> ContextPointer:
    return candidate(
        f"{number:012x}",
        args=args,
        created_at=created_at or f"2026-01-01T00:00:{number:02}.000000+00:00",
        summary=summary,
        digest=digest,
    )


def ranked(query: str, pointers: list[ContextPointer]) -> list[int]:
    return [int(entry.pointer.pointer_id, 16) for entry in rank_pointers(query, pointers)]


def entries_of(query: str, pool: list[ContextPointer]) -> dict[int, RankedPointer]:
    return {int(entry.pointer.pointer_id, 16): entry for entry in rank_pointers(query, pool)}


SEARCHES = [
    pointer(1, "search query=oslo", "weather rain tomorrow"),
    pointer(2, "search query=bergen", "train timetable"),
    pointer(3, "search query=ship", "harbour"),
    pointer(4, "search query=bus", "stops"),
]
EQUAL = [pointer(number, "weather oslo") for number in range(1, 6)]
AT_ONCE = [pointer(number, "weather", created_at="now") for number in (3, 1, 2)]
CALLS = [pointer(number, "call", order="ORD-118", created_at="2020") for number in range(8, 0, -1)]
LURES = [pointer(number, "refund of the order, please") for number in range(10, 30)]
PAID = pointer(9, "pay", card="C77", created_at="2020")
FLIGHTS = [pointer(number, "search", day="2024-05-24") for number in range(1, 9)]


@pytest.mark.parametrize(
    ("query", "pool", "first"),
    [
        pytest.param("rain", SEARCHES, [1], id="S0-08-digest"),
        pytest.param("bergen", SEARCHES, [2], id="S0-08-summary"),
        pytest.param("weather", EQUAL, [5, 4, 3, 2, 1], id="the newer of equal matches"),
        pytest.param("weather", EQUAL[::-1], [5, 4, 3, 2, 1], id="whatever their order"),
        pytest.param("weather", AT_ONCE, [2, 1, 3], id="the position at equal times"),
        pytest.param(
            "refund order ord-118 please",
            [*LURES, *CALLS],
            [1, 2, 3, 4, 5, 6, 7, 8],
            id="S0-42-every output with the named argument",
        ),
        pytest.param("pay for 2024-05-24 with C77", [PAID, *FLIGHTS], [9], id="the rarest name"),
    ],
)
def test_the_best_match_comes_first(
    query: str, pool: list[ContextPointer], first: list[int]
) -> None:
    assert ranked(query, pool)[: len(first)] == first


def test_a_name_in_the_best_digest_raises_its_pointer() -> None:
    pool = [
        pointer(1, "search query=Emory University", "a school", schools=["Emory University"]),
        pointer(2, "search query=Rice University", "a school", query="Rice University"),
        pointer(
            3,
            "search query=Jane Doe",
            "the author of Moon studied at Emory University.",
            query="Jane Doe",
        ),
        *(pointer(number, f"search query=other{number}", "nothing") for number in range(4, 20)),
    ]
    entries = entries_of("author of Moon, where from?", pool)
    assert entries[1].score - entries[2].score > 0.2
    assert not entries[1].matches


def test_an_argument_of_many_pointers_raises_each_a_little() -> None:
    pool = [
        pointer(
            1,
            "book flight",
            "flight on 2024-05-24 with certificate C77",
            created_at="2025",
            query="moon",
        ),
        pointer(2, "search day=1", "nothing", created_at="2023", day="2024-05-24"),
        *(
            pointer(number, f"search day={number}", "nothing", day="2024-05-24")
            for number in range(10, 20)
        ),
        pointer(3, "payment", "nothing", created_at="2023", card="C77"),
    ]
    entries = entries_of("which certificate", pool)
    assert entries[3].parts["named"] == pytest.approx(0.6)
    assert entries[2].parts["named"] < 0.1


def test_the_output_with_an_argument_of_the_best_is_raised() -> None:
    pool = [
        pointer(1, "get_user", "reservations JG7FMM", created_at="2020"),
        pointer(2, "get_user", "reservations XX0000", created_at="2020"),
        *(pointer(number, f"search {number}", "nothing") for number in range(10, 20)),
        pointer(
            3, "get_reservation", "business class to Oslo", created_at="2025", reservation="JG7FMM"
        ),
    ]
    entries = entries_of("business class", pool)
    assert entries[1].parts["names"] == pytest.approx(0.6)
    assert "names" not in entries[2].parts


def test_an_embedder_raises_a_summary_with_the_same_meaning() -> None:
    pool = [
        pointer(1, "search query=automobile"),
        *(pointer(number, f"search query=x{number}") for number in (2, 3)),
    ]
    pool += [pointer(number, "news", created_at="2020") for number in range(4, 9)]
    assert "vectors" not in rank_pointers("car", pool)[0].parts
    embedder = FixedEmbedder(lambda text: 1.0 if "automobile" in text else 0.1)
    ranking = rank_pointers("car", pool, embedder=embedder)
    [raised] = [entry for entry in ranking if entry.pointer == pool[0]]
    assert raised.parts["vectors"] == pytest.approx(0.4)
    assert raised.score == pytest.approx(sum(raised.parts.values()))


def test_repeated_names_count_once_and_accents_matter() -> None:
    pool = [
        pointer(1, "moon", "Oslo", created_at="2026", x="cafe"),
        pointer(2, "rain", created_at="2024", x="oslo", y=["Oslo"]),
        pointer(3, "rain", "the Café", created_at="2023"),
        *(pointer(number, "rain", created_at="2025") for number in (4, 5, 6)),
    ]
    entries = entries_of("moon", pool)
    assert entries[2].parts["named"] == 0.6
    assert "names" not in entries[3].parts


def test_words_of_two_letters_do_not_count_s4_03() -> None:
    pool = [pointer(1, "go to UK in a an of"), pointer(2, "uk weather")]
    assert select_by_keywords("go to the UK in May", pool, on_no_match="none") == []
    assert select_by_keywords("weather of the UK", pool, on_no_match="none") == [pool[1]]


def test_a_digest_with_accents_is_found_without_them() -> None:
    pool = [pointer(1, "t", "CAFÉ déjà"), pointer(2, "t", "a tea room")]
    entries = rank_pointers("cafe deja", pool)
    assert [entry.matches for entry in entries] == [True, False]
    assert entries[0].pointer == pool[0]


def test_a_part_of_a_word_is_not_a_name() -> None:
    pool = [
        pointer(1, "search", "x", query="art"),
        pointer(2, "search", "x", query=7, nested={"deep": ["no"]}),
        pointer(3, "search query=moon", "start of the moon landing, article 7", query="moon"),
    ]
    entries = entries_of("the landing", pool)
    assert entries[1].score == 0.0, "a name would add .6"
    assert entries[3].score == pytest.approx(1.0), "the best does not raise itself"


@pytest.mark.parametrize(
    "question",
    [
        "I confirm the upgrade for reservation WUNA5K",
        "the upgrade: wuna5k, please",
        "Upgrade it as agreed.\nThe reservation is WUNA5K",
        "What did order 12446 cost?",
        "show src/app.py again",
        "查看订单 WUNA5K",
    ],
)
def test_an_output_whose_argument_the_question_names_is_first_s0_42(question: str) -> None:
    named = pointer(
        1,
        "get_details",
        "nothing",
        reservation="WUNA5K",
        order={"id": 12446},
        path="src/app.py",
        created_at="2020",
    )
    lures = [
        pointer(number, "confirm upgrade reservation order cost show app", f"upgrade of ID{number}")
        for number in range(2, 20)
    ]
    linked = [pointer(number, "user", query=f"ID{number}") for number in range(2, 20)]
    assert ranked(question, [*lures, named, *linked])[0] == 1


@pytest.mark.parametrize(
    ("question", "args"),
    [
        ("a flight to Las Vegas, please", {"to": "LAS"}),
        ("what about that one", {"word": "about"}),
        ("within 50 days", {"limit": 50}),
        ("is it True", {"flag": True}),
        ("so --- ??", {"mark": "--- ??"}),
        ("what was redacted", {"key": REDACTED}),
        ("rain\nHere are C77 and D88", {"card": "C77"}),
    ],
    ids=[
        "three letters",
        "stop word",
        "two digits",
        "flag",
        "marks",
        "a secret",
        "a list of the assistant",
    ],
)
def test_a_word_that_is_no_name_puts_no_output_first(
    question: str, args: dict[str, object]
) -> None:
    called = pointer(1, "x").model_copy(update={"args": args})
    again = pointer(2, "y").model_copy(update={"args": args})
    pool = [called, again, pointer(3, "flight of days in rain")]
    assert all("mentioned" not in entry.parts for entry in rank_pointers(question, pool))


@pytest.mark.parametrize(
    "question",
    [
        "cancel that",
        "Yes, please",
        "book the new one",
        "storniere dies",
        "annule cette commande",
        "cancela eso",
        "cancella questo",
        "cancele isso",
        "annuleer die",
        "anuluj ostatni",
        "отмени этот",
        "bunu iptal et",
        "ألغ هذا",
        "इसे रद्द करो",
        "取消刚才的订单",
        "それをキャンセルして",
        "그것을 취소해",
    ],
)
def test_recency_counts_if_the_question_points_back(question: str) -> None:
    pool = [pointer(number, "weather") for number in range(1, 4)]
    entries = rank_pointers(question, pool)
    assert entries[0].parts["recency"] == pytest.approx(0.7)
    assert int(entries[0].pointer.pointer_id, 16) == 3


@pytest.mark.parametrize(
    "question", ["Who wrote Moon?", "Wer schrieb Moon?", "Qui a écrit Moon ?", "谁写了月亮"]
)
def test_recency_does_not_count_in_a_question_of_facts(question: str) -> None:
    pool = [pointer(number, "weather") for number in range(1, 4)]
    assert all("recency" not in entry.parts for entry in rank_pointers(question, pool))


def test_the_assistants_message_adds_words_but_no_names() -> None:
    pool = [pointer(1, "search", "boats", card="C77"), pointer(2, "search", "trains")]
    entries = rank_pointers("both are fine", pool, context="Shall I take that boat with C77?")
    assert [set(entry.parts) for entry in entries] == [{"words"}, set()]


def test_a_match_in_a_large_pool_is_found_in_time() -> None:
    words = [f"word{number}" for number in range(3_000)]
    random.Random(1).shuffle(words)
    pool = [
        pointer(number, f"search query={word}", f"{word} " * 20)
        for number, word in enumerate(words)
    ]
    match = pointer(5_000, "invoice", "customers of Acme", created_at="2020")
    started = time.thread_time()
    best = rank_pointers("Acme's customer", [*pool, match])[0]
    assert time.thread_time() - started < 1  # ten times as long as on an idle machine
    assert best.pointer == match


async def test_selects_the_best_with_reasons_s0_37() -> None:
    pool = [pointer(number, f"search query=weather{number}") for number in range(8)]
    selection = await LexicalRelevanceSelector(max_selected=2).select_detailed(
        query="weather3", pointers=pool
    )
    assert selection.pointers[0] == pool[3]
    assert (selection.status, selection.used, selection.attempts) == ("ok", "lexical", ())
    assert [choice.reason for choice in selection.choices].count("over the cap") == 6
    assert selection.choices[3].reason == "chosen"


@pytest.mark.parametrize(
    ("query", "status"), [("unheard of", "empty"), ("?!", "empty"), ("", "empty"), ("rain", "ok")]
)
async def test_recency_alone_chooses_nothing_s0_36(query: str, status: str) -> None:
    pool = [pointer(1, "rain oslo"), pointer(2, "rain bergen"), pointer(3, "news")]
    selection = await LexicalRelevanceSelector().select_detailed(query=query, pointers=pool)
    assert selection.status == status
    assert bool(selection.pointers) == (status == "ok")


async def test_the_selector_ranks_by_meaning_with_an_embedder() -> None:
    pool = [
        pointer(number, f"search pets {name}")
        for number, name in enumerate(("ant", "cat", "dog", "hen"))
    ]
    for embedder, expected in ((None, 3), (FixedEmbedder(lambda text: float("cat" in text)), 1)):
        selector = LexicalRelevanceSelector(1, embedder=embedder)
        selected = await selector.select(query="feline pets", pointers=pool)
        assert selected == [pool[expected]]
