"""Tests the filling of arguments without a model."""

import time
from typing import Any

import pytest

from llm_common.selection.lexical_tools import filled_call
from llm_common.selection.results import DroppedCall
from llm_common.tools import ToolDefinition

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def fill(
    properties: dict[str, Any], *texts: str, required: list[str] | None = None, **context: Any
) -> dict[str, Any]:
    if required is None:
        required = list(properties)
    parameters = {"type": "object", "properties": properties, "required": required}
    tool = ToolDefinition("tool", "", parameters)
    call = filled_call(tool, texts, context, reasoning="")
    return {} if isinstance(call, DroppedCall) else call["args"]


MONEY = {"enum": ["USD", "EUR", "GBP"]}
FROM_TO = {"from_currency": MONEY, "to_currency": MONEY}
DATES = {"start_date": STRING, "end_date": STRING}
COPY = {"source_path": STRING, "target_path": STRING}


@pytest.mark.parametrize(
    ("properties", "text", "args"),
    [
        ({"unit": {"enum": ["metric", "imperial"]}}, "in Imperial units", {"unit": "imperial"}),
        ({"sort": {"enum": ["new", "newest_first"]}}, "the newest first", {"sort": "newest_first"}),
        ({"sort": {"enum": ["_id", "date"]}}, "sort them by _id", {"sort": "_id"}),
        ({"level": {"enum": [1, 2]}}, "at level 2", {"level": 2}),
        ({"mode": {"const": "fast"}}, "be fast", {"mode": "fast"}),
        ({"url": STRING}, "open https://a.example.", {"url": "https://a.example"}),
        ({"path": STRING}, "read src/app.py", {"path": "src/app.py"}),
        ({"source_path": STRING, "target_path": STRING}, "a.d/x.py to b.d/y.py", {}),
        ({"files": {"type": "array", "items": STRING}}, "join ab.txt and cd.txt", {}),
        (
            {"start": {"type": "string", "format": "date"}},
            "since 2031-05-02",
            {"start": "2031-05-02"},
        ),
        ({"limit": INTEGER}, "with limit 5", {"limit": 5}),
        ({"days": INTEGER}, "for 3 days", {"days": 3}),
        ({"side1": INTEGER, "side2": INTEGER}, "sides: 3 and 4", {}),
        ({"a": INTEGER, "b": INTEGER}, "only 7", {}),
        ({"ratio": {"type": "number"}}, "by 2.5", {"ratio": 2.5}),
        ({"limit": INTEGER}, "limit 5, then limit 6", {}),
        ({"level": {"enum": [-1, 1]}}, "at level 1", {"level": 1}),
        ({"genotype": {"enum": ["AA", "aa"]}}, "of AA", {}),
        ({"title": STRING}, 'called "My page"', {"title": "My page"}),
        ({"a": STRING, "b": STRING}, "'one' then 'two'", {}),
        ({"city": STRING}, "city: Paris", {"city": "Paris"}),
        ({"city": STRING}, "what is the weather in New York", {}),
        ({"city": STRING}, "from Ulm to Bonn", {}),
        ({"password": STRING}, "my friend Sam", {}),
        ({"query": STRING}, "Search the files for retry logic", {}),
        ({"q": STRING}, "search 'retry logic'", {"q": "retry logic"}),
        ({"q": STRING}, "'one' or 'two'", {}),
        (
            {"n": {"type": "integer", "default": 7}, "path": STRING},
            "aa.py",
            {"n": 7, "path": "aa.py"},
        ),
        (
            {"mail": {"type": "string", "format": "email"}},
            "to a@b.example",
            {"mail": "a@b.example"},
        ),
        ({"path": STRING}, "list ./run", {"path": "./run"}),
        ({"path": STRING}, "e.g. TCP/IP and 3.5 or so", {}),
        ({"count": INTEGER}, "of v2 on 2031-05-02 in a1.py", {}),
        ({"flag": {"type": "boolean"}, "data": {"type": "object"}}, "flag data", {}),
        ({"x": {"anyOf": [{"type": "null"}, INTEGER]}}, "take 4", {"x": 4}),
        # A value that fits two parameters is left out.
        (FROM_TO, "5 USD to EUR", {}),
        (FROM_TO, "USD", {}),
        (
            FROM_TO,
            "from currency: GBP, to_currency=USD",
            {"from_currency": "GBP", "to_currency": "USD"},
        ),
        ({"a": {"enum": [1, 2]}, "b": {"enum": [2, 1]}}, "a 2, b=1", {"a": 2, "b": 1}),
        (DATES, "2031-01-02 until 2031-03-04", {}),
        (
            DATES,
            "start_date: 2031-01-02, end_date: 2031-03-04",
            {"start_date": "2031-01-02", "end_date": "2031-03-04"},
        ),
        (COPY, "aa.txt, bb.txt", {}),
        ({"artist": STRING, "city": STRING}, "What does Coldplay play?", {}),
        ({"query": STRING, "topic": STRING}, "Find papers on gravity", {}),
        (
            {"name": STRING, "city": STRING},
            "name: John Doe, city: New York",
            {"name": "John Doe", "city": "New York"},
        ),
    ],
)
def test_the_only_possible_value_is_filled(
    properties: dict[str, Any], text: str, args: dict[str, Any]
) -> None:
    assert fill(properties, text) == args


