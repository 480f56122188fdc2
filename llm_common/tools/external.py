"""`foreign_code`: the one place where whatever a foreign tool or registry raises becomes an error of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from llm_common.errors import ToolFailedError

__all__ = ["foreign_code"]


@contextmanager
def foreign_code(tool: str) -> Iterator[None]:
    """A block whose every exception leaves as `ToolFailedError`, naming the exception's class and nothing it says.

    Cancellation, `SystemExit` and `KeyboardInterrupt` pass through untouched.

    Args:
        tool: Name of the tool, or of what else runs in the block; it becomes the error's `.tool`.

    Raises:
        ToolFailedError: The block raised; the original is the cause.
    """
    try:
        yield
    except Exception as exc:
        raise ToolFailedError(f"{tool} raised {type(exc).__name__}; see its cause for the details", tool=tool) from exc
