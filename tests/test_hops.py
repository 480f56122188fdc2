"""How many files a reader has to open to follow one call."""

import json
import subprocess
import sys
from pathlib import Path

MAX_FILES = {
    "save": 12,
    "save of the same call again": 12,
    "list": 7,
    "load": 6,
    "select outputs, HTTP": 17,
    "run": 47,
    "run, HTTP": 53,
    "hook: offload a result": 38,  # with the trace of the session, and the look for a repeated call
    # with the config, rules, values, plan and fill of its note, references, and the overview
    "hook: fold 200 messages": 26,
    "gateway: preview a result": 40,
    "pack an output and turns": 41,  # with the records of the output
    "pack a folder": 23,  # with the sentences, the named definitions, and the text around the files
}


def test_a_call_can_be_followed_through_few_files() -> None:
    # A process of its own, because what other tests leave behind in this one would be entered too.
    walks = subprocess.run(
        [sys.executable, "-m", "tools.hops", "--json"],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        check=True,
    ).stdout
    entered = {walk["name"]: [*walk["entered"]] for walk in json.loads(walks)}
    too_far = {
        name: (len(entered[name]), entered[name])
        for name, most in MAX_FILES.items()
        if len(entered[name]) > most
    }
    assert not too_far
