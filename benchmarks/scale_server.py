"""A small MCP server on stdin and stdout, which starts in the time of a bare interpreter.

    python -S benchmarks/scale_server.py TOOLS.json

It reads its tools from the file at each listing, and after each call it announces a change of them.
"""

import json
import sys
from pathlib import Path
from typing import Any


def send(**message: Any) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(message: dict[str, Any], tools: Path) -> None:
    """Answer one request."""
    result: dict[str, Any] = {}
    match message["method"]:
        case "initialize":
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "scale", "version": "1"},
            }
        case "tools/list":
            result = {"tools": json.loads(tools.read_text(encoding="utf-8"))}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "done"}]}
    send(id=message["id"], result=result)
    if message["method"] == "tools/call":
        send(method="notifications/tools/list_changed")


def main() -> None:
    while line := sys.stdin.readline():
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer(message, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
