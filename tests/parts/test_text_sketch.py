"""A text is sketched by whole lines: what matches, with its number, and how many lines match."""

import json
import re

import pytest
from hypothesis import given, strategies as st

from llm_common.parts.result_parts import ResultParts
from llm_common.parts.text_lines import TextLines, failures_in
from llm_common.parts.text_sketch import TextSketch
from tests.parts.failing_outputs import FAILING, SUCCEEDING, Output

LOG = [
    f"10:{n // 60:02}:{n % 60:02} host-{n % 7} served /page/{n} in {n % 90} ms" for n in range(900)
]
LOG[417] = "10:06:57 host-4 dropped blk_-774267833966018354 and blk_-8"
LOG[612] = "10:10:12 host-3 Dropped the cache"
TEXT = "\n".join(LOG)
PLAIN = "\n".join([line[len("10:00:00 ") :] for line in LOG])  # of no form of log


def sketch(question: str, text: str = TEXT, max_chars: int = 1_200) -> str:
    shown = TextSketch(text, question).text(max_chars)
    assert len(shown) <= max_chars
    return shown


def lines_with(pattern: str) -> str:
    """Return the number of lines of the log with a pattern, as a sketch says it."""
    return f"{sum(re.search(pattern, line) is not None for line in LOG)} lines contain "


AB = "ab\nabc\nx ab\n" + "y\n" * 9
PACKAGES = "\n".join(
    ["no such package.", "package: a", "packages", "a package. Or b", *"bcdefgh" * 9]
)
CACHES = "\n".join(["app.cache: x", "the cache: x", "my-cache x", "Cache x", *"bcdefgh" * 9])
CAFES = "\n".join(f"{n} ein Café in der Straße {n}" for n in range(400))
ERRORS = [f"ERROR: unit {n} is off" for n in range(2_500)]
BACKUPS = [f"backup {n} is kept in vault {n}" for n in range(8)]
REFUSED = [f"ERROR: request {n} was refused by unit {n}" for n in range(300)]
RUN = [f"tests/test_orders.py::test_{n} PASSED" for n in range(300)]
NO_TOTALS = [f"error: case {n} has no total" for n in (100, 150, 200)]
GO = "=== RUN   TestRead\n    read_test.go:7: skipped\n--- FAIL: TestWrite (0.00s)\nok 2\n"
FAILURES = "Places that may tell of failures: "


@pytest.mark.parametrize(
    ("text", "question", "shown", "absent"),
    [
        pytest.param(
            TEXT,
            "What happened to blk_-774267833966018354?",
            [
                "900 lines. Some of them, with their numbers:\n",
                '1 line contains "blk_-774267833966018354"',
                f"\n418: {LOG[417]}\n",
            ],
            ["pattern: "],
            id="whole lines with their numbers",
        ),
        *(
            pytest.param(TEXT, f"Which lines mention {word}?", [claim], [], id=claim)
            for word, claim in (
                ("dropped", '1 line contains "dropped"'),
                ("Dropped", '1 line contains "Dropped"'),
                ("DROPPED", '2 lines contain "dropped" in any case'),
                ("host-4", lines_with(r"\bhost-4\b") + '"host-4"'),
            )
        ),
        pytest.param(AB, "lines with ab", ['2 lines contain "ab"'], [], id="a part of a word"),
        *(
            pytest.param(
                TEXT,
                f"Which lines mention {word}?",
                [f"\npattern: {pattern}\n", lines_with(pattern)],
                [],
                id=f"lines that do not fit are behind {pattern}",
            )
            for word, pattern in (
                ("host-4", r"\bhost\-4\b"),
                ("HOST-4", r"(?i)\bhost\-4\b"),
                ("pages", "(?i)page"),
            )
        ),
        pytest.param(TEXT, "Where is the zebra?", [], ["pattern: "], id="no pattern of no word"),
        pytest.param(
            PACKAGES,
            "How many lines mention package.?",
            ['2 lines contain "package."\n'],
            [],
            id="a mark before the question mark belongs to the word",
        ),
        pytest.param(
            PACKAGES,
            "Which lines mention the package.",
            ['3 lines contain "package"\n'],
            [],
            id="a mark at the end of a sentence",
        ),
        pytest.param(
            CACHES,
            "How many lines mention cache?",
            ['3 lines contain "cache", 1 of them outside of longer names\n'],
            [],
            id="a word apart from names",
        ),
        *(
            pytest.param(
                CACHES, f"How many lines mention {word}?", [], ["outside"], id=f"{word} is no name"
            )
            for word in ("CACHE", "app.cache")
        ),
        pytest.param(
            CAFES, "Which lines mention cafe?", [], ["pattern: "], id="no pattern misses an accent"
        ),
        pytest.param(
            CAFES,
            "Which lines mention Café?",
            [r"pattern: \bCafé\b"],
            [],
            id="a pattern of accents",
        ),
        pytest.param(
            "\n".join(ERRORS),
            "",
            [f"{FAILURES}at least 2,000, the first in line 1."],
            [f"{FAILURES}2,000, "],
            id="as many failures as are counted",
        ),
        pytest.param(
            "\n".join(ERRORS[:1_999]), "", [f"{FAILURES}1,999, "], [], id="one failure less"
        ),
        pytest.param(
            GO,
            "",
            [f"{FAILURES}1, the first in line 3."],
            [],
            id="the line that tells of a failure",
        ),
        pytest.param(
            "\n".join([*REFUSED[:100], *BACKUPS, *REFUSED[100:]]),
            "Where are the backups kept?",
            [f"{FAILURES}300, the first in line 1.", *BACKUPS],
            [],
            id="failures leave room for the lines that are asked for",
        ),
        pytest.param(
            "\n".join([*RUN[:100], *NO_TOTALS, *RUN[100:]]),
            "Run the tests",
            [*NO_TOTALS, "tests/test_orders.py::test_0 "],
            [],
            id="what failed stands beside the lines with the words",
        ),
    ],
)
def test_a_sketch_counts_and_shows_the_lines_of_the_words_t_16(
    text: str, question: str, shown: list[str], absent: list[str]
) -> None:
    sketched = sketch(question, text)
    assert [part for part in shown if part not in sketched] == []
    assert [part for part in absent if part in sketched] == []


