"""The public names of `llm_common.core`."""

import subprocess
import sys


def test_the_face_does_not_load_the_http_client() -> None:
    program = (
        "import sys, llm_common.core; print({'httpx', 'tenacity', 'bpe_openai'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "set()"
