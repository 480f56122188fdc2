"""What the counts of many previews say, beside the truth."""

from collections import Counter
from dataclasses import dataclass, field

from llm_common.parts.table_sketch import (
    ResultSketch,  # one reading of the records for all questions
)
from llm_common.tables import find_records
from tests.oracle.asked import Asked, Domain
from tests.oracle.claims import (
    Record,
    claimed_count,
    claims_in,
    false_conditions,
    shown_and_left,
)

_PREVIEW_CHARS = 1_600


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
