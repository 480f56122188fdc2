"""Write what the tests of a framework showed into `docs/frameworks.md`.

`make test-integrations` runs this module for each framework whose tests passed.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from tests.integrations.programs.checks import REPORT

FOLDER: Final = Path(__file__).parent
PAGE: Final = FOLDER.parents[1] / "docs" / "frameworks.md"
_START, _END = "<!-- frameworks: start -->\n", "<!-- frameworks: end -->"

HEAD: Final = """\
| Page | tested with | through | promises of the program | longest request | tools shown |
|---|---|---|---|---|---|
"""
HOOKS: Final = {
    "langchain": "LangChain",
    "openai_agents": "OpenAI Agents SDK",
    "pydantic_ai": "pydantic-ai",
    "strands": "Strands",
    "haystack": "Haystack",
    "google_adk": "Google ADK",
    "agno": "Agno",
}
FUNCTIONS: Final = {
    "llamaindex": "LlamaIndex",
    "crewai": "CrewAI",
    "smolagents": "smolagents",
    "agent_framework": "Microsoft Agent Framework",
    "claude_agent_sdk": "Claude Agent SDK",
}
LOOPS: Final = {"plain_loops": "OpenAI's client", "anthropic_loop": "Anthropic's client"}


def pins() -> dict[str, str]:
    """Return the package and version that the tests of each page install."""
    versions: dict[str, str] = {}
    for name in HOOKS | FUNCTIONS | LOOPS:
        first, *_ = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        versions[name] = first.replace("==", " ")
    return versions


def rows_of(page: str) -> dict[str, str]:
    """Return the rows of the table by the name of the page that they link to."""
    table = page.partition(_START)[2].partition(_END)[0]
    rows: dict[str, str] = {}
    for line in table.splitlines():
        linked = re.search(r"\]\(integrations/(\w+)\.md\)", line)
        if linked:
            rows[linked[1]] = line
    return rows


def row(name: str, measured: dict[str, Any] | None) -> str:
    """Return the row of a framework, with what its program showed if it has one."""
    title = (HOOKS | FUNCTIONS | LOOPS)[name]
    cells = [f"[{title}](integrations/{name}.md)", pins()[name]]
    if name in HOOKS:
        cells.append("a hook")
    else:
        cells.append("a session" if name in LOOPS else "functions")
    if measured is None:
        cells += ["", "", ""]
    else:
        holds = measured["holds"]
        cells.append(f"{sum(holds.values())} of {len(holds)}")
        # In thousands, because ids and paths differ between runs.
        cells += [f"{round(measured['largest'], -3):,} characters", str(measured["shown"])]
    return f"| {' | '.join(cells)} |"


def with_row(page: str, name: str, line: str) -> str:
    """Return the page with another row for a framework."""
    before, start, rest = page.partition(_START)
    _, end, after = rest.partition(_END)
    rows = rows_of(page) | {name: line}
    lines = [rows[known] for known in HOOKS | FUNCTIONS | LOOPS if known in rows]
    return "".join([before, start, HEAD, *(f"{line}\n" for line in lines), end, after])


def write(name: str) -> None:
    """Write the row of a framework whose tests passed. Other tests have no row."""
    if name not in HOOKS | FUNCTIONS | LOOPS:
        return
    measured = json.loads(REPORT.read_text(encoding="utf-8")) if REPORT.exists() else None
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_row(page, name, row(name, measured)), encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1])
