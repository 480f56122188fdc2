"""Programs that run as a process of their own."""

import subprocess
import sys
from typing import Any


def printed(program: str, *arguments: object, **options: Any) -> str:
    """Return what a program prints. It ends with 0 and writes no error."""
    command = [sys.executable, "-W", "error", "-c", program, *map(str, arguments)]
    ran: subprocess.CompletedProcess[str] = subprocess.run(
        command, capture_output=True, text=True, check=False, **options
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout
