import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.context import (
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    MemoryMetadata,
    MemorySnippet,
    TurnEntry,
    UserIntent,
    classify_intent,
    score_context_file,
    score_conversation_turn,
    score_memory_snippet,
)
from llm_common.context.scoring import score_pool
from tests.context.samples import output

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NOTHING = classify_intent("?? !!")
MOMENTS = [
    datetime(2025, 5, 1),  # noqa: DTZ001 - a time without a zone is the case
    NOW + 1000 * HOUR,
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
]


def turn(content: str = "", age: timedelta = timedelta()) -> TurnEntry:
    return TurnEntry(id="t", timestamp=NOW - age, role="user", content=content)


def file(path: str = "notes.txt", content: str | None = "", **fields: Any) -> ContextFile:
    values = {
        "id": path,
        "path": path,
        "name": path.rpartition("/")[2],
        "content": content,
        **fields,
    }
    return ContextFile.model_validate(values)


def memory(
    relevance: float = 0.0, age: timedelta = 10_000 * DAY, project: str | None = None
) -> MemorySnippet:
    return MemorySnippet(
        id="m",
        text="x",
        timestamp=NOW - age,
        relevance_score=relevance,
        metadata=MemoryMetadata(project=project),
    )


def score_turn(content: str, text: str = "?? !!", age: timedelta = timedelta()) -> float:
    return score_conversation_turn(turn(content, age), classify_intent(text), now=NOW)


def score_file(item: ContextFile, text: str = "?? !!") -> float:
    return score_context_file(item, classify_intent(text), now=NOW)


SAME = "rain over the hills"


@pytest.mark.parametrize(
    ("content", "text", "hours", "weight", "expected"),
    [
        *(("rain", "?? !!", hours, 0.7, 0.7 * math.exp(-hours)) for hours in (0, 1, 3, 48)),
        ("rain", "?? !!", 1, 0.1, 0.1 / math.e),
        pytest.param("rain", "?? !!", -1_000, 0.7, 0.7, id="F-138-the future counts as now"),
        # the same text gains a fifth
        (SAME, SAME, 0, 0.7, 0.7 + 0.2),
        ("nothing of it", SAME, 0, 0.7, 0.7),
        pytest.param("a the of", "", 0, 0.7, 0.7, id="F-136-empty"),
        pytest.param("a the of", "?? !!", 0, 0.7, 0.7, id="F-136-marks"),
        pytest.param("a the of", "a the of", 0, 0.7, 0.7, id="F-136-stop-words"),
    ],
)
def test_the_score_of_a_turn_decays_by_the_hour_s1_07(
    content: str, text: str, hours: int, weight: float, expected: float
) -> None:
    entry = turn(content, hours * HOUR)
    score = score_conversation_turn(entry, classify_intent(text), weight, now=NOW)
    assert score == pytest.approx(expected)


def test_a_turn_with_some_of_the_words_gains_less_than_a_fifth_s1_07() -> None:
    assert 0.7 < score_turn("rain over the sea", SAME) < 0.9


def test_a_file_scores_at_most_two_s1_08() -> None:
    best = file(
        "rain.py",
        "rain in spring",
        metadata={"is_pinned": True, "last_modified": NOW},
        embeddings=(1.0,),
    )
    intent = classify_intent("fix the rain in rain.py").model_copy(update={"embeddings": (1.0,)})
    asked = ContextSelectionRequest(intent=intent, token_budget=1_000, strategy="spec")
    [score] = score_pool(DataPoolSnapshot(context_files=(best,)), asked, now=NOW).values()
    assert sum(score.parts.values()) > score.value == 2.0
    assert score_context_file(best, intent, now=NOW) == 2.0


def test_a_turn_gains_the_share_of_the_entities_it_names_s1_07() -> None:
    text = "ask 'b.py' get_user"
    both, one, none = (
        score_turn(content, text, age=1_000 * HOUR)
        for content in ("B.PY get_user", "get_user", "x")
    )
    assert none == pytest.approx(0)
    plain = [
        score_turn(content, "b py get user", age=1_000 * HOUR)
        for content in ("B.PY get_user", "get_user", "x")
    ]
    assert none == plain[2]
    assert both > one > none
    held = score_conversation_turn(turn("z.py", 1_000 * HOUR), UserIntent.model_validate(
        {"text": "", "classification": "conversational", "confidence": 1,
         "entities": [{"kind": "file", "text": "z.py"}, {"kind": "file", "text": "y.py"}]}), now=NOW)  # fmt: skip
    assert held == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("fields", "text", "expected"),
    [
        ({}, "?? !!", 0.0),
        ({"path": "src/config.ts"}, "is it config.ts", 1.0),
        ({"path": "src/app.py"}, "fix", 0.3),
        ({"path": "src/app.py"}, "hello", 0.0),
        ({"metadata": {"is_pinned": True}}, "?? !!", 0.5),
        ({"metadata": {"last_modified": NOW - DAY + timedelta(microseconds=1)}}, "?? !!", 0.2),
        ({"metadata": {"last_modified": NOW - DAY}}, "?? !!", 0.0),
        ({"content": "Rain and WIND"}, "rain wind snow hail", 0.2),
        ({"content": "rain"}, "rain", 0.4),
        ({"content": "a the of rain"}, "", 0.0),
        ({"content": "a the of rain"}, "?? !!", 0.0),
        ({"content": "a the of rain"}, "a the of", 0.0),
    ],
    ids=[
        "nothing",
        "mention",
        "code",
        "code-not-needed",
        "pin",
        "changed",
        "not-changed",
        "half-the-words",
        "words",
        "F-136-empty",
        "F-136-marks",
        "F-136-stop-words",
    ],
)
def test_the_parts_of_a_files_score_s1_08(
    fields: dict[str, Any], text: str, expected: float
) -> None:
    assert score_file(file(**fields), text) == pytest.approx(expected)


