"""Print the branch coverage of each package, and fail if one is under the least.

    python tools/package_coverage.py .coverage-packages.json

Run by `make coverage` with what `coverage json` writes. A mean over everything hides a package
that no test runs. So each folder of `llm_common` has a line, and so has each application.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

# Every package was over 90 % when this was written.
LEAST = 0.85


@dataclass
class Coverage:
    """Lines and branches of a package, and how many of them the tests ran."""

    run: int = 0
    all: int = 0

    @property
    def share(self) -> float:
        return self.run / self.all if self.all else 1.0


def package_of(path: PurePath) -> str:
    """Return the package of a module: `pointers`, `apps/gateway`, or `.` for a module of none."""
    folders = path.parts[path.parts.index("llm_common") + 1 : -1]
    depth = 2 if folders[:1] == ("apps",) else 1
    return "/".join(folders[:depth]) or "."


def coverage_by_package(summaries: Mapping[str, Mapping[str, int]]) -> dict[str, Coverage]:
    """Return the coverage of each package.

    Args:
        summaries: By path of a module, what coverage's JSON says in `summary`.
    """
    packages: defaultdict[str, Coverage] = defaultdict(Coverage)
    for path, summary in summaries.items():
        package = packages[package_of(PurePath(path))]
        package.run += summary["covered_lines"] + summary["covered_branches"]
        package.all += summary["num_statements"] + summary["num_branches"]
    return dict(packages)


def main(report: Path) -> None:
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    packages = coverage_by_package({path: entry["summary"] for path, entry in files.items()})
    if not packages:
        sys.exit(f"{report} has no module of llm_common")
    for name, package in sorted(packages.items()):
        print(f"{package.share:6.1%}  {name}")
    under = sorted(name for name, package in packages.items() if package.share < LEAST)
    if under:
        sys.exit(f"under {LEAST:.0%}: {', '.join(under)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