def test_lines_with_more_and_rarer_words_come_first_t_16() -> None:
    shown = sketch("Did host-4 report that a block was dropped?", max_chars=300)
    assert f"418: {LOG[417]}" in shown
    assert '1 line contains "dropped" and "host-4"' in shown
    lines = [f"the {part} of unit {n} runs" for n in range(20) for part in ("pump", "valve")]
    lines += ["the pump and the valve leak", *["all is well"] * 99]
    assert "41: the pump and the valve leak" in sketch("pump or valve?", "\n".join(lines), 190)


def test_a_word_alone_comes_before_the_same_word_within_a_name_t_16() -> None:
    lines = [f"{n}: bound com.app.health of user {n}" for n in range(40)]
    lines[30] = "30: no health data"
    lines[35] = "35: read /var/health/35.json"
    shown = sketch("Which lines mention health?", "\n".join(lines), max_chars=200)
    assert '40 lines contain "health", 2 of them outside of longer names' in shown
    assert "\n31: 30: no health data\n36: 35: read /var/health/35.json" in shown


def test_each_text_is_shown_once_t_16() -> None:
    text = "\n".join(["the pump is off", "all is well"] * 300)
    shown = sketch("is the pump off?", text)
    assert shown.count("the pump is off") == 1
    assert '300 lines contain "pump"' in shown


def test_a_long_line_shows_what_matched_t_16() -> None:
    lines = [f"{n} " + "lorem ipsum " * 60 for n in range(60)]
    lines[30] += "needle in it " + "dolor sit " * 90
    shown = sketch("where is the needle?", "\n".join(lines))
    assert re.search(r"^31: ….*needle in it", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("result", "path", "beside"),
    [
        ({"stdout": PLAIN, "exit_code": 1}, "stdout", "exit_code: 1"),
        (
            {"content": [{"type": "text", "text": PLAIN}]},
            "content[0].text",
            "content[0].text: 900 lines.",
        ),
        ({"ok": False, "result": {"log": PLAIN}}, "result.log", "ok: false"),
    ],
)
def test_the_text_in_data_is_shown_by_its_lines_t_17(
    result: dict[str, object], path: str, beside: str
) -> None:
    shown = ResultParts(json.dumps(result), result, "dropped").excerpt(1_200).text
    assert beside in shown.split("\n")[0]
    assert f"{path}" in shown
    assert "\n418: host-4 dropped blk_-774267833966018354 and blk_-8\n" in shown


def test_all_that_failed_is_named_before_its_details() -> None:
    traces = [f"E   assert {n} == {n + 1}\n    +  where {n} = total()" for n in range(30)]
    names = [f"FAILED tests/test_{chr(97 + n)}.py - wrong" for n in range(9)]
    shown = TextSketch("\n".join([*traces, *names]), "").text(900)
    assert all(name in shown for name in names)


def test_a_text_without_a_match_shows_both_ends_t_16() -> None:
    shown = sketch("zygomorphic").split("\n")
    assert (shown[1], shown[-1]) == (f"1: {LOG[0]}", f"900: {LOG[-1]}")


@given(
    st.integers(60, 2_000), st.integers(1, 800), st.sampled_from(["", "dropped", "failed host-4"])
)
def test_more_room_never_shows_less_t_16(room: int, more: int, question: str) -> None:
    text = "\n".join([*LOG[400:430], "ERROR: it failed", *LOG[600:620]])
    small = set(TextSketch(text, question).text(room).split("\n"))
    large = set(TextSketch(text, question).text(room + more).split("\n"))
    numbers = {line.partition(":")[0] for line in large}
    # The pattern stands for lines that are missing.
    assert {line.partition(":")[0] for line in small} - {"pattern"} <= numbers


