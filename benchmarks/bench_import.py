"""How long `import llm_common.agents` takes beside `import pydantic, httpx`, its two largest dependencies.

Both are started in turn in fresh interpreters, so that a busy machine slows them alike; the medians are compared.
"""

import argparse
import resource
import statistics
import subprocess
import sys

PEER = "import pydantic, httpx"
OURS = "import llm_common.agents"
LIMIT = 1.6


def cpu_seconds(statement: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="interpreters of each kind (default 15)")
    rounds = parser.parse_args().rounds
    for statement in (PEER, OURS):
        cpu_seconds(statement)  # compiles and caches
    pairs = [(cpu_seconds(PEER), cpu_seconds(OURS)) for _ in range(rounds)]
    peer, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{PEER:<28} {peer * 1000:6.0f} ms CPU")
    print(f"{OURS:<28} {ours * 1000:6.0f} ms CPU   ratio {ours / peer:.2f} (limit {LIMIT})")
    if ours / peer > LIMIT:
        sys.exit(f"importing llm_common.agents takes more than {LIMIT} times its dependencies")


if __name__ == "__main__":
    main()
