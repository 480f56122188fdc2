"""`LogprobDecisions` over a real server, which tests the wire format.

The quality of the model's answers is printed, not asserted.
"""

from itertools import product

import pytest

from llm_common.agents import ContextPointer
from llm_common.core import OpenAICompatibleClient
from llm_common.decisions import (
    Choice,
    DecisionRelevanceSelector,
    LogprobDecisions,
    Predicate,
    Question,
    Score,
)

pytestmark = pytest.mark.llm

TIMEOUT_S = 300
STATE = """Order 1182 of Ines Okafor, placed on Monday from Porto: a blue teapot and two cups, 41 euros, paid by card.
The parcel left the warehouse on Tuesday and has been at customs in Oslo since Thursday. She wrote on Sunday:
"Still nothing! The teapot was a birthday present, and the party is over. Please send my money back." """
TRUE = [
    "The customer asks for a refund.",
    "The order holds a teapot.",
    "The order was paid by card.",
    "The parcel has left the warehouse.",
    "The parcel is at customs.",
    "The customer is unhappy.",
    "The order was placed on a Monday.",
    "The order costs more than 30 euros.",
    "The teapot was meant as a present.",
    "The order holds cups.",
]
FALSE = [
    "The customer asks for a larger teapot.",
    "The order holds a bicycle.",
    "The order was paid in cash.",
    "The parcel was delivered.",
    "The parcel is in Madrid.",
    "The customer praises the delivery.",
    "The order was placed on a Friday.",
    "The order costs more than 90 euros.",
    "The teapot is red.",
    "The order holds spoons.",
]


def area_under_curve(right: list[float], wrong: list[float]) -> float:
    """Return how often a true statement is more probable than a false one. Chance is 0.5."""
    pairs = list(product(right, wrong))
    return sum((high > low) + (high == low) / 2 for high, low in pairs) / len(pairs)


async def test_every_question_of_each_kind_is_answered(client: OpenAICompatibleClient) -> None:
    cities = [
        "Lima",
        "Cairo",
        "Quito",
        "Perth",
        "Turin",
        "Accra",
        "Delhi",
        "Seoul",
        "Tunis",
        "Davao",
        "Bern",
    ]
    options = {f"{city}, {part}": "" for part in ("north", "south") for city in cities} | {
        "Oslo": "",
        "none of these": "",
    }
    questions: dict[str, Question] = {
        statement: Predicate(statement) for statement in [*TRUE, *FALSE]
    }
    questions["team"] = Choice(
        "Which team is this for?",
        {"refunds": "", "new orders": "", "job applications": "", "none of these": ""},
    )
    questions["city"] = Choice("Where is the parcel?", options)
    questions["anger"] = Score("How angry is the customer?", ["calm", "annoyed", "furious"])
    async with client:
        decisions = await LogprobDecisions(client, timeout_s=TIMEOUT_S, max_concurrency=1).decide(
            STATE, questions
        )
    right, wrong = ([decisions.yes(statement) for statement in group] for group in (TRUE, FALSE))
    shares = [decisions.options(name) for name in ("team", "city")]
    likeliest = [max(found, key=found.__getitem__) for found in shares]
    print(  # noqa: T201 - for the person who runs it
        f"\n--- decisions: AUC {area_under_curve(right, wrong):.2f} on {len(TRUE) + len(FALSE)} "
        f"statements; "
        f"{likeliest}; anger {decisions.score('anger')}; {decisions.usage}; "
        f"{decisions.latency_ms} ms"
    )
    assert decisions.unanswered == {}
    assert all(0 <= share <= 1 for share in [*right, *wrong])
    assert sum(decisions.options("city").values()) == pytest.approx(1)
    assert (
        decisions.usage.completion_tokens == len(questions) - 1 + 3
    )  # the city is asked in two groups, then once more


async def test_a_selector_uses_its_probabilities_or_selects_nothing(
    client: OpenAICompatibleClient,
) -> None:
    pool = [
        ContextPointer(
            pointer_id=f"{number:012x}",
            query_id="q",
            tool_name="weather",
            created_at=f"2026-01-01T00:00:0{number}.000000+00:00",
            summary=f"weather city={city}",
            result_path="x",
        )
        for number, city in enumerate(["Oslo", "Lima", "Cairo"])
    ]
    async with client:
        judge = LogprobDecisions(client, timeout_s=TIMEOUT_S, max_concurrency=1)
        selector = DecisionRelevanceSelector(judge, timeout_s=TIMEOUT_S)
        selection = await selector.select_detailed(query="Is it snowing in Oslo?", pointers=pool)
    print(f"\n--- outputs by decisions: {selection.status}; {selection.choices}")  # noqa: T201 - for the person
    assert selection.status in {"ok", "empty"}
    assert all(0 <= (choice.probability or 0.0) <= 1 for choice in selection.choices)
    assert [attempt.error for attempt in selection.attempts] == [None]
