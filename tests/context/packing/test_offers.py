"""Which forms of which items are offered for a room."""

from llm_common.context.bundle import Form
from llm_common.context.packing.candidate import Candidate, Placed, candidates_of
from llm_common.context.packing.knapsack import Load, offers_of
from llm_common.context.pool import DataPoolSnapshot
from tests.context.samples import even_scores, file

POOL = DataPoolSnapshot(context_files=(file("a.py", "rain"), file("b.py", "wind")))
A, B = candidates_of(POOL, even_scores(POOL, 1.0), {}, None)


def placed(candidate: Candidate, form: Form, tokens: int) -> Placed:
    return Placed(candidate, candidate.whole(), "", form, tokens, "share")


def test_a_part_that_is_denser_comes_first_and_the_whole_adds_to_it() -> None:
    part, whole, other = placed(A, "passages", 10), placed(A, "whole", 100), placed(B, "whole", 50)
    offers = offers_of([whole, other], [part])
    assert [offer.placed for offer in offers] == [part, whole, other]
    assert [offer.load.size for offer in offers] == [10, 90, 50]
    assert [offer.load.after for offer in offers] == [None, 0, None]
    assert sum(offer.load.worth for offer in offers[:2]) == 1.0


def test_a_part_that_is_no_denser_than_the_whole_is_not_offered() -> None:
    whole = placed(A, "whole", 100)
    assert [offer.placed for offer in offers_of([whole], [placed(A, "passages", 70)])] == [whole]


def test_a_part_of_what_is_too_large_stands_alone() -> None:
    assert [offer.load for offer in offers_of([], [placed(A, "passages", 70)])] == [Load(0.7, 70)]
