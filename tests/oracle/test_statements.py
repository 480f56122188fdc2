"""Every number that a preview states is compared with the truth.

The records and the questions are made from a seed, with the truth beside them. Some questions the
records cannot answer: averages, vague words, relative times. Nothing may be claimed then.
"""

from types import ModuleType

import pytest

from llm_common.agents import InMemoryContextPointerStore, Session
from tests.oracle import other_hand, templates
from tests.oracle.claims import false_numbers
from tests.oracle.verdicts import verdict_of


@pytest.mark.parametrize(
    "seed",
    [1, *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(2, 6))],
)
@pytest.mark.parametrize(
    ("generator", "questions", "least"),
    [(templates, 240, 0.85), (other_hand, 180, 0.75)],
    ids=["templates", "other hand"],
)
def test_no_claim_is_false_and_most_questions_are_answered(
    generator: ModuleType, questions: int, least: float, seed: int
) -> None:
    verdict = verdict_of(generator.domains(seed, questions=questions if seed == 1 else 1_500))
    assert verdict.false == []
    assert verdict.share_right >= least


@pytest.mark.parametrize("generator", [templates, other_hand], ids=["templates", "other hand"])
async def test_sizes_and_counts_of_values_are_true(generator: ModuleType) -> None:
    session = Session(InMemoryContextPointerStore(), session_id="oracle")
    for domain in generator.domains(3, questions=24):
        for asked in domain.asked:
            offloaded = await session.offload(
                domain.records, tool=domain.tool, args={}, query=asked.question
            )
            assert list(false_numbers(str(offloaded), domain.records)) == [], asked.question
