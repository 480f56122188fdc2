"""Run a server of an older protocol that asks for roots at its start and holds its calls to them."""

import json
import os
import sys
import threading
import time
from typing import Any

ROOTS: list[str] = ["the command line's folder"]
ABLE: list[bool] = []
ABOUT = {
    "capabilities": {"tools": {}, "resources": {}},
    "serverInfo": {"name": "roots", "version": "1"},
}
LISTS = {
    "tools/list": {"tools": [{"name": "roots", "inputSchema": {"type": "object"}}]},
    "resources/list": {"resources": [{"uri": "roots://all", "name": "all"}]},
}
lock = threading.Lock()


def say(**message: Any) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def apply(roots: list[str]) -> None:
    """Take the roots over, which takes this server a moment, as it takes real ones."""
    time.sleep(0.03)
    ROOTS[:] = roots


def main() -> None:  # noqa: C901 - one case for each method
    for line in sys.stdin:
        message = json.loads(line)
        id_, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "initialize":
                ABLE.append("roots" in params["capabilities"])
                say(id=id_, result={"protocolVersion": params["protocolVersion"], **ABOUT})
            case "notifications/initialized" | "notifications/roots/list_changed":
                if ABLE[0]:
                    say(id="roots", method="roots/list")
            case "tools/list" | "resources/list" as method:
                say(id=id_, result=LISTS[method])
            case "tools/call" if params["arguments"].get("end"):
                os._exit(1)
            case "tools/call":
                say(id=id_, result={"content": [{"type": "text", "text": json.dumps(ROOTS)}]})
            case "resources/read":
                contents = [{"uri": params["uri"], "text": json.dumps(ROOTS)}]
                say(id=id_, result={"contents": contents})
            case None if id_ == "roots" and "result" in message:
                roots = [root["uri"] for root in message["result"]["roots"]]
                threading.Thread(target=apply, args=[roots]).start()
            case method if method and id_ is not None:
                say(id=id_, error={"code": -32_601, "message": "no such method"})


main()
