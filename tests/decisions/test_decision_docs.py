"""The example of docs/decision_models.md runs unchanged."""

import asyncio
import os
import re
import sys
from pathlib import Path

from tests.core.loopback import loopback
from tests.decisions.weighing_doubles import serving

PAGE = Path(__file__).parents[2] / "docs" / "decision_models.md"


async def test_the_example_chooses_an_output_and_a_call(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    async with loopback(serving("systemone", {"weather": 0.9})) as server:
        settings = {
            "LLM_COMMON_DECISION_URL": f"http://127.0.0.1:{server.port}",
            "LLM_COMMON_DECISION_MODEL": "test-model",
            "LLM_COMMON_DECISION_WIRE": "systemone",
        }
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", example),
            cwd=tmp_path,
            env=os.environ | settings,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, problems = await program.communicate()
        assert len(server.requests) == 2
    assert (program.returncode, problems.decode()) == (0, "")
    assert output.decode().splitlines() == [
        "ok ['weather city=Oslo'] [0.9, 0.02]",
        "ok [('weather', {'city': 'Oslo'})]",
    ]
