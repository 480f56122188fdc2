"""Requests that point back, and requests for a survey."""

import pytest

from llm_common.ranking.cues import points_back, surveys


@pytest.mark.parametrize(
    "request_text", ["Cancel THAT.", "it's late", "Da, storniere dies!", "Отмени его", "刚才的"]
)
def test_words_that_stand_for_what_came_last_point_back(request_text: str) -> None:
    assert points_back(request_text)


@pytest.mark.parametrize(
    "request_text",
    ["", "Who lit the city?", "a thatched item in Newcastle", "Wo ist Diesel?", "月亮"],
)
def test_letters_within_a_word_do_not_point_back(request_text: str) -> None:
    assert not points_back(request_text)


@pytest.mark.parametrize(
    "request_text",
    [
        "Summarise the meeting",
        "What did they DISCUSS?",
        "Fasse zusammen: eine Zusammenfassung",
        "un résumé du débat",
        "Resuma la conversación",
        "ringkasan? riassumi la riunione",
        "vat samen: een samenvatting",
        "podsumuj spotkanie",
        "обсуждали ли цену",
        "toplantıyı özetle",
        "总结会议",
        "会議の要約",
        "회의 요약",
    ],
)
def test_a_summary_or_a_discussion_is_a_survey(request_text: str) -> None:
    assert surveys(request_text)


@pytest.mark.parametrize("request_text", ["When did Ann paint?", "Wer kommt?", "谁来了", ""])
def test_a_question_for_a_fact_is_no_survey(request_text: str) -> None:
    assert not surveys(request_text)
