"""Runs the documented LangGraph program, in a process that may end in a tool.

    python -m tests.integrations.langgraph_runs FOLDER ENDS_AT [plain]

ends in the call of a page, or never if ENDS_AT is -1. With `plain` it has no middleware.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.integrations.durable_pages import names_of

PAGES: Final = 6
ROWS: Final = 1_000
KILLED: Final = 9

_ROOT: Final = Path(__file__).parents[2]


def run_process(folder: Path, *options: str, ends_at: int = -1) -> str:
    """Run the program in a new process, and return what it prints."""
    folder.mkdir(exist_ok=True)
    finished = subprocess.run(
        [sys.executable, "-m", "tests.integrations.langgraph_runs", folder, str(ends_at), *options],
        check=False,
        cwd=_ROOT,
        env={**os.environ, "LLM_COMMON_POINTER_STORE_DIR": str(folder / "context")},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    assert finished.returncode == (0 if ends_at < 0 else KILLED)
    return finished.stdout.strip()


def state_of(folder: Path) -> list[Any]:
    """Return the messages of the newest checkpoint."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as checkpointer:
        found = checkpointer.get_tuple(names_of("LangGraph")["CHAT"])
        assert found is not None
        messages: list[Any] = found.checkpoint["channel_values"]["messages"]
    return messages


def checkpoint_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("checkpoints.sqlite*"))


def _run(folder: str, ends_at: int, *, is_plain: bool) -> None:
    os.chdir(folder)
    names = names_of("LangGraph")
    list_parts = names["list_parts"]

    def noted_list_parts(page: int) -> str:
        with Path("calls").open("a") as lines:
            lines.write(f"{page}\n")
        if page == ends_at:
            os._exit(KILLED)
        return str(list_parts(page))

    noted_list_parts.__name__, noted_list_parts.__doc__ = "list_parts", list_parts.__doc__
    names |= {"PAGES": PAGES, "ROWS": ROWS, "list_parts": noted_list_parts}
    if is_plain:
        create_agent = names["create_agent"]
        plain: dict[str, Any] = {"middleware": []}
        names["create_agent"] = lambda *args, **more: create_agent(*args, **{**more, **plain})
    names["main"]()


if __name__ == "__main__":
    _run(sys.argv[1], int(sys.argv[2]), is_plain="plain" in sys.argv[3:])
