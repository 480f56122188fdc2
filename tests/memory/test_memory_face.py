"""The names of `llm_common.memory`."""

import subprocess
import sys


def test_without_the_extra_the_way_out_is_named_s3_05() -> None:
    program = """
import sys
sys.modules["psycopg"] = None
from llm_common.errors import ConfigError
import llm_common.memory as memory
try:
    memory.PostgresMemory
except ConfigError as exc:
    print(exc)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told == "PostgresMemory needs an extra: pip install 'llm-common[postgres]'\n"
