"""Go on with a conversation of Cline as an editor does, over the Agent Client Protocol.

On its command line, Cline goes on with one only in a terminal with a user.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def main(program: str, session: str, prompt: str) -> None:
    """Load a conversation, send the prompt, and wait for the end of the answer."""
    agent = subprocess.Popen(
        [program, "--acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    folder = str(Path.cwd())
    request(agent, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    request(agent, "session/load", {"sessionId": session, "cwd": folder, "mcpServers": []})
    text = {"type": "text", "text": prompt}
    request(agent, "session/prompt", {"sessionId": session, "prompt": [text]})
    agent.kill()
    agent.wait()


def request(agent: "subprocess.Popen[str]", method: str, params: dict[str, Any]) -> None:
    """Send a request and wait for its answer, and allow what the agent wants to do meanwhile."""
    send(agent, id=method, method=method, params=params)
    assert agent.stdout is not None
    for line in agent.stdout:
        message = json.loads(line)
        if message.get("id") == method:
            assert "error" not in message, message
            return
        if message.get("method") == "session/request_permission":
            option = message["params"]["options"][0]["optionId"]
            outcome = {"outcome": "selected", "optionId": option}
            send(agent, id=message["id"], result={"outcome": outcome})
    sys.exit(f"the agent ended before it answered {method}")


def send(agent: "subprocess.Popen[str]", **message: Any) -> None:
    assert agent.stdin is not None
    agent.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    agent.stdin.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
