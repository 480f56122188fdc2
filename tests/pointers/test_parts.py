"""Views: the same answer beside the caller and in a process apart."""

import json
from functools import partial
from typing import Any

import pytest

from llm_common.errors import ToolArgumentsError
from llm_common.pointers.parts import value_at, view_of
from llm_common.pointers.store import InMemoryContextPointerStore
from llm_common.tools.read_back import read_context

VALUE = {"log": "start\nerror 1\x07\u2028 here\nerror 2\nend", "rows": [{"id": 1, "ok": True}, {"id": 2, "ok": False}]}

AROUND = "start error 1   here error 2 end"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            {"path": "/log", "regex": r"error \d"},
            "\n".join(["matches: 2", "chars 6-13 line 2: " + AROUND, "chars 21-28 line 3: " + AROUND]),
        ),
        ({"path": "/log", "regex": "^error", "lines": [3, 3]}, "matches: 1\nchars 21-26 line 3: error 2 "),
        ({"filter": "rows[?ok].id"}, "[1]"),
        ({"filter": "rows[1]", "keys": True}, '{"object":2,"members":{"id":"number","ok":"boolean"}}'),
        ({"filter": "join(', ', rows[].to_string(id))", "chars": [0, 1]}, "1"),
    ],
    ids=["S4-08-regex", "S4-08-regex-in-lines", "S4-08-filter", "S4-08-keys-of-a-filter", "S4-08-text-of-a-filter"],
)
async def test_a_view_is_the_same_here_and_apart(part: dict[str, Any], expected: str) -> None:
    assert view_of(json.dumps(VALUE).encode(), part).text == expected
    store = InMemoryContextPointerStore()
    pointer = await store.save(query_id="q", task_id=None, tool_name="t", args={}, result=VALUE)
    reading = await read_context(pointer.pointer_id, load=partial(store.load_payload, query_id="q"), select=part)
    assert reading.text == expected


@pytest.mark.parametrize("part", [{"regex": "["}, {"filter": "rows["}], ids=["S4-08-regex", "S4-08-filter"])
async def test_a_mistake_is_told_alike(part: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"regex is not valid|no JMESPath") as here:
        view_of(b"{}", part)
    store = InMemoryContextPointerStore()
    pointer = await store.save(query_id="q", task_id=None, tool_name="t", args={}, result={})
    with pytest.raises(ToolArgumentsError) as apart:
        await read_context(pointer.pointer_id, load=partial(store.load_payload, query_id="q"), select=part)
    assert str(apart.value) == str(here.value)


# The examples of RFC 6901, section 5.
RFC_6901 = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *[("", RFC_6901), ("/foo", ["bar", "baz"]), ("/foo/0", "bar"), ("/", 0), ("/a~1b", 1), ("/c%d", 2)],
        *[("/e^f", 3), ("/g|h", 4), ("/i\\j", 5), ('/k"l', 6), ("/ ", 7), ("/m~0n", 8)],
    ],
)
def test_paths_are_json_pointers_s4_08(path: str, expected: object) -> None:
    assert value_at(RFC_6901, path) == expected
