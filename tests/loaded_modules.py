"""Tells which modules of the package a program loads, without a new process for each program."""

import json
import subprocess
import sys

_EACH_PROGRAM = """
import json, os, sys
import httpx, pydantic  # packages of others are loaded once for all programs

def child(program, scope):
    exec(program, scope)
    loaded = {}
    for name, module in sys.modules.items():
        if name.partition(".")[0] == "llm_common":
            loaded[name.removeprefix("llm_common.")] = module.__file__
    print(json.dumps(loaded), flush=True)

begin, programs = json.load(sys.stdin)
scope = {"__name__": "__main__"}
exec(begin, scope)
for program in programs:
    pid = os.fork()
    if not pid:
        child(program, scope)
        sys.exit()
    if os.waitpid(pid, 0)[1]:
        sys.exit(1)
"""


def loaded_by(*programs: str, begin: str = "") -> list[dict[str, str]]:
    """Return the modules that each program loads, as files by name without `llm_common.`.

    Each runs in a fork of a process that has run `begin`, and prints nothing.
    """
    ran = subprocess.run(
        [sys.executable, "-c", _EACH_PROGRAM],
        input=json.dumps([begin, programs]),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]
