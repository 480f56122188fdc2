"""Parts of a stored result: paths, filters and patterns, and their bounds."""

import json
import time
import tracemalloc
from typing import Any

import jmespath  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings, strategies as st

from llm_common.errors import CorruptPointerError
from llm_common.pointers.jmespath_filter import apply_filter
from llm_common.pointers.reading import extract_part, value_at

VALUE = {
    "log": "start\nerror 1\x07\u2028 here\nerror 2\nend",
    "rows": [{"id": 1, "ok": True}, {"id": 2, "ok": False}],
}

AROUND = "start error 1   here error 2 end"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            {"path": "/log", "regex": r"error \d"},
            "\n".join(
                ["matches: 2", "chars 6-13 line 2: " + AROUND, "chars 21-28 line 3: " + AROUND]
            ),
        ),
        (
            {"path": "/log", "regex": "^error", "lines": [3, 3]},
            "matches: 1\nchars 21-26 line 3: error 2 ",
        ),
        ({"filter": "rows[?ok].id"}, "[1]"),
        (
            {"filter": "rows[1]", "keys": True},
            '{"object":2,"members":{"id":"number","ok":"boolean"}}',
        ),
        ({"filter": "join(', ', rows[].to_string(id))", "chars": [0, 1]}, "1"),
        ({"filter": "sort_by(rows, &to_number(id))[-1].id"}, "2"),
        ({"path": "/log", "lines": [4, 10**12]}, "end"),
    ],
    ids=[
        f"S4-08-{name}"
        for name in ("regex", "regex-in-lines", "filter", "keys", "text", "sort", "last-line")
    ],
)
def test_a_part_is_extracted_as_text(part: dict[str, Any], expected: str) -> None:
    assert extract_part(json.dumps(VALUE).encode(), part).text == expected


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
    rows = extract_part(json.dumps("x" * count).encode(), {"regex": "x"}).text.split("\n")
    assert rows[0] == f"matches: {told}"
    assert len(rows) == min(count, 10_000) + 1


def test_the_work_of_a_filter_is_limited_for_any_result_s4_08() -> None:
    assert apply_filter([0] * 100_000, "sort(@)[0]", payload_bytes=10**9) == 0
    with pytest.raises(ValueError, match="needed too much work"):
        apply_filter([0] * 2_000_000, "sort(@)[0]", payload_bytes=10**9)


def test_embedded_json_of_many_levels_is_parsed_step_by_step_s4_08() -> None:
    value: Any = "x" * 1_000
    for _ in range(8):
        value = json.dumps([value])
    assert value_at(value, "/0" * 8) == "x" * 1_000
    assert value_at("[" * 100_000, "") == "[" * 100_000
    with pytest.raises(ValueError, match="leads nowhere"):
        value_at("[" * 100_000, "/0")


SMALL: Any = {"a": 1, "s": "x" * 100, "o": {"b": "c"}}
ROWS: Any = [
    {"id": n, "name": f"item {n}", "tags": ["a", "b"], "note": "x" * 30} for n in range(500)
]
TEXT: Any = "word " * 20_000
LONG_NUMBERS: Any = [int("7" * 4_000) + n for n in range(50)]

# Much more than any of them takes on an idle machine; without a limit they take minutes, or more
# memory than there is.
MAX_CPU_S = 5.0
MAX_REGEX_CPU_S = 2.0
MAX_MEMORY_BYTES = 60_000_000

