"""The reports on the page about `llm-common audit` are those of the command."""

import re
import shlex
from pathlib import Path

import pytest

from tests.apps.audit import recorded
from tests.apps.cli.running import DOCS, run

PAGE = (DOCS / "audit.md").read_text()
EXAMPLES = re.findall(
    r"^```sh\n(llm-common audit s[^\n]*)\n```\n```text\n(.*?)```$", PAGE, re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize(("command", "report"), EXAMPLES)
def test_the_reports_of_the_page_are_those_of_its_commands(
    command: str, report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded.write(Path("session.jsonl"), recorded.documented())
    Path("sessions").mkdir()
    recorded.write(Path("sessions/claude.jsonl"), recorded.claude_code())
    recorded.write(Path("sessions/codex.jsonl"), recorded.codex())
    recorded.write(Path("sessions/requests.jsonl"), recorded.requests())
    _, *arguments = shlex.split(command)
    printed = run(*arguments, code=int("--fail-on" in arguments)).stdout
    assert printed == report
    assert max(map(len, printed.splitlines())) <= 80


def test_the_page_has_two_examples() -> None:
    assert len(EXAMPLES) == 2
