"""The README keeps its word."""

import asyncio
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.loopback import Wire, loopback, ok, response

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
MAX_LINES = 160
MAX_EXAMPLE_LINES = 22


def test_is_one_page() -> None:
    assert README.count("\n") <= MAX_LINES


def test_the_first_example_is_short_and_prints_the_one_output_that_answers(tmp_path: Path) -> None:
    assert len(EXAMPLES[0].strip().splitlines()) <= MAX_EXAMPLE_LINES
    shown = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[0]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Snow all day" in shown.stdout
    assert "Fog" not in shown.stdout
    assert shown.stderr == ""


async def test_the_second_example_asks_the_model_that_the_endpoint_has_f_179(
    tmp_path: Path,
) -> None:
    """The user has set a key, and here where the endpoint is.

    It knows one model, and refuses all others.
    """

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
            *(sys.executable, "-W", "error", "-c", EXAMPLES[1]),
            cwd=tmp_path,
            env=os.environ
            | settings
            | {"LLM_COMMON_BASE_URL": f"http://127.0.0.1:{server.port}/v1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        shown, problems = await program.communicate()
    assert (program.returncode, problems.decode()) == (0, "")
    assert shown.decode().startswith("ok ")
    assert "AAPL" in shown.decode()


@pytest.mark.parametrize("path", re.findall(r"\]\(([^)#:]+)\)", README))
def test_a_link_leads_somewhere(path: str) -> None:
    assert (ROOT / path).exists()


def test_every_command_it_names_is_in_the_makefile() -> None:
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert set(re.findall(r"\bmake ([a-z-]+)", README)) <= targets


def test_every_name_in_its_table_can_be_imported_from_the_module_beside_it() -> None:
    table = README.partition("## What is in it")[2].partition("\n\n`select_detailed`")[0]
    cells = [row.split("|")[2] for row in table.splitlines() if row.startswith("| ")]
    named = {
        (module, name)
        for cell in cells
        for module in [*re.findall(r"\(`(llm_common\.[\w.]+)`\)", cell), "llm_common.agents"][:1]
        for name in re.findall(r"`([A-Z]\w+|[a-z]+_folder|format_\w+)`", cell)
    }
    assert ("llm_common.agents", "ToolSelector") in named
    assert ("llm_common.folders", "pack_folder") in named
    assert not [
        (module, name)
        for module, name in named
        if not hasattr(importlib.import_module(module), name)
    ]
