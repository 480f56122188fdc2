"""Tests the public names of `llm_common.memory`."""

import subprocess
import sys

from llm_common.errors import install_command

WITHOUT_THE_EXTRA = """
import sys
sys.modules["psycopg"] = None
from llm_common.errors import ConfigError
import llm_common.memory as memory
"""


def output_of(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_EXTRA + program],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_missing_extra_is_an_error_with_its_install_command_s3_05() -> None:
    program = """
try:
    memory.PostgresMemory
except ConfigError as exc:
    print(exc)
"""
    assert output_of(program) == f"PostgresMemory needs an extra: {install_command('postgres')}\n"


def test_a_star_import_needs_no_extra() -> None:
    program = """
from llm_common.memory import *
print(SqliteMemory.__name__, "PostgresMemory" in dir(memory), "PostgresMemory" in globals())
"""
    assert output_of(program) == "SqliteMemory True False\n"
