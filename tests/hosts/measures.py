"""Keep what the tours measured, and print it as the table of docs/gateway/hosts.md.

`make test-hosts` runs this module after the tests.
"""

import json
from pathlib import Path

from tests.hosts.real_hosts import HOSTS, REAL_HOSTS, RealHost
from tests.hosts.tours import WAYS, Tour, request_tokens, tokens_of

MEASURES = HOSTS / "measures"


def write_measures(host: RealHost, way: str, tour: Tour) -> None:
    """Write the tokens of a tour's first request and of its long result."""
    measures = {"request": request_tokens(tour.first_requests[0])}
    if "log" in tour.results:
        measures["log"] = tokens_of(tour.text("log"))
    MEASURES.mkdir(exist_ok=True)
    _file_of(host, way).write_text(json.dumps(measures), encoding="utf-8")


def table() -> str:
    """Return the tokens by host, as Markdown."""
    lines = [
        "| Host | Tools in the first request: direct, gateway, search | A long log: direct, gateway |",
        "|---|---|---|",
    ]
    for host in REAL_HOSTS:
        files = {way: _file_of(host, way) for way in WAYS}
        if not all(file.exists() for file in files.values()):
            continue
        measures = {way: json.loads(file.read_text()) for way, file in files.items()}
        own = measures["none"]["request"]
        tools = ", ".join(
            f"{measures[way]['request'] - own:,}" for way in ("direct", "gateway", "search")
        )
        logs = ", ".join(f"{measures[way]['log']:,}" for way in ("direct", "gateway"))
        lines.append(f"| {host.name} {host.version} | {tools} | {logs} |")
    return "\n".join(lines)


def _file_of(host: RealHost, way: str) -> Path:
    return MEASURES / f"{host.name}-{way}.json"


if __name__ == "__main__":
    print(table())  # noqa: T201 - what the module is for
