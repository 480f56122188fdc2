"""The example of docs/trace.md runs unchanged."""

import re
from pathlib import Path

from llm_common.apps.cli.trace_commands import trace_app
from tests.programs import printed

PAGE = (Path(__file__).parents[2] / "docs" / "trace.md").read_text(encoding="utf-8")


def test_the_example_records_a_packing(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    lines = ["[('f1', 'below_cut_off')]", "['run_begin', 'packing', 'run_end']"]
    assert printed(example, cwd=tmp_path).splitlines() == lines
    assert "What was left out, and why" in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_every_command_is_in_the_table() -> None:
    commands = set(re.findall(r"^\| `llm-common trace (\w+)", PAGE, re.MULTILINE))
    assert commands == {
        command.callback.__name__ for command in trace_app.registered_commands if command.callback
    }
