"""Whose results are whose: `ResultScope`, under which the results of hosts are stored.

A host that resumes a conversation starts a new gateway, whose scope is the same.
"""

import getpass
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

# Shorter than a SHA-256, and still beyond any collision.
_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class ResultScope:
    """The id under which results are stored. A host reads every result of its scope.

    Attributes:
        session_id: The id, which reveals neither token nor path.
        siblings: The beginning of the ids of the same user's other scopes. Empty for a token,
            which says nothing about its user.
    """

    session_id: str
    siblings: str = ""

    @classmethod
    def of_process(cls, config_paths: Iterable[Path]) -> Self:
        """Return the scope of a host on stdio: its user, configuration and working folder."""
        siblings = f"stdio-{_digest(_user())}-"
        paths = sorted(str(path.absolute()) for path in config_paths)
        return cls(siblings + _digest(*paths, str(Path.cwd())), siblings)

    @classmethod
    def of_token(cls, authorization: str) -> Self:
        """Return the scope of a host over HTTP: its token."""
        return cls(f"http-{_digest(authorization)}")


def _user() -> str:
    # The number, since the name comes from the environment, which a host may change.
    if hasattr(os, "getuid"):
        return str(os.getuid())
    return getpass.getuser()


def _digest(*parts: str) -> str:
    # No path and no header contains the separator, so different parts have different texts.
    text = "\0".join(("llm-common", *parts))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