HOSTILE_FILTERS = [
    ("@" + "|[@,@][]" * 60, SMALL),
    ("@" + "|[@,@,@]" * 100, SMALL),
    ("@" + "|{a:@,b:@,c:@}" * 60, SMALL),
    ("@" + "|[@,@]|[].[@,@]" * 40, SMALL),
    ("@" + "|to_string([@])" * 60, SMALL),
    ("@" + "|to_string([@,@])" * 50, SMALL),
    ("[@,@]" + "|map(&[@,@,@,@],@)|[]" * 40, SMALL),
    ("[s]" + "|[join(@[0],[@[0],@[0],@[0]])]" * 30, SMALL),
    ("s" + "|join(@,[@,@])" * 40, SMALL),
    ("o" + "|merge(@,{a:@,b:@})" * 40, SMALL),
    ("a" + "|values({a:[@,@],b:@})" * 40, SMALL),
    ("@|[s,s]" + "|[@,@,@][]" * 40 + "|sort(@)", SMALL),
    ("@|[a]" + "|[@,@,@][]" * 40 + "|sum(@)", SMALL),
    ("[" * 400 + "a" + "]" * 400, SMALL),
    ("!" * 900 + "a", SMALL),
    ("a" + "|@" * 480, SMALL),
    ("a" + "||b" * 330, SMALL),
    ("a" + ".b" * 480, ROWS),
    ("[*].map(&@,[@,@,@,@,@,@,@,@,@,@,@,@])" + "|map(&map(&[@,@],@),@)" * 20, ROWS),
    ("@" + "|[@,@,@,@][]" * 4 + "|sort_by(@,&name)" * 20, ROWS),
    ("@" + "|[@,@,@,@][]" * 4 + "|max_by(@,&join(',',[name,name,note]))", ROWS),
    ("@" + "|[@,@,@,@][]" * 4 + "|[::-1]" * 100, ROWS),
    ("@" + "|[@,@,@]" * 12 + "|@==@", ROWS),
    ("[@,@,@,@,@,@,@,@]|[?[@,@]==[@,@]]" + "|[?@==@]" * 20, ROWS),
    ("[@,@,@,@]|[?contains(@,@[0])]" + "|[@,@]|contains(@,[@])" * 20, ROWS),
    ("@" + "|[@,@][]" * 5 + "|[].keys(@)[]" + "|[@,@][]" * 30, ROWS),
    ("[*].*[]" + "|[@,@,@][]" * 30, ROWS),
    ("[].join('',[note,note,note,note])|join('',@)" + "|[@,@,@,@,@,@]|join('',@)" * 20, ROWS),
    ("[].{" + "k" * 900 + ":@}", ROWS),
    ("[?" + "||".join(["note==name"] * 80) + "]", ROWS),
    ("[" + ",".join([f"contains(@,'{'wo' * 20}')"] * 20) + "]", TEXT),
    ("[" + ",".join(["reverse(@)"] * 80) + "]", TEXT),
    ("[" + ",".join(["to_number(@)"] * 70) + "]", TEXT),
    ("[" + ",".join(["to_string(@)"] * 70) + "]", LONG_NUMBERS),
    ("@" + "|[@,@,@,@][]" * 8 + "|[sum(@),avg(@),max(@)]", LONG_NUMBERS),
    ("[ceil(to_number('1e999'))]", SMALL),
    ("avg([to_number('" + "9" * 400 + "')])", SMALL),
    ("[99999999999999999999]|[::0]", ROWS),
    ("'a' < `1`", SMALL),
    ("to_string(&a)", SMALL),
]


def rows(table: list[Any], *, every: int) -> list[Any]:
    """Return some rows of a table as parameters, and all of them for `make torture`."""
    torture = pytest.mark.torture
    return [
        pytest.param(*row, id=f"S4-08-{n}", marks=() if n % every == 0 else torture)
        for n, row in enumerate(table)
    ]


@pytest.mark.parametrize(("expression", "value"), rows(HOSTILE_FILTERS, every=9))
def test_a_hostile_filter_ends_in_bounded_time_and_memory(expression: str, value: Any) -> None:
    payload = json.dumps(value).encode()
    assert_bounded(payload, {"filter": expression[:1_000]})


def assert_bounded(payload: bytes, part: dict[str, Any]) -> None:
    begin = time.thread_time()
    try:
        extract_part(payload, part)
    except ValueError as exc:
        assert str(exc)  # noqa: PT017 - either outcome is right
    assert time.thread_time() - begin < MAX_CPU_S


GROWING_FILTERS = [
    ("@" + "|[@,@,@][]" * 40,),
    ("@" + "|to_string([@,@])" * 50,),
    ("[].[@,@,@][]" + "|[].{a:@}" * 60,),
    ("@" + "|map(&[@,@,@,@],@)" * 20,),
    ("[].note|[@,@,@,@,@,@][]" + "|[join('',@),join('',@),join('',@)]" * 20,),
]


