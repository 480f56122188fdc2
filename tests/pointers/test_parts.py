"""Parts of a stored result: paths, ranges and patterns, and their bounds."""

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from llm_common.errors import CorruptPointerError
from llm_common.parts.text_sketch import TextSketch
from llm_common.pointers.reading import ResultPart, extract_part, value_at
from llm_common.text.unwrapping import unwrapped

VALUE = {
    "log": "start\nerror 1\x07\u2028 here\nerror 2\nend",
    "rows": [{"id": 1, "ok": True}, {"id": 2, "ok": False}],
}


NUMBERS = {"a": [1, 22]}
NESTED = {"body": json.dumps({"rows": [{"id": 7}]})}
KEYS = {"keys": True}


@pytest.mark.parametrize(
    ("value", "part", "text", "form"),
    [
        pytest.param(
            VALUE,
            {"path": "/log", "pattern": r"error \d"},
            "matches: 2\nchars 6-13 line 2: error 1   here\nchars 21-28 line 3: error 2",
            "text",
            id="S4-08-pattern",
        ),
        pytest.param(
            VALUE,
            {"path": "/log", "pattern": "^error", "lines": [3, 3]},
            "matches: 1\nchars 21-26 line 3: error 2",
            "text",
            id="S4-08-pattern-in-lines",
        ),
        pytest.param(
            VALUE,
            {"path": "/rows/1", "keys": True},
            '{"object":2,"members":{"id":"number","ok":"boolean"}}',
            "json",
            id="S4-08-keys",
        ),
        pytest.param(
            VALUE, {"path": "/rows", "chars": [1, 9]}, '{"id":1,', "json", id="S4-08-chars"
        ),
        pytest.param(VALUE, {"path": "/log", "lines": [4, 10**12]}, "end", "text", id="S4-08-last"),
        # A match in JSON is text.
        (NUMBERS, {"pattern": "2+"}, 'matches: 1\nchars 8-10 line 1: {"a":[1,22]}', "text"),
        (NUMBERS, {"chars": [5, 8]}, "[1,", "json"),
        (NESTED, {"path": "/body/rows/0/id"}, "7", "json"),
        (NESTED, {"path": "/body"} | KEYS, '{"object":1,"members":{"rows":"list of 1"}}', "json"),
        ([{"a": 1}, 2], KEYS, '{"list":2,"first":{"object":1,"members":{"a":"number"}}}', "json"),
        ([[1, 2]], KEYS, '{"list":1,"first":"list of 2"}', "json"),
        ([], KEYS, '{"list":0,"first":"null"}', "json"),
        ("a\nb", KEYS, '{"text":3,"lines":2}', "json"),
        (True, KEYS, "boolean", "text"),
        (None, KEYS, "null", "text"),
        (2.5, KEYS, "number", "text"),
        (
            {"t": "x" * 1_234, "o": {}},
            KEYS,
            '{"object":2,"members":{"t":"text of 1,234 characters","o":"object of 0"}}',
            "json",
        ),
    ],
)
def test_a_part_is_extracted_as_text(
    value: object, part: dict[str, Any], text: str, form: str
) -> None:
    assert extract_part(json.dumps(value, separators=(",", ":")).encode(), part) == (text, form)


def test_a_payload_that_is_not_json_is_corrupt_s4_08() -> None:
    with pytest.raises(CorruptPointerError):
        extract_part(b'{"a"', {"path": ""})


# The examples of RFC 6901, section 5.
RFC_6901 = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *[
            ("", RFC_6901),
            ("/foo", ["bar", "baz"]),
            ("/foo/0", "bar"),
            ("/", 0),
            ("/a~1b", 1),
            ("/c%d", 2),
        ],
        *[("/e^f", 3), ("/g|h", 4), ("/i\\j", 5), ('/k"l', 6), ("/ ", 7), ("/m~0n", 8)],
    ],
)
def test_paths_are_json_pointers_s4_08(path: str, expected: object) -> None:
    assert value_at(RFC_6901, path) == expected


def test_the_escapes_of_a_path_are_read_once_s4_08() -> None:
    assert value_at({"~1": "tilde", "/": "slash"}, "/~01") == "tilde"


@pytest.mark.parametrize("step", ["2", "01", "-", "-1"])
def test_a_path_beyond_a_list_leads_nowhere_s4_08(step: str) -> None:
    with pytest.raises(ValueError, match="leads nowhere at its part 1: it meets list of 2"):
        value_at(["a", "b"], f"/{step}")


@pytest.mark.parametrize(
    ("count", "told"), [(9_999, "9,999"), (10_000, "10,000"), (10_001, "over 10,000")]
)
def test_matches_are_counted_up_to_ten_thousand_s4_08(count: int, told: str) -> None:
    rows = extract_part(json.dumps("x" * count).encode(), {"pattern": "x"}).text.split("\n")
    assert rows[0] == f"matches: {told}"
    assert len(rows) == min(count, 10_000) + 1


