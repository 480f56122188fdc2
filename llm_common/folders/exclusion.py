"""Why a file is not searched: because of its name, or because of what it holds."""

import re
from pathlib import PurePosixPath
from typing import Literal

from llm_common.folders.secret_names import usually_holds_secrets

SkipReason = Literal[
    "hidden", "secret", "generated", "binary", "too large", "unreadable", "hidden folder", "generated folder"
]
"""Why a file or folder is not searched."""

MAX_FILE_BYTES = 1024 * 1024
"""Larger files are data or generated: no megabyte in one file is written by hand."""

_SNIFFED_BYTES = 8192
_HEAD_BYTES = 1000
_MINIFIED_BYTES = 4096
_MINIFIED_LINE_BYTES = 400
_GENERATED_FOLDERS = frozenset(
    {"__pycache__", "build", "coverage", "dist", "env", "node_modules", "site-packages", "target", "vendor", "venv"}
)
_GENERATED = re.compile(
    r"(package-lock|npm-shrinkwrap)\.json|.+[.-]lock|.*-lock\.ya?ml|go\.(work\.)?sum|.*\.lockfile|bun\.lockb|packages\.lock\.json"
    r"|.+[.-]min\.(m?js|css)|.+\.bundle\.js|.+\.map|.+\.snap"
    r"|.+_pb2(_grpc)?\.pyi?|.+\.pb\.(go|cc|h)|.+\.g\.dart|.+\.designer\.cs",
    re.IGNORECASE,
)
_GENERATED_NOTE = re.compile(
    rb"\bgenerated\b.{0,120}\bdo not (edit|modify)\b|\bdo not (edit|modify)\b.{0,120}\bgenerated\b|@generated\b",
    re.IGNORECASE | re.DOTALL,
)


def skip_reason_by_name(path: str, *, hidden: bool, generated: bool) -> SkipReason | None:
    """Why a file or folder is skipped whatever it holds, or None.

    Files that usually hold secrets (`.env`, keys, credentials) are always skipped.

    Args:
        path: Relative, with forward slashes; a folder ends with one.
        hidden: True accepts hidden files and folders.
        generated: True accepts files that a tool wrote: lock files, minified and compiled sources, snapshots.
    """
    name = PurePosixPath(path).name
    if path.endswith("/"):
        if is_hidden(path) and not hidden:
            return "hidden folder"
        return "generated folder" if name in _GENERATED_FOLDERS else None
    if usually_holds_secrets(path):
        return "secret"
    if is_hidden(path) and not hidden:
        return "hidden"
    if _GENERATED.fullmatch(name) and not generated:
        return "generated"
    return None


def skip_reason_by_content(content: bytes, *, generated: bool) -> SkipReason | None:
    """Why a file is skipped for what it holds, or None.

    Args:
        content: All of it.
        generated: True accepts text that says it was generated, and text with very long lines, as minified text has.
    """
    if is_binary(content):
        return "binary"
    if generated:
        return None
    minified = len(content) > _MINIFIED_BYTES and len(content) > _MINIFIED_LINE_BYTES * (content.count(b"\n") + 1)
    return "generated" if minified or _GENERATED_NOTE.search(content[:_HEAD_BYTES]) else None


def is_hidden(path: str) -> bool:
    """Whether a part of the path begins with a dot."""
    return path.startswith(".") or "/." in path


def is_binary(content: bytes) -> bool:
    """Whether the content is no text: as in git, a zero byte near the beginning decides."""
    return b"\0" in content[:_SNIFFED_BYTES]
