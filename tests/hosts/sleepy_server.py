"""A server that does not list its tools any more, once the file of its argument exists."""

import json
import sys
from pathlib import Path
from typing import Any

ASLEEP = Path(sys.argv[1])
TOOL = {"name": "wake_up", "description": "Does nothing.", "inputSchema": {"type": "object"}}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    if request["method"] == "initialize":
        return {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "sleepy", "version": "1"},
        }
    if request["method"] == "tools/list":
        return {"tools": [TOOL]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    is_asleep = message.get("method") == "tools/list" and ASLEEP.exists()
    if "id" in message and not is_asleep:
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "server/discover":  # the question of a newer protocol
            reply["error"] = {"code": -32601, "message": "Method not found"}
        else:
            reply["result"] = answer(message)
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()
