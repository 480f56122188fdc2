import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from llm_common.context import IntentType, classify_intent
from llm_common.context.intent import CONFIDENCES, CUES, VERBS, intent_of

TABLE = [
    (IntentType(intent), sentence)
    for intent, _, sentence in (
        line.partition("\t")
        for line in Path(__file__).with_name("intents.tsv").read_text(encoding="utf-8").splitlines()
    )
]
LONG = 1_000_000


def intent(text: str) -> IntentType:
    return classify_intent(text).classification


def test_a_sentence_has_its_intent_s1_01() -> None:
    assert [
        (expected, sentence) for expected, sentence in TABLE if intent(sentence) is not expected
    ] == []


def test_the_table_is_large_varied_and_reaches_every_intent_s1_01() -> None:
    assert len({sentence for _, sentence in TABLE}) >= 120
    assert {expected for expected, _ in TABLE} == set(IntentType)


def test_politeness_does_not_change_the_intent_s1_01() -> None:
    requests = {
        "write a parser": IntentType.CODE_WRITING,
        "fix the parser": IntentType.CODE_DEBUGGING,
        "refactor the parser": IntentType.CODE_REFACTORING,
        "explain the parser": IntentType.FILE_ANALYSIS,
        "prioritize the tickets": IntentType.PROJECT_PLANNING,
        "document the parser": IntentType.DOCUMENTATION,
        "run the parser": IntentType.COMMAND_EXECUTION,
    }
    assert {*requests.values()} == {*IntentType} - {IntentType.CONVERSATIONAL}
    for prefix in (
        "",
        "please ",
        "Could you please ",
        "I want you to ",
        "Let's ",
        "now, ",
        "How do I ",
    ):
        assert {text: intent(prefix + text) for text in requests} == requests, prefix


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("explain the parser and fix it", IntentType.FILE_ANALYSIS),
        ("fix the parser and explain it", IntentType.CODE_DEBUGGING),
        ("run the tests, fix them, document them", IntentType.COMMAND_EXECUTION),
        ("there is an error", IntentType.CODE_DEBUGGING),
        # a word of two intents has the first of the specification
        ("build the project", IntentType.CODE_WRITING),
        # code in a request is not its verb
        ("```\nadd(1, 2)\nrun()\n```\nexplain this", IntentType.FILE_ANALYSIS),
        (
            "what does `fix it` in https://example.com/run/fix.py mean?",
            IntentType.FILE_ANALYSIS,
        ),
        ("0x00 0x01\n" * 100_000 + "\nexplain this dump", IntentType.FILE_ANALYSIS),
        # nor is a verb within another word
        *(
            (f"Thank you, {word} it is", IntentType.CONVERSATIONAL)
            for word in (
                *("address", "padding", "prefix", "ladybug"),
                *("additional", "fixture", "unfixed", "buildings"),
            )
        ),
        # a subordinate clause asks for nothing
        ("When you fix it, run the tests", IntentType.COMMAND_EXECUTION),
        ("When I run the tests, explain the failure", IntentType.FILE_ANALYSIS),
        ("After I deploy it, summarize the log", IntentType.FILE_ANALYSIS),
        ("when I ask you to run it, explain the parser", IntentType.FILE_ANALYSIS),
        ("because I want to deploy it. Explain the parser", IntentType.FILE_ANALYSIS),
        ("The build fails, write a test", IntentType.CODE_WRITING),
        # and so does a negated verb
        ("Never run the tests. Explain them.", IntentType.FILE_ANALYSIS),
        ("Don't fix it, explain the parser", IntentType.FILE_ANALYSIS),
        ("Do not ever run the tests; describe the parser", IntentType.FILE_ANALYSIS),
        ("Never deploy it. Write a parser", IntentType.CODE_WRITING),
        ("Don't run or deploy it", IntentType.CONVERSATIONAL),
        ("I don't want you to fix it. Explain the parser", IntentType.FILE_ANALYSIS),
        ("I don't want you to fix it, it works", IntentType.CONVERSATIONAL),
    ],
)
def test_the_first_verb_of_the_request_decides_s1_01(text: str, expected: IntentType) -> None:
    assert intent(text) is expected


@pytest.mark.parametrize("text", ["", " \n\t ", "?? !!", "\ud800", "\x00"])
def test_a_text_without_words_is_conversational_s1_01(text: str) -> None:
    found = classify_intent(text)
    assert (found.classification, found.confidence, found.text) == (
        IntentType.CONVERSATIONAL,
        0.6,
        text,
    )


@pytest.mark.parametrize(
    ("text", "confidence", "needs"),
    [
        ("write it", 0.8, (True, True, False)),
        ("fix it", 0.85, (True, True, True)),
        ("explain it", 0.75, (False, True, False)),
        ("hello", 0.6, (False, False, True)),
    ],
)
def test_confidences_and_needs_follow_the_specification_s1_01_s1_02(
    text: str, confidence: float, needs: tuple[bool, bool, bool]
) -> None:
    found = classify_intent(text)
    metadata = found.metadata
    assert found.confidence == confidence
    assert (metadata.requires_code, metadata.requires_files, metadata.requires_history) == needs
    assert set(CONFIDENCES) == set(IntentType)


@pytest.mark.parametrize("kind", IntentType)
def test_every_intent_has_its_needs_s1_02(kind: IntentType) -> None:
    needs = intent_of("x", kind, current_project="weather").metadata
    with_project = {
        IntentType.CODE_WRITING,
        IntentType.CODE_REFACTORING,
        IntentType.PROJECT_PLANNING,
        IntentType.DOCUMENTATION,
    }
    assert needs.requires_project is (kind in with_project)
    assert needs.current_project == "weather"


def test_an_intent_has_the_entities_of_its_request() -> None:
    assert [
        entity.text for entity in classify_intent("fix parse_config() in src/app.py").entities
    ] == [
        "parse_config",
        "src/app.py",
    ]


def seconds_for(text: str) -> float:
    started = time.process_time()
    classify_intent(text)
    return time.process_time() - started


@pytest.mark.torture
def test_a_million_letters_are_classified_quickly_f_142() -> None:
    assert min(seconds_for("a" * LONG) for _ in range(5)) < 0.05


UNITS = [
    "A",
    "aA",
    "a.",
    "/",
    '"',
    "'a ",
    "`",
    "``` ",
    "http://",
    "a(",
    "please ",
    "when ",
    "add to ",
    "- ",
    "\n",
]


@pytest.mark.parametrize("unit", UNITS)
def test_a_million_letters_of_any_kind_have_an_intent_f_142(unit: str) -> None:
    assert intent(unit * (LONG // len(unit))) in IntentType


@pytest.mark.torture
@pytest.mark.parametrize("unit", UNITS)
def test_hostile_texts_are_classified_quickly_f_142(unit: str) -> None:
    assert seconds_for(unit * (LONG // len(unit))) < 0.5  # 30 ms without a tracer


@given(
    st.text()
    | st.lists(st.sampled_from([*VERBS, *CUES, "the", "to", "you", ",", "?", "when"])).map(" ".join)
)
def test_any_text_has_one_deterministic_intent(text: str) -> None:
    assert classify_intent(text) == classify_intent(text)