NOT_COMPARABLE: list[tuple[Any, Any]] = [
    ((0.0, 0.0), (1.0, 0.0)),
    ((math.nan, 1.0), (1.0, 0.0)),
    ((math.inf, 1.0), (1.0, 0.0)),
    ((1.0,), (1.0, 0.0)),
    ((), ()),
    (None, (1.0, 0.0)),
]


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ((2.0, 0.0), (1.0, 1.0), 0.8 / math.sqrt(2)),
        pytest.param((1e308, 0.0), (1e308, 0.0), 0.8, id="F-139-huge"),
        pytest.param((5e-324, 0.0), (5e-324, 0.0), 0.8, id="F-139-tiny"),
        *((mine, theirs, 0.0) for mine, theirs in NOT_COMPARABLE),
        *((mine, theirs, 0.0) for theirs, mine in NOT_COMPARABLE),
    ],
)
def test_embeddings_add_four_fifths_of_their_cosine_s1_08_f_139(
    mine: Any, theirs: Any, expected: float
) -> None:
    intent = NOTHING.model_copy(update={"embeddings": theirs})
    score = score_context_file(file(embeddings=mine), intent, now=NOW)
    assert score == pytest.approx(expected)


IN_WEATHER = classify_intent("x", current_project="weather")


@pytest.mark.parametrize(
    ("snippet", "intent", "expected"),
    [
        (memory(0.4, timedelta()), IN_WEATHER, 0.6),
        (memory(0.4, DAY), IN_WEATHER, 0.4 + 0.2 / math.e),
        (memory(0.4, project="weather"), IN_WEATHER, 0.7),
        (memory(0.4, project="other"), IN_WEATHER, 0.4),
        (memory(0.4), NOTHING, 0.4),
        pytest.param(memory(age=-1_000 * DAY), NOTHING, 0.2, id="F-138-the future counts as now"),
        *(
            pytest.param(memory(relevance), NOTHING, 0.0, id=f"F-140-{relevance}")
            for relevance in (math.nan, math.inf, -math.inf)
        ),
    ],
)
def test_a_memory_scores_by_relevance_age_and_project_s1_10(
    snippet: MemorySnippet, intent: UserIntent, expected: float
) -> None:
    assert score_memory_snippet(snippet, intent, now=NOW) == pytest.approx(expected)


@pytest.mark.parametrize("tokens", [0, -5, None, 1e9, math.nan])
def test_declared_tokens_and_missing_content_change_no_score_f_137(tokens: float | None) -> None:
    plain, declared = file(content="rain"), file(content="rain", tokens=tokens)
    assert score_file(plain, "rain") == score_file(declared, "rain")
    assert score_file(file(content=None), "rain") == 0.0


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"F-138-{moment.year}")
@pytest.mark.parametrize("now", MOMENTS, ids=lambda now: f"now-{now.year}")
def test_any_time_gives_a_finite_score_f_138(moment: datetime, now: datetime) -> None:
    intent = classify_intent("fix rain")
    scores = [
        score_conversation_turn(
            TurnEntry(id="t", timestamp=moment, role="user", content=""), intent, now=now
        ),
        score_context_file(file(metadata={"last_modified": moment}), intent, now=now),
        score_memory_snippet(MemorySnippet(id="m", text="", timestamp=moment), intent, now=now),
    ]
    assert all(0.0 <= score <= 0.7 for score in scores)


@given(st.lists(st.floats(), max_size=6), st.datetimes(), st.text(), st.text())
def test_scores_of_any_items_are_finite_f_140(
    relevances: list[float], moment: datetime, content: str, text: str
) -> None:
    intent = classify_intent(text).model_copy(update={"embeddings": tuple(relevances)})
    assert math.isfinite(
        score_context_file(file(content=content, embeddings=relevances[::-1]), intent, now=moment)
    )
    assert math.isfinite(score_conversation_turn(turn(content), intent, now=moment))
    assert all(
        math.isfinite(score_memory_snippet(memory(value), intent, now=moment))
        for value in relevances
    )


def test_an_output_is_scored_like_a_turn() -> None:
    pointers = (output(1, digest="rain"), output(2).model_copy(update={"created_at": "yesterday"}))
    request = ContextSelectionRequest(
        intent=classify_intent("rain"), token_budget=500, strategy="spec"
    )
    first, second = score_pool(DataPoolSnapshot(tool_outputs=pointers), request, now=NOW).values()
    assert set(first.parts) == {"recency", "similarity", "entities"}
    assert first.parts["similarity"] > second.parts["similarity"] > 0
    assert second.parts["recency"] == 0.0
