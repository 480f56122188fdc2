"""The public names of `llm_common.core`."""

import subprocess
import sys

import pytest

import llm_common.core


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(llm_common.core, name) is not None for name in llm_common.core.__all__)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        llm_common.core.nothing_like_it  # noqa: B018 - looked up for its error


def test_the_face_does_not_load_the_http_client() -> None:
    program = (
        "import sys, llm_common.core; print({'httpx', 'tenacity', 'bpe_openai'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "set()"