@pytest.mark.parametrize("expression", rows(GROWING_FILTERS, every=5))
def test_a_hostile_filter_takes_bounded_memory(expression: str) -> None:
    payload = json.dumps(ROWS).encode()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="too much work"):
            extract_part(payload, {"filter": expression})
        assert tracemalloc.get_traced_memory()[1] < MAX_MEMORY_BYTES
    finally:
        tracemalloc.stop()


LEAVES = [
    "a",
    "b",
    "@",
    "`1`",
    "`0`",
    "'a'",
    "`[]`",
    "`true`",
    "`null`",
    "*",
    "[*]",
    "[]",
    "[0]",
    "a.b",
    '`{"a":[1]}`',
]
CALLS = (
    "length keys values to_string to_number to_array type sort reverse sum avg min max abs "
    "not_null merge"
)
OPERATORS = ["==", "!=", "<", "<=", ">", ">=", "|", "||", "&&"]


def larger_expressions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    call = st.sampled_from(CALLS.split())
    by = st.sampled_from(["sort_by", "max_by", "min_by"])
    return st.one_of(
        st.builds("{}.{}".format, inner, st.sampled_from(["a", "*", "[a,b]", "{x:a,y:@}"])),
        st.builds(
            "{}[{}]".format, inner, st.sampled_from(["", "*", "0", "-1", "1:", ":2", "::-1"])
        ),
        st.builds("({} {} {})".format, inner, st.sampled_from(OPERATORS), inner),
        st.builds("[{0},{1},{0}]".format, inner, inner),
        st.builds("{{x:{},y:{}}}".format, inner, inner),
        st.builds("{}[?{}]".format, inner, inner),
        st.builds("!{}".format, inner),
        st.builds("{}({})".format, call, inner),
        st.builds("{}({},&{})".format, by, inner, inner),
        st.builds("map(&{},{})".format, inner, inner),
        st.builds("contains({},{})".format, inner, inner),
        st.builds("join('-',{})".format, inner),
    )


EXPRESSIONS = st.recursive(st.sampled_from(LEAVES), larger_expressions, max_leaves=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "b", "12", 1.5]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(EXPRESSIONS, VALUES)
def test_a_filter_returns_what_jmespath_returns_s4_08(expression: str, value: Any) -> None:
    payload = json.dumps(value).encode()
    try:
        expected = jmespath.search(expression, value)
        json.dumps(expected)
    except (ValueError, TypeError, ArithmeticError):
        with pytest.raises(ValueError, match="filter"):
            extract_part(payload, {"filter": expression})
    else:
        text, form = extract_part(payload, {"filter": expression})
        assert (text if form == "text" else json.loads(text)) == expected


@given(EXPRESSIONS, st.integers(2, 12))
def test_a_generated_filter_that_repeats_itself_stays_bounded_s4_08(
    expression: str, times: int
) -> None:
    repeated = "|".join([f"[@,{expression}]"] * times)
    assert_bounded(
        json.dumps({"a": ROWS[:50], "b": TEXT[:500]}).encode(), {"filter": repeated[:1_000]}
    )


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
    with pytest.raises(ValueError, match=f"the regex .*{words}"):
        extract_part(json.dumps("a" * 2_000_000).encode(), {"regex": pattern[:500]})
    assert time.thread_time() - begin < MAX_REGEX_CPU_S


def test_a_text_near_the_stores_limit_is_read_back_s4_08() -> None:
    payload = b'"' + b"word number\\n" * 7_500_000 + b'"'  # 98 MB
    assert extract_part(payload, {"lines": [1, 3]}).text == "word number\n" * 3


def test_a_long_text_is_searched_across_its_windows_s4_08() -> None:
    words = ["start", *["x" * 999] * 2_000, "needle", *["y" * 999] * 3_000, "end"]
    text = "\n".join(words)
    head, *rows = extract_part(
        json.dumps(text).encode(), {"regex": r"^(?:x\w*\n+needle\n+y+|end)$|(?<=t\n)x{3}"}
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
        json.dumps(text).encode(), {"regex": pattern + "(?#" + "-" * 450 + ")"}
    ).text.split("\n")
    whole = extract_part(json.dumps(text).encode(), {"regex": pattern}).text.split("\n")
    assert heads == whole
