"""Every number that a preview states is compared with the truth.

The records and the questions are made from a seed, with the truth beside them. Some questions the
records cannot answer: averages, vague words, relative times. Nothing may be claimed then.
"""

from collections.abc import Callable

import pytest

from llm_common.agents import InMemoryContextPointerStore, Session
from tests.oracle import other_hand, templates
from tests.oracle.asked import Domain
from tests.oracle.claims import false_numbers
from tests.oracle.verdicts import verdict_of

Domains = Callable[[int, int], list[Domain]]


def of_templates(seed: int, questions: int) -> list[Domain]:
    return templates.domains(seed, questions=questions)


def of_other_hand(seed: int, questions: int) -> list[Domain]:
    return other_hand.domains(seed, questions=questions)


@pytest.mark.parametrize(
    ("domains", "questions", "least"),
    [(of_templates, 500, 0.85), (of_other_hand, 360, 0.75)],
    ids=["templates", "other hand"],
)
def test_no_claim_is_false_and_most_questions_are_answered(
    domains: Domains, questions: int, least: float
) -> None:
    verdict = verdict_of(domains(1, questions))
    assert verdict.false == []
    assert verdict.share_right >= least


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize(
    ("domains", "least"),
    [(of_templates, 0.85), (of_other_hand, 0.75)],
    ids=["templates", "other hand"],
)
def test_no_claim_of_ten_thousand_is_false(domains: Domains, least: float, seed: int) -> None:
    verdict = verdict_of(domains(seed, 1_500))
    assert verdict.false == []
    assert verdict.share_right >= least


@pytest.mark.parametrize("domains", [of_templates, of_other_hand], ids=["templates", "other hand"])
async def test_sizes_and_counts_of_values_are_true(domains: Domains) -> None:
    session = Session(InMemoryContextPointerStore(), session_id="oracle")
    for domain in domains(3, 24):
        for asked in domain.asked:
            offloaded = await session.offload(
                domain.records, tool=domain.tool, args={}, query=asked.question
            )
            assert list(false_numbers(str(offloaded), domain.records)) == [], asked.question
