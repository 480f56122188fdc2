"""The README fits on a page, and its program, links and commands are true.

Its figures are compared with the demo in `tests/apps/cli/demo`.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.core.loopback import Wire, loopback, ok, response
from tests.programs import printed
from tools.mutants import read_mutants

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = README.splitlines()
CHOOSE_A_MODEL = (ROOT / "docs" / "how-to" / "choose_a_model.md").read_text(encoding="utf-8")
MAX_LINES = 120
MAX_FIRST_PROGRAM_LINE = 25


def blocks(kind: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_first_screen_says_why_and_has_the_program() -> None:
    assert len(LINES) <= MAX_LINES
    assert any("more than a model's window holds" in line for line in LINES[:5])
    assert LINES.index("```python") < MAX_FIRST_PROGRAM_LINE
    assert "make demo" in "\n".join(LINES[:20])
    assert "make test" in "\n".join(LINES[:20])


def test_the_program_prints_the_output_below_it(tmp_path: Path) -> None:
    [program] = blocks("python")
    [expected] = blocks("output")
    assert printed(program, cwd=tmp_path) == expected
    assert "refused: card expired" in expected


async def test_the_program_for_a_model_asks_the_one_the_endpoint_has_f_179(tmp_path: Path) -> None:
    """The endpoint has one model and refuses all others. The user has set a key and an address."""

    async def one_model(wire: Wire) -> None:
        while request := await wire.request():
            if request.body["model"] == "gpt-4.1-mini":
                await wire.send(
                    response(
                        200, ok('{"calls": [{"tool": "get_price", "args": {"ticker": "AAPL"}}]}')
                    )
                )
            else:
                await wire.send(
                    response(404, b'{"error": {"code": "model_not_found", "message": "unknown"}}')
                )

    settings = {"OPENAI_API_KEY": "sk-mine", "LLM_COMMON_PROVIDER": "openai"}
    async with loopback(one_model) as server:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", blocks("python", CHOOSE_A_MODEL)[0]),
            cwd=tmp_path,
            env=os.environ
            | settings
            | {"LLM_COMMON_BASE_URL": f"http://127.0.0.1:{server.port}/v1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        output, errors = await program.communicate()
    assert (program.returncode, errors.decode()) == (0, "")
    assert output.decode().startswith("ok ")
    assert "AAPL" in output.decode()


def test_a_mutant_breaks_each_test_that_a_promise_links() -> None:
    promises = README.partition("## What it promises\n")[2].partition("\n## ")[0]
    linked = set(re.findall(r"\]\((tests/[^)]+)\)", promises))
    broken: set[str] = set()
    for mutant in read_mutants():
        if mutant.name.startswith("readme "):
            broken.update(mutant.tests)
    assert linked == broken


def test_the_gateway_is_configured_as_on_its_page() -> None:
    [configuration] = blocks("json")
    page = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
    pages: list[Any] = [json.loads(block) for block in blocks("json", page)]
    assert len(configuration.splitlines()) == 3
    assert json.loads(configuration) in pages
