"""What a small model makes of our texts and of simpler ones.

The arms: answers from previews of 400 tokens, from a found record in three forms, and first replies
to the tool selector, plain and under a grammar. Few questions and a weak model give directions,
not decimals: a row states its numbers of questions, and how many answers stood in view.

The questions are those that `benchmarks/quality_previews.py` makes, and its public ones where
`LLM_COMMON_EVAL_DATA` names their folder.
"""

import asyncio
import csv
import io
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from benchmarks.quality_previews import (
    PREVIEWS,
    Case,
    Preview,
    csv_cases,
    log_cases,
    nested_cases,
    products,
    records_of,
    wikipedia,
)
from llm_common.agents import PlannedTask, ToolSelectionConfig, ToolSelector
from llm_common.apps.cli.demo.public_data import public_tools
from llm_common.core import LLMConfig, LLMMessage, MessageRole, OpenAICompatibleClient
from tests.llm.reporting import report

pytestmark = pytest.mark.llm

DATA: Final = os.environ.get("LLM_COMMON_EVAL_DATA")
QUESTIONS_OF_A_SET: Final = 4
PREVIEW_TOKENS: Final = 400
RECORDS: Final = 16
TIMEOUT_S: Final = 300
ARMS: Final[dict[str, Preview]] = {
    "llm-common": PREVIEWS["llm-common"],
    "BM25 over records": PREVIEWS["BM25 over records"],
    "head and tail": PREVIEWS["head and tail"],
    "head": PREVIEWS["head"],
    "nothing": lambda case, _: "",
}

REQUESTS: Final = {
    "Which earthquakes were there on 2018-02-01?": ("get_earthquakes", {"day": "2018-02-01"}),
    "Show the daily weather of Seattle.": ("get_daily_weather", {"city": "Seattle"}),
    "List the bird strikes of 1999.": ("get_bird_strikes", {"year": 1999}),
    "Get the unemployment in Manufacturing.": ("get_unemployment", {"industry": "Manufacturing"}),
    "Read the log of the commits.": ("get_commits", {}),
}


def look_ups() -> Iterator[Case]:
    """Yield some look-ups of each set, since a small model can neither count nor list."""
    sets = [list(make(random.Random(7))) for make in (log_cases, csv_cases, nested_cases)]
    if DATA:
        folder = Path(DATA) / "previews"
        sets += [list(products(folder)), list(wikipedia(folder))]
    for cases in sets:
        found = [case for case in cases if case.kind == "look-up"]
        yield from random.Random(1).sample(found, QUESTIONS_OF_A_SET)


async def answer_of(client: OpenAICompatibleClient, question: str, shown: str) -> str:
    prompt = f"A tool returned:\n{shown}\n\n{question} Answer with the value only."
    message = LLMMessage(role=MessageRole.USER, content=prompt)
    response = await client.chat_completion(
        [message], temperature=0.0, timeout_s=TIMEOUT_S, max_tokens=40
    )
    assert isinstance(response.content, str)
    return response.content


def has_answer(case: Case, text: str) -> bool:
    return all(value.lower() in text.lower() for value in case.answers)


async def test_a_small_model_answers_from_previews(client: OpenAICompatibleClient) -> None:
    right, seen = dict.fromkeys(ARMS, 0), dict.fromkeys(ARMS, 0)
    cases = list(look_ups())
    async with client:
        for case in cases:
            for arm, preview in ARMS.items():
                shown = await asyncio.to_thread(preview, case, PREVIEW_TOKENS)
                seen[arm] += has_answer(case, shown)
                right[arm] += has_answer(case, await answer_of(client, case.question, shown))
    for arm in ARMS:
        report(arm, f"of {len(cases)} look-ups {seen[arm]} in view, {right[arm]} answered")
    assert seen["llm-common"] >= max(seen["head"], seen["head and tail"])
    assert right["nothing"] <= right["llm-common"]


FORMS: Final[dict[str, Callable[[dict[str, object]], str]]] = {
    "field: value": lambda record: "\n".join(f"{key}: {value}" for key, value in record.items()),
    "a | b | c": lambda record: f"{' | '.join(record)}\n{' | '.join(map(str, record.values()))}",
    "JSON": json.dumps,
}


async def test_a_small_model_answers_from_forms_of_a_record(
    client: OpenAICompatibleClient,
) -> None:
    cases = list(csv_cases(random.Random(7)))
    if DATA:
        cases += wikipedia(Path(DATA) / "previews")
    found = [(case, record) for case in cases if (record := found_record(case))]
    found = random.Random(1).sample(found, min(len(found), RECORDS))
    right = dict.fromkeys(FORMS, 0)
    async with client:
        for case, record in found:
            for form, written in FORMS.items():
                answer = await answer_of(client, case.question, written(record))
                right[form] += has_answer(case, answer)
    for form, number in right.items():
        report(form, f"of {len(found)} look-ups in single records {number} answered")
    assert max(right.values()) > 0


def found_record(case: Case) -> dict[str, object] | None:
    """Return the record that alone holds all values of a look-up."""
    if case.kind != "look-up":
        return None
    records: list[dict[str, object]]
    if isinstance(case.result, str):
        records = list(csv.DictReader(io.StringIO(case.result)))
    else:
        records = [json.loads(record) for record in records_of(case.result)]
    wanted = [value.lower() for value in case.answers + case.named]
    found = []
    for record in records:
        text = json.dumps(record, ensure_ascii=False).lower()
        if all(value in text for value in wanted):
            found.append(record)
    return found[0] if len(found) == 1 else None


@pytest.mark.parametrize("by_schema", [False, True], ids=["plain", "by-schema"])
async def test_a_small_model_gives_first_replies(config: LLMConfig, by_schema: bool) -> None:
    statuses: list[str] = []
    right = 0
    settings = config.model_copy(update={"prefers_json_schema": by_schema})
    async with OpenAICompatibleClient(settings) as client:
        selector = ToolSelector(
            client, ToolSelectionConfig(model=config.default_model, timeout_s=TIMEOUT_S)
        )
        for number, (request, (tool, args)) in enumerate(REQUESTS.items(), 1):
            selection = await selector.select_detailed(
                task=PlannedTask(id=number, description=request), tool_registry=public_tools()
            )
            statuses.append(selection.status)
            calls = [(call.tool, dict(call.args)) for call in selection.calls]
            right += calls == [(tool, args)]
            assert len(selection.attempts) == 1
            assert selection.status == "ok" or calls == []
    kind = "by schema" if by_schema else "plain"
    report(f"first replies, {kind}", f"{right} of {len(REQUESTS)} right, {statuses}")
