"""Lists odd replies of models, by the id of their row in the contract.

One text answers both selectors, since each ignores the other's key. `SOUND` has one candidate and
one call.
"""

import json
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ODD_REPLIES", "OTHER", "SOUND", "SOUND_CALL", "SOUND_ID", "OddReply"]

SOUND_ID, OTHER = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
SOUND_CALL = {"tool": "get_weather", "args": {"city": "Ulm"}}
BOTH = frozenset({"pointers", "tools"})


def _answer(ids: object, calls: object, **more: object) -> str:
    return json.dumps({"pointer_ids": ids, "calls": calls, **more})


SOUND = _answer([SOUND_ID], [SOUND_CALL])
ANOTHER = _answer([OTHER], [{"tool": "search_web", "args": {"query": "x"}}])


@dataclass(frozen=True)
class OddReply:
    """The message of a reply, and its finish reason.

    Attributes:
        read_by: The selectors that read the sound choice from it.
        more: Further fields of the message.
    """

    content: Any = None
    read_by: frozenset[str] = frozenset()
    finish_reason: str = "stop"
    more: dict[str, Any] = field(default_factory=dict)

    def body(self) -> bytes:
        message = {"role": "assistant", "content": self.content, **self.more}
        return json.dumps(
            {
                "id": "r",
                "model": "test-model",
                "choices": [{"index": 0, "finish_reason": self.finish_reason, "message": message}],
                "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
            }
        ).encode()


def _native(arguments: str) -> dict[str, Any]:
    return {
        "tool_calls": [
            {
                "id": "c",
                "type": "function",
                "function": {"name": "get_weather", "arguments": arguments},
            }
        ]
    }


def _legacy(arguments: str) -> dict[str, Any]:
    return {"function_call": {"name": "get_weather", "arguments": arguments}}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _unusable() -> dict[str, OddReply]:
    contents: dict[str, Any] = {
        "F-073-empty": "",
        "F-073-blank": " \n\t",
        "F-073-bom": "\ufeff",
        "F-074": None,
        "F-082": "```json\n```",
        "F-083": f"{SOUND}\n{ANOTHER}",
        "F-086": f"<think>perhaps {SOUND}",
        "F-089-words": "I'm sorry, but I can't help with that.",
        "F-090": '{"pointer_ids":[],"calls":[],"calls":[],"pointer_ids":[]}',
        "F-091-nan": SOUND[:-1] + ',"score":NaN}',
        "F-091-infinity": SOUND[:-1] + ',"score":-Infinity}',
        "F-092-lists": "[" * 100_000,
        "F-092-inside": SOUND[:-1] + ',"n":' + "[" * 100_000 + "]" * 100_000 + "}",
        "F-093": _answer([SOUND_ID], [SOUND_CALL], why="x" * 2_000_000),
        "F-094": SOUND[:-1] + ',"n":' + "9" * 5_000 + "}",
        "F-095-quotes": SOUND.replace('"', "'"),
        "F-095-comma": SOUND[:-1] + ",}",
        "F-095-comment": SOUND[:-1] + "/* best */}",
        "F-096-twice": json.dumps(json.dumps(SOUND)),
        "F-097-empty": "{}",
        "F-097-key": json.dumps({"ids": [SOUND_ID], "tools": [SOUND_CALL]}),
        "F-097-null": _answer(None, None),
        "F-097-object": _answer({"0": SOUND_ID}, SOUND_CALL),
        "F-099": _answer(["cccccccccccc"], [{"tool": "delete_everything", "args": {}}]),
        "F-100-star": _answer(["*"], ["*"]),
        "F-100-all": _answer(["all"], [{"tool": "all", "args": {}}]),
        "F-100-word": _answer("all", "all"),
        "F-101-numbers": _answer([0, 1], [0, 1]),
        "F-101-texts": _answer(["0", "1"], ["0", "1"]),
        "F-101-list": json.dumps([SOUND_ID]),
        "F-102-args": _answer([], None) + _answer(None, [{"tool": "get_weather", "args": None}]),
        "F-105": _answer(["x"], [{"tool": "rm", "args": {"path": "/"}}]),
        "F-106": json.dumps({"__proto__": json.loads(SOUND), "__class__": "list"}),
    }
    return {row: OddReply(content) for row, content in contents.items()} | {
        "F-077-cut": OddReply(more=_native('{"city":"Ul'), finish_reason="tool_calls"),
        "F-078-cut": OddReply(more=_legacy('{"city":"Ul')),
        "F-088": OddReply(SOUND, finish_reason="length"),
        "F-089-filter": OddReply(SOUND, finish_reason="content_filter"),
        "F-089-refusal": OddReply(more={"refusal": "no"}),
    }


def _readable() -> dict[str, OddReply]:
    contents: dict[str, Any] = {
        "F-075": [_text(SOUND[:9]), _text(SOUND[9:])],
        "F-076": [{"type": "image_url", "image_url": {"url": "x"}}, _text(SOUND), {"type": "?"}],
        "F-079-json": f"```json\n{SOUND}\n```",
        "F-079-bare": f"```\n{SOUND}\n```",
        "F-079-upper": f"```JSON\n{SOUND}\n```",
        "F-079-tildes": f"~~~\n{SOUND}\n~~~",
        "F-080": f"Here you go:\n```json\n{SOUND}\n```\nAnything else?",
        "F-081": f"```json\n{_answer([SOUND_ID], [SOUND_CALL], why='it says ```x``` there')}\n```",
        "F-084": f"{SOUND}\n{SOUND}",
        "F-085": f"<think>{ANOTHER}</think>\n{SOUND}",
        "F-096": json.dumps(SOUND),
        "F-098-mixed": _answer(
            ["zz", f" {SOUND_ID.upper()} ", SOUND_ID, 7, [SOUND_ID], None, True, {"id": OTHER}],
            [
                {"tool": "zz", "args": {}},
                {**SOUND_CALL, "tool": " Get_Weather "},
                SOUND_CALL,
                7,
                [SOUND_CALL],
                None,
            ],
        ),
        "F-098-many": _answer(
            [*(f"{number:012x}" for number in range(10_000)), SOUND_ID], [SOUND_CALL]
        ),
        "F-099-beside": _answer(
            ["cccccccccccc", SOUND_ID], [{"tool": "delete_everything", "args": {}}, SOUND_CALL]
        ),
        "F-102-beside": _answer(
            [SOUND_ID],
            [{"tool": "get_weather"}, {"tool": "get_weather", "args": {"city": 5}}, SOUND_CALL],
        ),
        "F-103": _answer([SOUND_ID] * 10_000, [SOUND_CALL] * 10_000),
        "F-104": _answer([SOUND_ID], [{**SOUND_CALL, "reasoning": "sk-SECRET in /etc/passwd"}]),
        "F-106-beside": _answer(
            ["__class__", SOUND_ID], [{"tool": "__class__", "args": {}}, SOUND_CALL], __proto__={}
        ),
    }
    tools = frozenset({"tools"})
    return {row: OddReply(content, BOTH) for row, content in contents.items()} | {
        "F-077": OddReply(
            more=_native('{"city":"Ulm"}'), read_by=tools, finish_reason="tool_calls"
        ),
        "F-078": OddReply(more=_legacy('{"city":"Ulm"}'), read_by=tools),
    }


ODD_REPLIES = _unusable() | _readable()
