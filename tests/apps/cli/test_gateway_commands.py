"""`llm-common gateway` before it serves. `tests/apps/gateway` tests the serving."""

import json
import sys
from pathlib import Path

import pytest

from tests.apps.cli.running import run, run_json

HOSTILE_SERVER = str(Path(__file__).parents[1] / "gateway" / "hostile_server.py")
HOSTILE = "x\x1b]0;title\x07\x9b2J\u202eevil\u2066\ndefinitions: none"


@pytest.mark.parametrize("command", [[], ["doctor"]])
def test_a_missing_configuration_is_asked_for(command: list[str]) -> None:
    message = run("gateway", *command, code=2).stderr
    assert "Add --config FILE with them" in message.replace("\n", " ")


def configuration(folder: Path, **servers: list[str]) -> Path:
    """Write a configuration with a command line for each server."""
    entries = {
        name: {"command": command, "args": args} for name, (command, *args) in servers.items()
    }
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    return path


def test_doctor_reports_a_healthy_server_and_those_that_cannot_start(tmp_path: Path) -> None:
    healthy = [sys.executable, "-S", HOSTILE_SERVER]
    absent, broken = ["./no-such-program"], ["${NOT_SET_ANYWHERE}"]
    config = configuration(tmp_path, good=healthy, absent=absent, broken=broken)
    document = run_json("gateway doctor", "-c", config, code=1)
    servers = {server["name"]: server for server in document["servers"]}
    assert [server["tools"] for server in servers.values()] == [1, 0, 0]
    assert servers["good"]["problem"] == ""
    assert (
        "does not start (FileNotFoundError: its program or folder cannot be used"
        in servers["absent"]["problem"]
    )
    assert "needs the variable NOT_SET_ANYWHERE" in servers["broken"]["problem"]
    output = run("gateway", "doctor", "-c", configuration(tmp_path, good=healthy)).stdout
    assert output.startswith("checked\n  good: 1 tools\n  listed: ")


# The second server lists some tools twice, with which the command ends with 1.
@pytest.mark.parametrize(("case", "code"), [("", 0), ("thousands of tools", 1)])
def test_doctor_says_what_the_list_costs_or_saves(case: str, code: int, tmp_path: Path) -> None:
    config = configuration(tmp_path, good=[sys.executable, "-S", HOSTILE_SERVER, case])
    report = run_json("gateway doctor", "-c", config, code=code)
    difference = report["tokens_listed"] - report["tokens_of_all"]
    assert report["searched"] == (difference < 0) == bool(case)
    compared = f"{-difference:,} under" if case else f"+{difference:,} over"
    line = (
        f"  listed: {report['tokens_listed']:,} tokens, {compared} the servers' own "
        f"{report['tokens_of_all']:,}; with --tools {'all' if case else 'search'} "
        f"{report['tokens_otherwise']:,}\n"
    )
    assert run("gateway", "doctor", "-c", config, code=code).stdout.endswith(line)


def test_doctor_names_the_rules_that_match_no_tool(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": ["-S", HOSTILE_SERVER]}
    path = tmp_path / "mcp.json"
    entry = {**server, "llmCommon": {"deny": ["drop_table", "nothing*"], "pinned": ["ok"]}}
    path.write_text(json.dumps({"mcpServers": {"good": entry}}), encoding="utf-8")
    output = run("gateway", "doctor", "-c", path).stdout
    assert "  the rule deny drop_table of good matches no tool\n" in output
    assert "pin ok" not in output
    # While a server has not listed its tools, nothing is known.
    absent = {"command": "./no-such-program"}
    path.write_text(json.dumps({"mcpServers": {"good": entry, "absent": absent}}), encoding="utf-8")
    assert "matches no tool" not in run("gateway", "doctor", "-c", path, code=1).stdout


def test_names_and_problems_of_servers_and_tools_are_inert(tmp_path: Path) -> None:
    odd = [sys.executable, "-S", HOSTILE_SERVER, "an unusable tool with control characters"]
    config = configuration(tmp_path, **{HOSTILE: ["./no-such-program"], f"s{HOSTILE}": odd})
    output = run("gateway", "doctor", "-c", config, code=1).stdout
    assert "left out: " in output
    assert "does not start" in output
    printed = run("gateway", "doctor", "-c", config, "--json", code=1).stdout
    for text in (output, printed):
        assert not set(text) & set("\x1b\x07\x9b\u202e\u2066")
    assert [server["name"] for server in json.loads(printed)["servers"]] == [HOSTILE, f"s{HOSTILE}"]


def test_a_busy_port_is_reported_and_ends_with_2(tmp_path: Path, busy_port: str) -> None:
    config = configuration(tmp_path, absent=["./no-such-program"])
    message = run("gateway", "-c", config, "--memory-only", "--http", busy_port, code=2).stderr
    assert f"port {busy_port} cannot be used" in message
    assert "choose another one, or 0 for a free one" in message
