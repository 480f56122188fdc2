"""The public names of `llm_common.core`."""

from tests.programs import printed


def test_the_face_does_not_load_the_http_client() -> None:
    program = (
        "import sys, llm_common.core; print({'httpx', 'tenacity', 'bpe_openai'} & set(sys.modules))"
    )
    assert printed(program) == "set()\n"
