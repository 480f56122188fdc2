"""Every number that a preview states is compared with the truth.

The records and the questions are made from a seed, with the truth beside them. Some questions the
records cannot answer: averages, vague words, relative times. Nothing may be claimed then.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from llm_common.agents import InMemoryContextPointerStore, Session
from llm_common.parts.result_sketch import (
    ResultSketch,  # one reading of the records for all questions
)
from llm_common.tables import find_records
from tests.oracle import other_hand, templates
from tests.oracle.asked import Asked, Domain
from tests.oracle.claims import (
    Record,
    claimed_count,
    claims_in,
    false_conditions,
    false_numbers,
    shown_and_left,
)

Domains = Callable[[int, int], list[Domain]]

_PREVIEW_CHARS = 1_600


def of_templates(seed: int, questions: int) -> list[Domain]:
    return templates.domains(seed, questions=questions)


def of_other_hand(seed: int, questions: int) -> list[Domain]:
    return other_hand.domains(seed, questions=questions)


@dataclass
class Verdict:
    """How the claims of many previews compare with the truth."""

    false: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def share_right(self) -> float:
        """Share of the answerable questions that were answered with the true number."""
        return self.outcomes["right"] / (self.outcomes["right"] + self.outcomes["silent"])

    def add(self, asked: Asked, preview: str, records: list[Record]) -> None:
        claims = claims_in(preview)
        for claim in false_conditions(claims, records):
            self.false.append(f"{asked.question}: {claim}")
        claimed = claimed_count(claims)
        if not claims:
            self.outcomes["rightly silent" if asked.truth is None else "silent"] += 1
        elif asked.truth is not None and claimed == asked.truth:
            self.outcomes["right"] += 1
            left = shown_and_left(preview)
            if left is not None and left != asked.truth:
                self.false.append(f"{asked.question}: {left} shown and left of {asked.truth}")
        else:
            self.false.append(f"{asked.question}: {claimed} of {asked.truth}, {claims}")


def verdict_of(domains: list[Domain]) -> Verdict:
    verdict = Verdict()
    for domain in domains:
        records = find_records(list(domain.records))
        for asked in domain.asked:
            sketch = ResultSketch(records, asked.question, name=f"{domain.tool}_3ac5f0")
            verdict.add(asked, sketch.text(_PREVIEW_CHARS), domain.records)
    return verdict


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
