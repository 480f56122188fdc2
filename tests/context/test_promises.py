"""Limits of a selection at their edges, and verbs that ask for nothing."""

import pytest

from llm_common.context import (
    ContextSelector,
    DataPoolSnapshot,
    IntentType,
    classify_intent,
)
from llm_common.context.mentions import excluded_items
from tests.context.samples import (
    NOON,
    CharacterCounter,
    even_scores,
    file,
    memory,
    output,
    packed,
    request_of,
    turn,
)
from tests.context.test_selector import Results

ANALYSIS, WRITING = IntentType.FILE_ANALYSIS, IntentType.CODE_WRITING
TALK = IntentType.CONVERSATIONAL


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("When I run the tests, explain the failure", ANALYSIS),
        ("After I deploy it, summarize the log", ANALYSIS),
        ("Don't fix it, explain the parser", ANALYSIS),
        ("Do not ever run the tests; describe the parser", ANALYSIS),
        ("Never deploy it. Write a parser", WRITING),
        ("Don't run or deploy it", TALK),
        ("I don't want you to fix it. Explain the parser", ANALYSIS),
        ("I don't want you to fix it, it works", TALK),
        ("when I ask you to run it, explain the parser", ANALYSIS),
        ("because I want to deploy it. Explain the parser", ANALYSIS),
        ("The build fails, write a test", WRITING),
        ("there is an error", IntentType.CODE_DEBUGGING),
    ],
)
def test_negated_and_subordinate_verbs_ask_for_nothing_s1_01(text: str, intent: IntentType) -> None:
    assert classify_intent(text).classification is intent


@pytest.mark.parametrize("pattern", ["*.ENV", "Secrets.*", "SECRETS.env"])
def test_a_pattern_in_capitals_covers_the_path_s1_09(pattern: str) -> None:
    pool = DataPoolSnapshot(context_files=(file("a/secrets.env", "x"),))
    assert excluded_items(pool, (pattern,)) == {("file", "a/secrets.env")}


async def test_outputs_over_two_megabytes_and_refused_ones_are_not_loaded_s1_14() -> None:
    sizes = {1: 2_000_000, 2: 2_000_001, 3: None, 4: 10}
    outputs = tuple(output(number, result_bytes=size) for number, size in sizes.items())
    store = Results(*((pointer.pointer_id, "It rains.") for pointer in outputs))
    request = request_of(100_000, "rain").model_copy(
        update={"now": NOON, "exclude_patterns": (outputs[3].pointer_id,)}
    )
    await ContextSelector(store=store).select(request, DataPoolSnapshot(tool_outputs=outputs))
    assert sorted(store.loaded) == [outputs[0].pointer_id, outputs[2].pointer_id]


def test_the_line_of_a_day_is_paid_for_once() -> None:
    turns = tuple(turn(number, f"Rain on roof {number}.") for number in range(12))
    pool = DataPoolSnapshot(session_log=turns)
    scores = even_scores(pool)
    whole = packed(pool, request_of(100_000, counter=CharacterCounter()), scores)
    assert len(whole.kept) == 12
    tokens = len(whole.render())
    exact = packed(pool, request_of(tokens, counter=CharacterCounter()), scores)
    assert len(exact.kept) == 12
    assert exact.render() == whole.render()


async def test_excluded_outputs_take_no_place_among_those_to_load_s1_14() -> None:
    outputs = tuple(output(number) for number in range(1, 14))
    store = Results(*((pointer.pointer_id, "It rains.") for pointer in outputs))
    excluded = tuple(pointer.pointer_id for pointer in outputs[:12])
    request = request_of(100_000, "rain").model_copy(
        update={"now": NOON, "exclude_patterns": excluded}
    )
    bundle = await ContextSelector(store=store).select(
        request, DataPoolSnapshot(tool_outputs=outputs)
    )
    assert store.loaded == [outputs[12].pointer_id]
    assert [account.form for account in bundle.kept] == ["whole"]


def test_equal_turns_and_memories_are_shown_once() -> None:
    text = "The rain in spring falls on roofs and fields. " * 6
    pool = DataPoolSnapshot(session_log=(turn(1, text),), memory_hits=(memory(1, text),))
    bundle = packed(pool, request_of(10_000), even_scores(pool))
    assert bundle.render().count("The rain in spring") == 6
    [dropped] = bundle.dropped
    assert dropped.reason.startswith("same as ")
