"""`as_store_errors`: what the system refuses, as the errors of a store."""

import errno
from types import TracebackType

from llm_common.errors import PointerNotFoundError, StoreError, StoreFullError, UnsafePathError

__all__ = ["NOT_OURS", "as_store_errors"]

NOT_OURS = frozenset({errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})
"""What opening or reading gives for something that is no plain file or folder."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class as_store_errors:  # noqa: N801 - reads as a function; a generator would take longer than what it guards
    """Turns what the system refuses within the block into `StoreError` classes.

    Args:
        action: What was tried, as a verb for the text; for `write` a missing file is no missing pointer.
    """

    def __init__(self, action: str) -> None:
        self._action = action

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, OSError):
            raise _store_error(error, self._action) from error


def _store_error(error: OSError, action: str) -> StoreError:
    code = errno.errorcode.get(error.errno or 0, "unknown error")
    if error.errno == errno.ENOENT and action != "write":
        return PointerNotFoundError("Nothing is stored under this key; use one that the store lists")
    if error.errno in _FULL:
        return StoreFullError(f"No room left in the store ({code}); nothing was changed: free some and save again")
    if error.errno in NOT_OURS:
        return UnsafePathError(f"A path of the store is no plain file or folder ({code}); remove what stands there")
    return StoreError(f"The store could not {action} ({code}); check its directory, permissions and limits")
