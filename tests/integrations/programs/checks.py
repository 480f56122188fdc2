"""Run a program in two processes, and check what its users and its model see."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.integrations.programs.desk import ORDERS, code_of
from tests.integrations.programs.script import STRANGER, USERS, Player, Prompt, ask
from tests.integrations.scripted_endpoint import Serve

REPORT: Final = Path(sys.prefix) / "program.json"
"""What the last run showed, in the environment of the framework."""

MAX_CHARS: Final = 60_000  # the two results of a question have 700,000
_ROOT = Path(__file__).parents[3]


def check_program(module: str, folder: Path, serve: Serve) -> None:
    """Run the program of a framework and check that each promise holds.

    Args:
        module: The module of the program.
        folder: An empty folder.
        serve: Serves the endpoint that the framework's client speaks to.
    """
    player = Player()
    with serve(player):
        report = [ask(1, user, "What is order 4321, and what failed?") for user in USERS]
        track = [ask(2, user, f"Which courier has parcel P-{user}?") for user in USERS]
        first = _answers(module, player.url, folder, [_batch(report), _batch(track)])
        resume = [ask(3, user, "What is order 17?") for user in USERS]
        resume.append(ask(4, STRANGER, "What is order 17 of somebody else?"))
        second = _answers(module, player.url, folder, [_batch(resume)])
    holds = _promises(player, first, second)
    shown = max(len(prompt.offered) for prompt in player.prompts)
    measured = {"holds": holds, "largest": player.largest, "shown": shown}
    REPORT.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    assert [promise for promise, is_held in holds.items() if not is_held] == []


def _batch(questions: list[str]) -> list[tuple[str, str]]:
    """Return users with their questions."""
    users = [*USERS, STRANGER]
    return [*zip(users, questions, strict=False)]


def _answers(module: str, url: str, folder: Path, batches: list[Any]) -> list[str]:
    """Return the answers of a new process."""
    arguments = [module, url, str(folder), json.dumps(batches)]
    command = [sys.executable, "-m", "tests.integrations.programs.process", *arguments]
    result = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, f"{result.stdout[-2_000:]}\n{result.stderr[-6_000:]}"
    answers: list[str] = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    return answers


def _promises(player: Player, first: list[str], second: list[str]) -> dict[str, bool]:
    """Return whether each promise was held for all users."""
    reports, tracks = first[: len(USERS)], first[len(USERS) :]
    own = [*zip(USERS, reports, strict=True)]
    later = [*zip(USERS, second, strict=False)]
    return {
        "a request never holds a whole result": player.largest < MAX_CHARS,
        "a row is read back": all(code_of(user, 4_321) in text for user, text in own),
        "a line is read back": all(f"a disk of {user} failed" in text for user, text in own),
        "a SELECT counts all records": all(f"rows: {ORDERS - 101}" in text for text in reports),
        "a search finds the result": all("read_log" in text for text in reports),
        "a tool of the long list is called": all("courier 7" in text for text in tracks),
        "no prompt has another user's data": not any(map(_is_mixed, player.prompts)),
        "a restarted process reads a row": all(code_of(user, 17) in text for user, text in later),
        "a restarted process runs SQL": all("rows: 142" in text for text in second[: len(USERS)]),
        "another user cannot read it": "no stored result" in second[-1],
    }


def _is_mixed(prompt: Prompt) -> bool:
    others = {*USERS} - {prompt.user}
    return any(f"S-{other}-" in prompt.everything for other in others)