def test_embedded_json_of_many_levels_is_parsed_step_by_step_s4_08() -> None:
    value: Any = "x" * 1_000
    for _ in range(8):
        value = json.dumps([value])
    assert value_at(value, "/0" * 8) == "x" * 1_000
    assert value_at("[" * 100_000, "") == "[" * 100_000
    with pytest.raises(ValueError, match="leads nowhere"):
        value_at("[" * 100_000, "/0")


MAX_REGEX_CPU_S = 2.0


def rows(table: list[Any], *, every: int) -> list[Any]:
    """Return some rows of a table as parameters, and all of them for `make torture`."""
    torture = pytest.mark.torture
    return [
        pytest.param(*row, id=f"S4-08-{n}", marks=() if n % every == 0 else torture)
        for n, row in enumerate(table)
    ]


HAN = "".join(chr(0x4E00 + 2 * number) for number in range(470))
TOO_SLOW, TOO_LARGE, INVALID = "too much time", "repeats too much", "not valid in Python's syntax"
HOSTILE_PATTERNS = [
    ("(a+)+b", TOO_SLOW),
    (f"(?i)[^{HAN}]*[cd]", TOO_SLOW),
    ("x*", TOO_SLOW),
    ("(a{1000}){1000}", TOO_LARGE),
    ("((a{999}){999}){999}", TOO_LARGE),
    ("a{99999999}", TOO_LARGE),
    ("(?:" * 60 + "(?:a?|b)" + ")+" * 60, TOO_LARGE),
    ("{}{1000000}", TOO_LARGE),
    ("(a{1000})(?i){1000}", TOO_LARGE),
    ("(a{1000})(?#b){1000}", TOO_LARGE),
    ("(?x)(a{100}) {1000}", TOO_LARGE),
    ("(?x)a{ 1 0 0 0 0 0 0 }", TOO_LARGE),
    ("(?x)(a{100}#)\n){1000}", "comments"),
    ("(?R)?a", INVALID),
    ("(a(?1)?b)", INVALID),
    ("(?b)(?:fooba){e}", INVALID),
    ("(?r)a*b", INVALID),
    ("(?V1)a", INVALID),
    ("(" * 240 + ")" * 239, INVALID),
]


@pytest.mark.parametrize(("pattern", "words"), rows(HOSTILE_PATTERNS, every=4))
def test_a_hostile_pattern_is_stopped_and_named_s4_08(pattern: str, words: str) -> None:
    begin = time.thread_time()
    with pytest.raises(ValueError, match=f"the pattern .*{words}"):
        extract_part(json.dumps("a" * 2_000_000).encode(), {"pattern": pattern[:500]})
    assert time.thread_time() - begin < MAX_REGEX_CPU_S


def test_a_text_near_the_stores_limit_is_read_back_s4_08() -> None:
    payload = b'"' + b"word number\\n" * 7_500_000 + b'"'  # 98 MB
    assert extract_part(payload, {"lines": [1, 3]}).text == "word number\n" * 3


def test_a_long_text_is_searched_across_its_windows_s4_08() -> None:
    words = ["start", *["x" * 999] * 2_000, "needle", *["y" * 999] * 3_000, "end"]
    text = "\n".join(words)
    head, *rows = extract_part(
        json.dumps(text).encode(), {"pattern": r"^(?:x\w*\n+needle\n+y+|end)$|(?<=t\n)x{3}"}
    ).text.split("\n")
    assert head == "matches: 3"
    at = text.index("needle") - 1_000
    assert [row.split(":")[0] for row in rows] == [
        "chars 6-9 line 2",
        f"chars {at}-{at + 2_006} line 2001",
        f"chars {len(text) - 3}-{len(text)} line 5003",
    ]


@settings(max_examples=8, deadline=None)
@given(
    st.text("ab\n", max_size=60),
    st.sampled_from(["a+", "b*", "^a|b$", "a\nb", "(?<=a)b+", r"\bab?", "a(?=b)"]),
)
def test_every_match_of_a_repeated_text_is_found_s4_08(text: str, pattern: str) -> None:
    text = (text + "\n") * (1 + 25_000 // (len(text) + 1))
    heads = extract_part(
        json.dumps(text).encode(), {"pattern": pattern + "(?#" + "-" * 450 + ")"}
    ).text.split("\n")
    whole = extract_part(json.dumps(text).encode(), {"pattern": pattern}).text.split("\n")
    assert heads == whole


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [("lines", (1, 1), (2, 1)), ("lines", (3, 9), (0, 1)), ("chars", (0, 1), (1, 1))],
)
def test_a_range_has_at_least_one_line_or_character(
    name: str, allowed: tuple[int, int], refused: tuple[int, int]
) -> None:
    assert ResultPart.model_validate({name: allowed}).model_dump(exclude_defaults=True) == {
        name: allowed
    }
    with pytest.raises(ValidationError):
        ResultPart.model_validate({name: refused})


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"pattern": "b+"}, "matches: 2\nchars 5-7 line 3: \nchars 10-11 line 5: "),
        (
            {"chars": [5, 11], "pattern": "b+"},
            "matches: 2\nchars 5-7 line 3: bb\nchars 10-11 line 5: ",
        ),
        ({"lines": [3, 9], "pattern": "b+"}, "matches: 2\nchars 5-7 line 3: "),
        ({"lines": [3, 9], "chars": [3, 9], "pattern": "b+"}, "matches: 1\nchars 10-11 line 5: "),
    ],
    ids=["whole", "chars", "lines", "both"],
)
def test_matches_have_their_place_in_the_whole_text(part: dict[str, Any], text: str) -> None:
    payload = json.dumps("a\na\n bb\na\nb\nc").encode()
    extracted = extract_part(payload, part)
    for line, expected in zip(extracted.text.splitlines(), text.splitlines(), strict=False):
        assert line.startswith(expected)
    assert extracted.form == "text"