WORDS = ("pump", "Pump", "pumps", "valve", "valve-7", "10.0.0.7", "a", "unit", "", "x_pump")


@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join), min_size=1, max_size=30),
    st.sampled_from(["pump", "valve-7", "Pump valve", "10.0.0.7 pump", "PUMPS"]),
    st.sampled_from(["", "\n"]),
)
def test_the_numbers_of_lines_are_true_t_16(lines: list[str], question: str, end: str) -> None:
    text = "\n".join(lines) + end
    true_lines = text.removesuffix("\n").split("\n")
    stated = TextSketch(text, question).text(4_000).split("\n")
    assert stated[0].startswith(f"{len(true_lines):,} lines.")
    for head in stated[1:]:
        claim = re.fullmatch(r'(\d+) lines? contains? (.*".+)', head)
        if claim is None:
            continue
        words = re.findall(r'(the letters )?"([^"]+)"( in any case)?', claim[2])
        count = 0
        for line in true_lines:
            count += all(_has(line, *word) for word in words)
        assert count == int(claim[1]), head


def _has(line: str, letters: str, word: str, folds: str) -> bool:
    pattern = re.escape(word) if letters else rf"(?<!\w){re.escape(word)}(?!\w)"
    return re.search(pattern, line, re.IGNORECASE if folds else 0) is not None


def test_a_log_is_told_by_its_form_and_not_by_a_name() -> None:
    table = "id,message\n" + "".join(f"{n},note {n} of the day\n" for n in range(400))
    log = "".join(f"2026-03-05 10:00:{n % 60:02} INFO note {n} of the day\n" for n in range(400))
    assert ResultParts(table, table, "what about note 7?").has_records
    assert not ResultParts(log, log, "what about note 7?").has_records


def entries(count: int) -> str:
    levels = ("INFO", "WARN", "ERROR")
    return "\n".join(
        f"2026-03-05 10:09:{n:02},120 {levels[n % 3]} [pool] a.Queue: step {n} of {levels[-1]}"
        for n in range(count)
    )


def test_the_lines_of_a_level_are_counted_as_entries() -> None:
    log = entries(30)
    shown = ResultParts(log, log, "How many ERROR lines are in this log?").excerpt(900).text
    assert "level = ERROR: 10 of 30 records" in shown
    assert "message | " in shown
    assert "step 2 of ERROR" in shown


def test_a_line_that_is_no_record_hides_no_count() -> None:
    files = (
        f"-rw-r--r--  1 {'ann' if n % 3 else 'bob'} adm {n:>6} Jan 19 10:02 f{n}" for n in range(30)
    )
    listing = "\n".join(["total 30", *files])
    shown = ResultParts(listing, listing, "How many have column_3 bob?").excerpt(900).text
    assert "column_3 = bob: 10 of 30 records" in shown


def test_no_level_is_counted_where_an_entry_was_not_read() -> None:
    log = entries(30) + "\n2026-03-05 10:09:31 ERROR of a library"
    shown = ResultParts(log, log, "How many ERROR lines are in this log?").excerpt(900).text
    assert "level = " not in shown


@pytest.mark.parametrize("question", ["", "Why did it fail?", "Run it and tell me what went wrong"])
@pytest.mark.parametrize("output", FAILING, ids=lambda output: output.wanted)
def test_what_failed_is_shown(output: Output, question: str) -> None:
    assert output.wanted in TextSketch(output.text, question).text(1_200)


@pytest.mark.parametrize("output", SUCCEEDING, ids=lambda output: output.tool)
def test_no_failure_is_told_of_where_nothing_failed(output: Output) -> None:
    assert failures_in(TextLines(output.text)) == []


NO_FAILURES = (
    "09:35:09     INFO -  unable to execute gcc: No such file or directory",
    "[javac] warning: [path] bad path element: no such file or directory",
    "WARN 41 --- [main] o.s.Pool : could not connect to the cache, tries again",
    "    exit 1",
    '    t.Errorf("total: got error: %v", err)',
    '        asprintf(text, "Unknown error: %d", number);',
)
ONE_FAILURE = (
    "09:35:09     INFO -  TEST-UNEXPECTED-TIMEOUT | orders.py | no output in 370 seconds",
    "10:00:01     INFO - ERROR: no answer",
    "gcc: No such file or directory",
    "+ exit 2",
    "The command exited with 1",
    "Process finished with exit code 3",
)


@pytest.mark.parametrize(
    ("line", "places"),
    [*((line, []) for line in NO_FAILURES), *((line, [range(1, 2)]) for line in ONE_FAILURE)],
)
def test_a_failure_and_no_warning_or_source_tells_of_itself(line: str, places: list[range]) -> None:
    assert failures_in(TextLines(f"compiled a\n{line}\ncompiled b")) == places
