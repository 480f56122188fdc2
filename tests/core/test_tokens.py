"""Token counters: the bound is never too low, and it is close."""

import base64
import json
import string
import sys
import time
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from hypothesis import example, given, strategies as st

from llm_common.core import ExactCounter, TokenCounter, UpperBoundCounter, tokens
from llm_common.core.tokens import _known_pieces
from llm_common.errors import ConfigError

BOUND = UpperBoundCounter()
SOURCES = sorted(Path(json.__file__).parents[1].glob("[c-h]*.py"))[:40]
CHINESE = (
    "自然语言处理是人工智能领域的一个重要方向，它研究人与计算机之间用自然语言通信的理论和方法。"
)
PANGRAMS = [
    "Быстрая коричневая лиса перепрыгивает через ленивую собаку.",
    "Où est la bibliothèque? L'été dernier, j'ai mangé des crêpes près de l'église.",
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "😀🎉🚀👍🏽 👩‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(max_size=8), children),
    max_leaves=15,
)
code = st.lists(
    st.sampled_from(
        [
            "return",
            "self",
            "getValue",
            "HTTPServer",
            "x",
            "_id",
            "'message'",
            "don't",
            "é",
            "变量",
            "0x1F",
        ]
    )
    | st.text(string.punctuation, max_size=4)
    | st.text(" \t\n\r", max_size=6)
    | st.text(string.ascii_letters + string.digits, max_size=8)
).map("".join)


@cache
def exact_counters() -> tuple[ExactCounter, ExactCounter]:
    return ExactCounter("cl100k_base"), ExactCounter("o200k_base")


def exact(text: str) -> int:
    """Return the larger of the two exact counts."""
    return max(counter.count(text) for counter in exact_counters())


@given(st.text())
@example("'tremendous")
@example("\t\t.")
@example(" )\r\n/-")
@example(" 真")
@example("ApproxBudget")
@example("\ud800 <|endoftext|>")
@example("\U00010138\n/'")
@example("{\u29ed\r\n\n//{")
@example("\u0663122")
@example("2\u06632 \u2167122\u00bd12")
@example(" " * 500 + "\n" + "\t" * 200 + "-" * 300)
def test_no_text_exceeds_the_bound(text: str) -> None:
    assert exact(text) <= BOUND.count(text)


TEXTS: dict[str, st.SearchStrategy[str]] = {
    "printable": st.text(string.printable),
    "letters": st.text(string.ascii_letters),
    "spaces": st.text(" \t\r\n\f\v/'a1é"),
    "code": code,
    "json": st.builds(
        json.dumps, json_values, indent=st.sampled_from([None, 2]), ensure_ascii=st.booleans()
    ),
    "bytes": st.binary(max_size=300).flatmap(
        lambda data: st.sampled_from(
            [
                base64.b64encode(data).decode(),
                base64.b85encode(data).decode(),
                data.hex(),
                repr(data),
            ]
        )
    ),
}


@pytest.mark.parametrize("kind", TEXTS)
@given(data=st.data())
def test_no_text_of_a_kind_exceeds_the_bound(kind: str, data: st.DataObject) -> None:
    text = data.draw(TEXTS[kind])
    assert exact(text) <= BOUND.count(text)


def test_no_real_source_exceeds_the_bound() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in SOURCES}
    assert [name for name, text in texts.items() if exact(text) > BOUND.count(text)] == []


@pytest.mark.parametrize("text", PANGRAMS, ids=["ru", "fr", "ja", "ko", "ar", "hi", "th", "emoji"])
def test_no_language_exceeds_the_bound(text: str) -> None:
    assert exact(text) <= BOUND.count(text) <= 6 * exact(text)


def test_the_bound_is_close_for_typical_prompts() -> None:
    prose = "\n".join(topics.values())
    source = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    data = json.dumps(
        [{"ticker": "AAPL", "close": 231.5 + day, "volume": 1_000_000 * day} for day in range(200)]
    )
    packed = base64.b64encode(bytes(range(256)) * 8).decode()
    ratios = [BOUND.count(text) / exact(text) for text in (prose, source, data, packed, CHINESE)]
    assert max(ratios) < 1.45


def test_every_known_piece_is_one_token_in_both_encodings() -> None:
    pieces, characters = _known_pieces()
    assert len(pieces) > 10_000
    assert {exact(piece) for piece in (*pieces, *characters)} == {1}


@pytest.mark.parametrize(
    "text",
    [" ", "\t ", "a", "aB", "!", "'", "\r\n \t", "é", "自", " 1", "\0", "/\n"],
    ids=lambda text: text.encode("unicode_escape").decode(),
)
def test_the_time_is_linear_in_the_length(text: str) -> None:
    started = time.thread_time()
    assert BOUND.count(text * 50_000) > 0
    assert time.thread_time() - started < 2


def test_an_empty_text_has_no_tokens() -> None:
    assert BOUND.count("") == 0
    assert exact("") == 0


def test_exact_counts_are_those_of_the_encodings() -> None:
    cl100k, o200k = exact_counters()
    assert (cl100k.count("hello world"), o200k.count("hello world")) == (2, 2)
    assert o200k.count("<|endoftext|>") > 1
    assert o200k.count("\ud800") == 1
    assert o200k.count("a" * 1_500_000) > 0
    assert all(isinstance(counter, TokenCounter) for counter in (cl100k, o200k, BOUND))


def test_a_missing_extra_is_named_with_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bpe_openai._bindings", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[tokens\]'"):
        ExactCounter()


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([{"id": number, "name": f"part {number}"} for number in range(6_000)]),
        "\n".join(topics.values()) + "\r\n\r\n",
        base64.b64encode(bytes(number * 7 % 251 for number in range(150_000))).decode(),
        "中文，没有空格。" * 20_000 + "a b" * 40_000,
        "if x:\n\n    # why\n\n\n\ty = 1  \n//\n" * 8_000,
    ],
    ids=["json", "prose", "base64", "chinese", "code"],
)
def test_a_long_text_counts_as_a_whole(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_slices = [counter.count(text) for counter in exact_counters()]
    monkeypatch.setattr(tokens, "_SLICE_CHARS", len(text))
    assert in_slices == [counter.count(text) for counter in exact_counters()]


class FixedCounter:
    """A counter that returns the same value for every text."""

    def __init__(self, value: object) -> None:
        self._value = value

    def count(self, text: str) -> int:
        return self._value  # type: ignore[return-value]


@pytest.mark.parametrize(("value", "expected"), [(5, 5), (5.0, 5), (True, 1), (0.0, 0)])
def test_a_whole_number_of_a_callers_counter_is_an_int(value: object, expected: int) -> None:
    count = tokens.count_tokens(FixedCounter(value), "text")
    assert (count, type(count)) == (expected, int)


@pytest.mark.parametrize("value", [5.5, "5", None, float("nan"), float("inf")])
def test_anything_else_of_a_callers_counter_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="the token counter FixedCounter returned "):
        tokens.count_tokens(FixedCounter(value), "text")
