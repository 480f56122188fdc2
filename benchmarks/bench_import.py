"""How long importing from llm_common.agents takes beside its two largest dependencies.

All are started in turn in fresh interpreters, so that a busy machine slows them alike; the quickest
runs are compared. `llm_common.agents` imports a name's module when the name is asked for, so what
applications import from it is measured: the store alone, the six names that the specification of
pointers lists, a session, and the executor. The limit holds for all but the executor.
"""

import argparse
import resource
import subprocess
import sys

PEER = "import pydantic, httpx"
CARD = (
    "from llm_common.agents import ContextPointer, FileContextPointerStore, "
    "ContextRelevanceSelector, ToolSelector, ToolSelectionConfig, format_selected_contexts"
)
OURS = (
    "import llm_common.agents",
    "from llm_common.agents import FileContextPointerStore",
    CARD,
    "from llm_common.agents import Session",
    "from llm_common.agents import AgenticExecutor, ToolContextManager, ToolRegistry",
)
LIMIT = 2.0
SESSION_LIMIT = 1.9


def cpu_seconds(statement: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=15, help="interpreters of each kind (default 15)"
    )
    rounds = parser.parse_args().rounds
    for statement in (PEER, *OURS):
        cpu_seconds(statement)  # compiles and caches
    runs = [[cpu_seconds(statement) for statement in (PEER, *OURS)] for _ in range(rounds)]
    peer, *ours = (min(column) for column in zip(*runs, strict=True))
    print(f"{peer * 1000:6.0f} ms CPU              {PEER}")
    for statement, seconds in zip(OURS, ours, strict=True):
        print(f"{seconds * 1000:6.0f} ms CPU  ratio {seconds / peer:4.2f}  {statement}")
    if max(ours[:3]) / peer > LIMIT:
        sys.exit(f"importing llm_common.agents takes more than {LIMIT} times its dependencies")
    if ours[3] / peer > SESSION_LIMIT:
        sys.exit(f"importing Session takes more than {SESSION_LIMIT} times its dependencies")


if __name__ == "__main__":
    main()
