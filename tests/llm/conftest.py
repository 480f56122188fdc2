"""A small real model behind HTTP on loopback, for the tests of this directory."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_common.core import LLMConfig, OpenAICompatibleClient

ROOT = Path(__file__).parents[2]
# Its packages must not mix with the project's.
SERVER_PYTHON = ROOT / ".llm-venv" / "bin" / "python"
# A larger model: `make test-llm MODEL=path`.
MODEL_FILE = os.environ.get("LLM_TEST_MODEL", "")
STARTUP_S = 120
TIMEOUT_S = 120
MAX_TOKENS = 150  # so small a model may go on for ever


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """Yield the base URL of the served model.

    The server ends with the tests, since it reads its standard input to the end.
    """
    assert SERVER_PYTHON.exists(), "the model server is not installed; run `make test-llm`"
    with subprocess.Popen(
        [
            str(SERVER_PYTHON),
            str(Path(__file__).with_name("serve.py")),
            *([MODEL_FILE] if MODEL_FILE else []),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), (
                "the model server did not start; run `make test-llm`"
            )
            yield f"{address}/v1"
        finally:
            server.terminate()
            server.wait(timeout=STARTUP_S)


@pytest.fixture
def config(endpoint: str) -> LLMConfig:
    return LLMConfig(
        base_url=endpoint,
        default_model="smollm2",
        provider="local",
        timeout_s=TIMEOUT_S,
        max_tokens=MAX_TOKENS,
    )


@pytest.fixture
def client(config: LLMConfig) -> OpenAICompatibleClient:
    return OpenAICompatibleClient(config)
