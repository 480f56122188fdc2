"""Requests that point back, and requests for a survey."""

import pytest

from llm_common.ranking.cues import points_back, surveys


@pytest.mark.parametrize(
    ("request_text", "is_back"),
    [
        ("Cancel THAT.", True),
        ("it's late", True),
        ("Da, storniere dies!", True),
        ("Отмени его", True),
        ("刚才的", True),
        # letters within a word
        ("", False),
        ("Who lit the city?", False),
        ("a thatched item in Newcastle", False),
        ("Wo ist Diesel?", False),
        ("月亮", False),
    ],
)
def test_only_words_that_stand_for_what_came_last_point_back(
    request_text: str, *, is_back: bool
) -> None:
    assert points_back(request_text) is is_back


@pytest.mark.parametrize(
    ("request_text", "is_survey"),
    [
        ("Summarise the meeting", True),
        ("What did they DISCUSS?", True),
        ("Fasse zusammen: eine Zusammenfassung", True),
        ("un résumé du débat", True),
        ("Resuma la conversación", True),
        ("ringkasan? riassumi la riunione", True),
        ("vat samen: een samenvatting", True),
        ("podsumuj spotkanie", True),
        ("обсуждали ли цену", True),
        ("toplantıyı özetle", True),
        ("总结会议", True),
        ("会議の要約", True),
        ("회의 요약", True),
        ("When did Ann paint?", False),
        ("Wer kommt?", False),
        ("谁来了", False),
        ("", False),
    ],
)
def test_only_a_summary_or_a_discussion_is_a_survey(request_text: str, *, is_survey: bool) -> None:
    assert surveys(request_text) is is_survey
