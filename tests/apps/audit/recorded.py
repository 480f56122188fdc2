"""Writes sessions as Claude Code, Codex, and an application with chat completions record them."""

import json
from pathlib import Path
from typing import Any

RULE = "From now on never commit to the branch main."
TASK = "Please look why order INV-2231 of src/orders/load.py is late."
SUMMARY = "The user asked about a late order. The files were read."
LISTING = "src/orders/load.py\nsrc/orders/save.py"
SECRET = "sk-proj-" + "a1B2" * 12

Line = dict[str, Any]


def write(path: Path, lines: list[Line]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def claude_code() -> list[Line]:
    """Return the lines of a session: a call before a compaction, and two behind it."""
    boundary = {"type": "system", "subtype": "compact_boundary", "compactMetadata": {}}
    return [
        {"type": "mode", "mode": "normal", "sessionId": "s"},
        _claude("user", f"{RULE} {TASK}"),
        _claude("user", "<system-reminder>Always answer in verse.</system-reminder>"),
        _claude("assistant", [{"type": "text", "text": "I look."}], id="m1"),
        _claude("assistant", [_use("c1", "Glob", {"pattern": "src/**"})], id="m1"),
        _claude("user", [_result("c1", LISTING)], toolUseResult={"filenames": [LISTING]}),
        _claude("assistant", [{"type": "text", "text": "A sub-agent's."}], isSidechain=True),
        boundary,
        _claude("user", SUMMARY, isCompactSummary=True),
        _claude("assistant", [_use("c2", "Glob", {"pattern": "src/**"})], id="m2"),
        _claude("user", [_result("c2", LISTING)]),
        _claude("assistant", [_use("c3", "Edit", {"path": "src/orders/load.py"})], id="m3"),
        _claude("user", [_result("c3", "ok")]),
    ]


def _claude(role: str, content: Any, *, id: str = "", **fields: Any) -> Line:  # noqa: A002
    message = {"role": role, "content": content}
    if id:
        message["id"] = id
    return {"type": role, "sessionId": "s", "uuid": f"u{content}", "message": message, **fields}


def _use(call_id: str, name: str, args: Line) -> Line:
    return {"type": "tool_use", "id": call_id, "name": name, "input": args}


def _result(call_id: str, text: str) -> Line:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text}


def codex() -> list[Line]:
    """Return the lines of the same session as a rollout."""
    environment = "<environment_context>\n<cwd>/repo</cwd>\n</environment_context>"
    kept = [_said("user", TASK), _said("user", SUMMARY)]
    return [
        _line("session_meta", {"id": "s", "base_instructions": {"text": "You are a coder."}}),
        _line("response_item", _said("user", environment)),
        _line("response_item", _said("user", f"{RULE} {TASK}")),
        _line("event_msg", {"type": "user_message", "message": f"{RULE} {TASK}"}),
        _line("response_item", _called("c1", "shell", {"command": ["ls", "src"]})),
        _line("response_item", _returned("c1", LISTING)),
        _line("response_item", {"type": "reasoning", "encrypted_content": "x"}),
        _line("compacted", {"message": SUMMARY, "replacement_history": kept}),
        _line("response_item", _called("c2", "shell", {"command": ["ls", "src"]})),
        _line("response_item", _returned("c2", LISTING)),
        _line("response_item", _called("c3", "edit", {"path": "src/orders/save.py"})),
        _line("response_item", _returned("c3", "ok")),
    ]


def _line(kind: str, payload: Line) -> Line:
    return {"timestamp": "2026-11-01T10:00:00Z", "type": kind, "payload": payload}


def _said(role: str, text: str) -> Line:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def _called(call_id: str, name: str, args: Line) -> Line:
    fields = {"name": name, "arguments": json.dumps(args), "call_id": call_id}
    return {"type": "function_call", **fields}


def _returned(call_id: str, text: str) -> Line:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def requests() -> list[Line]:
    """Return the same session as requests of chat completions, each with its whole prompt."""
    system = {"role": "system", "content": "You are a coder."}
    first = [system, {"role": "user", "content": f"{RULE} {TASK}"}]
    second = [*first, _chat_call("c1", {"path": "src"}), _chat_output("c1", LISTING)]
    compacted = [system, {"role": "user", "content": SUMMARY}, *second[2:]]
    edit = _chat_call("c2", {"path": "src/orders/load.py", "order": "INV-2231"})
    last = [*compacted, edit, _chat_output("c2", "ok")]
    return [{"messages": messages} for messages in (first, second, compacted, last)]


def _chat_call(call_id: str, args: Line) -> Line:
    function = {"name": "list_files", "arguments": json.dumps(args)}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _chat_output(call_id: str, text: str) -> Line:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def documented() -> list[Line]:
    """Return the session of the documentation's page: long outputs, and what a summary left out."""
    log = "\n".join(f"tests/test_{n}.py::test_order_{n} PASSED in {n}.5 s" for n in range(200))
    failed = "tests/test_refund.py FAILED: the refund of ORD-88213 is 118.95, expected 118.90"
    source = "\n".join(f"def refund_{n}(order: Order) -> Money: ..." for n in range(150))
    reading = _use("c2", "Read", {"file_path": "src/refunds/money.py"})
    return [
        _claude("user", "Never push to main. Amounts are in Swiss francs from now on."),
        _claude("user", "Please mend the failing test."),
        _claude("assistant", [_use("c1", "Bash", {"command": "make test"})]),
        _claude("user", [_result("c1", f"{log}\n{failed}")]),
        _claude("assistant", [reading]),
        _claude("user", [_result("c2", source)]),
        _claude("assistant", [{"type": "text", "text": "The rounding in refund_7 is wrong."}]),
        {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"trigger": "auto"}},
        _claude(
            "user", "The agent mends a test. Amounts are in Swiss francs.", isCompactSummary=True
        ),
        _claude("user", "Go on."),
        _claude("assistant", [{**reading, "id": "c3"}]),
        _claude("user", [_result("c3", source)]),
        _claude("assistant", [_use("c4", "Bash", {"command": "make refund ORDER=ORD-88213"})]),
        _claude("user", [_result("c4", "118.90")]),
        _claude("assistant", [{"type": "text", "text": "It passes."}]),
    ]