def test_a_pattern_meets_the_letters_of_escapes_s4_08() -> None:
    stored = json.dumps([{"a": "x\U0001f600 周五送货"}, {"a": "周五"}])
    part = {"pattern": '五送|周五"'}
    head, *rows = extract_part(json.dumps(stored).encode(), part).text.split("\n")
    assert head == "matches: 2"
    assert rows[0].endswith('[{"a": "x\U0001f600 周五送货"}, {"a": "周五"}]')
    places = [tuple(map(int, row.split()[1].split("-"))) for row in rows]
    assert [json.loads(f'"{stored[start:end].rstrip(chr(34))}"') for start, end in places] == [
        "五送",
        "周五",
    ]
    program = 'name = "\\u5468"'
    assert extract_part(json.dumps(program).encode(), {"pattern": "周"}).text == "matches: 0"


def test_a_match_in_a_long_line_has_its_surroundings_s4_08() -> None:
    text = "a" * 1_100 + "needle" + "b" * 1_100 + "\n" + "c" * 950 + "needle" + "d" * 950
    _, *rows = extract_part(json.dumps(text).encode(), {"pattern": "needle"}).text.split("\n")
    excerpts = [row.partition(": ")[2] for row in rows]
    assert excerpts == ["a" * 60 + "needle" + "b" * 60, text.split("\n")[1]]


COLOURED = "\x1b[31mERROR\x1b[0m one\r\n\x1b[32minfo\x1b[0m two\r\n\x1b[1mERROR\x1b[0m three"
PLAIN = "ERROR one\ninfo two\nERROR three"


@pytest.mark.parametrize(
    ("result", "pattern"),
    [
        (PLAIN, "^ERROR"),
        (PLAIN, "one$|three$"),
        (COLOURED, r"\bERROR\b"),
        (COLOURED, "^ERROR"),
        (COLOURED, "one$|three$"),
        ([PLAIN], r"\bERROR\b"),
        ([COLOURED], r"\bERROR\b"),
        (json.dumps([COLOURED]), r"\bERROR\b"),
    ],
)
def test_a_pattern_meets_the_text_as_it_is_read_t_15(result: object, pattern: str) -> None:
    payload = json.dumps(result).encode()
    answer = extract_part(payload, {"pattern": pattern}).text
    assert answer.startswith("matches: 2\n")
    stored = extract_part(payload, {}).text
    for first, end in re.findall(r"^chars (\d+)-(\d+) ", answer, re.MULTILINE):
        assert re.search("ERROR|one|three", stored[int(first) : int(end)])


def test_a_pattern_of_the_escapes_themselves_finds_them_t_15() -> None:
    payload = json.dumps(["a\nb", "C:\\new"]).encode()
    assert extract_part(payload, {"pattern": r"a\\nb"}).text.startswith("matches: 1\nchars 2-6 ")
    assert extract_part(payload, {"pattern": r"C:\\new"}).text.startswith("matches: 1\n")


def test_the_line_of_a_log_with_brackets_is_no_json_t_15() -> None:
    payload = json.dumps(r"[INFO] open C:\temp\new").encode()
    answer = extract_part(payload, {"pattern": r"\\temp\\new"}).text
    assert answer.startswith("matches: 1\nchars 14-23 line 1: ")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_have_the_numbers_of_the_preview_whatever_ends_them_t_14(end: str) -> None:
    text = end.join(f"unit {number} is on" for number in range(1, 31))
    payload = json.dumps(text).encode()
    number = TextSketch(unwrapped(text), "unit 17").text(2_000).split("unit 17")[0].split("\n")[-1]
    assert number == "17: "
    assert extract_part(payload, {"lines": (17, 17)}).text.strip() == "unit 17 is on"
    answer = extract_part(payload, {"pattern": "^unit 17 "}).text
    assert re.search(r"line (\d+)", answer)[1] == "17"  # type: ignore[index]
