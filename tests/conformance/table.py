"""Write what the suites counted into `docs/gateway/tools.md`. `make test-conformance` runs this module."""

from collections.abc import Mapping

from benchmarks.store_table import replace_between_markers
from tests.conformance.differences import DIFFERENCES
from tests.conformance.suites import CLIENTS, ROOT, SUITES, WAYS, Check, saved, version_of


def table() -> str:
    """Return the passed checks of each suite by the way to the server, as Markdown."""
    lines = [f"| Suite | {' | '.join(WAYS)} |", "|---|" + "---|" * len(WAYS)]
    for suite in SUITES:
        runs = [saved(f"{suite.name}, {way}") for way in WAYS]
        total = len(judged(runs[0]))
        counts = " | ".join(f"{judged(run).count('SUCCESS')} of {total}" for run in runs)
        lines.append(f"| {suite.name} ({version_of(suite.package)}) | {counts} |")
    lines += ["", "| Suite for clients | client of the SDK | gateway |", "|---|---|---|"]
    for package in dict.fromkeys(suite.package for suite in SUITES):
        runs = [saved(f"{package}, client, {way}") for way in CLIENTS]
        # A host with a gateway lists the tools more often, so that some checks run more often.
        counts = " | ".join(whole_scenarios(run) for run in runs)
        lines.append(f"| {version_of(package)} | {counts} |")
    reasons: dict[str, set[str]] = {}
    for (scenario, _), reason in DIFFERENCES.items():
        reasons.setdefault(reason, set()).add(scenario)
    for reason, scenarios in reasons.items():
        lines += ["", f"Named differences: {', '.join(sorted(scenarios))} ({reason})."]
    return "\n".join(lines)


def judged(run: Mapping[Check, str]) -> list[str]:
    """Return the statuses of a run, without warnings."""
    return [status for status in run.values() if status != "WARNING"]


def whole_scenarios(run: Mapping[Check, str]) -> str:
    """Return how many scenarios have no failed check."""
    scenarios = {scenario for scenario, _, _ in run}
    failed = {scenario for (scenario, _, _), status in run.items() if status == "FAILURE"}
    return f"{len(scenarios - failed)} of {len(scenarios)} scenarios"


if __name__ == "__main__":
    replace_between_markers(ROOT / "docs" / "gateway" / "tools.md", "conformance", table())
