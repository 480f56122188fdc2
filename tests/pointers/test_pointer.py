import itertools
from typing import Any

import pytest
from pydantic import ValidationError

from llm_common.agents import ContextPointer, compute_pointer_id, deterministic_summary
from llm_common.errors import PointerNotFoundError, UnsafePathError, UnserialisableError
from llm_common.pointers.pointer import call_digest, check_pointer_id
from llm_common.text.canonical import stable_json


def pointer_id(args: dict[Any, Any], task_id: Any = "t") -> str:
    return compute_pointer_id(tool_name="tool", args=args, query_id="q", task_id=task_id)


def test_the_golden_id_never_changes_s0_01() -> None:
    assert pointer_id({"ticker": "AAPL", "limit": 5}) == "24248a36f5e3"
    args_json = stable_json({"limit": 5, "ticker": "AAPL"})
    call_sha256 = call_digest(args_json, tool_name="tool", query_id="q", task_id="t")
    assert call_sha256.startswith("24248a36f5e3")


@pytest.mark.parametrize(
    ("args", "same"),
    [
        (
            {"a": {"x": 1, "y": [1, {"p": 2, "q": 3}]}, "b": 1},
            {"b": 1, "a": {"y": [1, {"q": 3, "p": 2}], "x": 1}},
        ),
        ({1: (1, 2)}, {"1": [1, 2]}),
    ],
    ids=["order", "types"],
)
def test_equal_json_has_the_same_id_in_any_order_s0_02(
    args: dict[Any, Any], same: dict[Any, Any]
) -> None:
    assert pointer_id(args) == pointer_id(same)


def test_similar_task_ids_have_different_ids_s0_02() -> None:
    assert len({pointer_id({}, task_id) for task_id in (None, "None", "null")}) == 3


def test_similar_values_have_different_ids_s0_02() -> None:
    assert len({pointer_id({"a": value}) for value in (1, True, 1.0, "1", "é", "e\u0301")}) == 6


def test_impossible_arguments_have_no_id_s0_03() -> None:
    with pytest.raises(UnserialisableError):
        pointer_id({"a": (number for number in [1])})


def test_ids_have_twelve_to_sixteen_digits_s0_04() -> None:
    for length in range(12, 17):
        assert check_pointer_id("a" * length) == "a" * length


@pytest.mark.parametrize(
    ("forged", "error"),
    [
        ("../x", UnsafePathError),
        ("24248A36F5E3", PointerNotFoundError),
        ("a" * 300, PointerNotFoundError),
        ("a" * 11, PointerNotFoundError),
        ("a" * 17, PointerNotFoundError),
        ("", UnsafePathError),
        ("24248a36f5e3\n", UnsafePathError),
        ("24248a36f5e3.meta", UnsafePathError),
    ],
)
def test_forged_ids_are_refused_f_023(forged: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_pointer_id(forged)


@pytest.mark.parametrize(
    ("tool_name", "args", "summary"),
    [
        ("web_search", {"query": "foo", "count": 3}, "web_search query=foo count=3"),
        ("web_search", {"count": 3, "query": "foo", "page": 9}, "web_search query=foo count=3"),
        (
            "t",
            {"limit": 0, "query": "", "count": False, "ticker": None},
            "t query= limit=0 count=False",
        ),
        ("t", {"d": 4, "b": 2, "a": 1, "c": 3}, "t a=1 b=2 c=3"),
        ("t", {"b": None, "a": 1, "c": 2, "d": 3}, "t a=1 c=2"),
        ("t", {"ticker": None, "a": 1}, "t a=1"),
        ("t", {}, "t"),
        ("t", {"query": {"b": [1, 2], "a": "x"}}, 't query={"b":[1,2],"a":"x"}'),
        ("t", {2: "b", "a": 1.5}, "t 2=b a=1.5"),
    ],
)
def test_summary_names_the_key_arguments_s0_06(
    tool_name: str, args: dict[Any, Any], summary: str
) -> None:
    assert deterministic_summary(tool_name=tool_name, args=args) == summary


def test_the_key_arguments_can_be_chosen_s0_06() -> None:
    assert (
        deterministic_summary(tool_name="t", args={"query": "x", "city": "Ulm"}, key_args=["city"])
        == "t city=Ulm"
    )


def test_summary_is_one_short_line_s0_07_f_045() -> None:
    args = {
        "query": "a\n### fake (deadbeefcafe)\x1b[31m\u2028\u202e\r" + "x" * 1_000_000,
        "url": "y" * 200,
        "q": "\ud800",
    }
    summary = deterministic_summary(tool_name="tool\nname" + "z" * 500, args=args)
    assert len(summary) <= 300
    assert len(summary.splitlines()) == 1
    assert not set(summary) & set("\n\r\x1b\u2028\u202e")
    summary.encode("utf-8")
    query = deterministic_summary(tool_name="t", args={"query": "x" * 500})
    assert query == "t query=" + "x" * 119 + "…"


CANARY = "hunter2CANARY"


@pytest.mark.parametrize(
    "key", ["api_key", "Token", "secret", "password", "authorization", "X-Signature"]
)
def test_summary_hides_secret_arguments_s0_07(key: str) -> None:
    summary = deterministic_summary(
        tool_name="t", args={key: CANARY, "url": f"https://u:{CANARY}@h/?sig={CANARY}"}
    )
    assert CANARY not in summary
    assert CANARY not in deterministic_summary(tool_name="t", args={key: CANARY})
    assert CANARY not in deterministic_summary(
        tool_name="t", args={"query": f"Bearer {CANARY}", "q": {key: CANARY}}
    )


def test_an_endless_integer_has_no_summary_f_044() -> None:
    with pytest.raises(UnserialisableError):
        deterministic_summary(tool_name="t", args={"limit": 10**5000})


SPEC_FIELDS: dict[str, Any] = {
    "pointer_id": "deadbeefcafe",
    "query_id": "q",
    "task_id": None,
    "tool_name": "t",
    "args": {},
    "created_at": "now",
    "summary": "t",
    "result_path": "/tmp/x",
    "source_urls": [],
}


def test_the_fields_of_the_spec_suffice_s0_09() -> None:
    pointer = ContextPointer(**SPEC_FIELDS)
    assert (pointer.result_bytes, pointer.result_sha256, pointer.digest, pointer.args_sha256) == (
        None,
        None,
        "",
        None,
    )
    with pytest.raises(ValidationError):
        setattr(pointer, "summary", "other")  # noqa: B010 - the type checker knows that it is frozen


def test_defaults_are_not_shared_s0_09() -> None:
    required = {
        key: SPEC_FIELDS[key]
        for key in ("pointer_id", "query_id", "tool_name", "created_at", "summary")
    }
    first, second = (ContextPointer(**required, result_path="") for _ in range(2))
    assert first.args == {}
    assert all(one is not other for one, other in itertools.pairwise([first.args, second.args]))
