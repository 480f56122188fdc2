"""The ids of sessions, and the query ids of their runs. No id is both.

The run of a question has the query id `q_` and 16 digits of a hash, after the id of a named session
and a slash. So a session of such an id would be the run of another session.
"""

import hashlib
import re
from typing import Final

from llm_common.errors import InvalidIdError
from llm_common.pointers.pointer import checked_query_id
from llm_common.redaction.redactor import Redactor

_HASH: Final = r"q_[0-9a-f]{16}"
# In any case, because a file system may ignore it.
_RUN_ID: Final = re.compile(rf"(?:.*/)?{_HASH}", re.IGNORECASE)


def hash_query(query: str) -> str:
    """Return the query id of a question, from the SHA-256 of its trimmed, lower-cased text.

    Raises:
        TypeError: If `query` is not a str.
    """
    if not isinstance(query, str):
        raise TypeError(f"query must be a str, got {type(query).__name__}")
    # A lone surrogate, as of a broken emoji, cannot be encoded otherwise.
    trimmed = query.strip().lower().encode("utf-8", "surrogatepass")
    return f"q_{hashlib.sha256(trimmed).hexdigest()[:16]}"


def run_id_of(query: str, *, session_id: str) -> str:
    """Return the query id of a question in a named session. One of its query ids stays as it is."""
    prefix = f"{session_id}/"
    if query.startswith(prefix) and re.fullmatch(_HASH, query.removeprefix(prefix)):
        return query
    return prefix + hash_query(query)


def is_run_id(query_id: str) -> bool:
    """Return whether a query id has the form of a run's, with or without a session."""
    return _RUN_ID.fullmatch(query_id) is not None


def checked_session_id(session_id: str, redactor: Redactor) -> str:
    """Return a session's id if the store accepts it, and no run can have it.

    Raises:
        InvalidIdError: If it is not allowed.
    """
    # Offloaded results have it as their query id.
    checked_id = checked_query_id(session_id, redactor, "session_id")
    if is_run_id(checked_id):
        name = redactor.beginning(checked_id, max_chars=80)
        raise InvalidIdError(
            f"The session_id {name!r} is not allowed, because it is the query id of a run. Use an "
            "id that does not end in q_ and 16 hex digits"
        )
    # The query ids of its runs must be allowed too.
    checked_query_id(f"{checked_id}/q_{'0' * 16}", redactor)
    return checked_id