FOUND = {"query": STRING, "limit": INTEGER, "title": STRING}
READ = {"path": STRING, "limit": INTEGER}


@pytest.mark.parametrize(
    ("properties", "required", "text", "args"),
    [
        # optional parameters are filled by name only
        (FOUND, [], 'find "x" 5', {}),
        (FOUND, [], "limit 5", {"limit": 5}),
        (FROM_TO, ["from_currency"], "USD", {}),
        # a request that states more than the arguments have is left out
        (READ, ["path"], "read aa.py", {"path": "aa.py"}),
        (READ, ["path"], "read aa.py and bb.py", {}),
        (READ, ["path"], "read aa.py for Ann", {}),
        (READ, ["path"], "read aa.py since 2031-05-02", {}),
        (READ, ["path"], "read aa.py 3 times", {}),
        (READ, ["path"], "read aa.py, but not now", {}),
        (READ, ["path"], "read aa.py with its limit", {}),
        (READ, ["path"], "read aa.py " + "slowly " * 300, {}),
    ],
)
def test_an_optional_argument_is_filled_by_its_name_only(
    properties: dict[str, Any], required: list[str], text: str, args: dict[str, Any]
) -> None:
    assert fill(properties, text, required=required) == args


@pytest.mark.parametrize(
    ("texts", "context", "path"),
    [
        (["read it", "read aa.py"], {"path": "from/context.py"}, "from/context.py"),
        (["nothing here", "read bb.py", "read cc.py"], {}, "bb.py"),
    ],
)
def test_the_context_wins_over_texts_and_earlier_texts_over_later(
    texts: list[str], context: dict[str, Any], path: str
) -> None:
    assert fill({"path": STRING}, *texts, **context) == {"path": path}


def test_a_call_names_the_required_arguments_without_a_value() -> None:
    properties = {"path": STRING, "first": INTEGER, "last": INTEGER}
    tool = ToolDefinition("read", "", {"properties": properties, "required": list(properties)})
    # The number could be of either.
    dropped = filled_call(tool, ["read aa.py 7"], None, reasoning="")
    assert isinstance(dropped, DroppedCall)
    paths = {problem.path for problem in dropped.problems}
    assert (dropped.reason, paths) == ("unfilled", {"first", "last"})


@pytest.mark.parametrize(
    "piece",
    [
        *["a", "a.", "-", "1,", "'", "http://", "a@a.", "A ", "/", "../", "1-", "“", "'a", " 'a"],
        *["x: ", " ", "x "],
    ],
)
def test_hostile_text_takes_no_time(piece: str) -> None:
    fields = {"enum": ["_id", "created_at"]}
    properties = {"x": STRING, "path": STRING, "limit": INTEGER, "sort": MONEY, "field": fields}
    started = time.thread_time()
    fill(properties, piece * 1_000_000)
    assert time.thread_time() - started < 0.5
