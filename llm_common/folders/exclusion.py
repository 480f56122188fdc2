"""Why a file is not searched: because of its name, or because of what it holds."""

import re
from pathlib import PurePosixPath
from typing import Literal

SkipReason = Literal["hidden", "secret", "generated", "binary", "too large", "unreadable"]
"""Why a file is not searched."""

MAX_FILE_BYTES = 1024 * 1024
"""Larger files are data or generated: no megabyte in one file is written by hand."""

_SNIFFED_BYTES = 8192
_HEAD_BYTES = 1000
_MINIFIED_BYTES = 4096
_MINIFIED_LINE_BYTES = 400
_SECRETS = re.compile(
    r"\.env(\..+)?|\.netrc|\.npmrc|\.pypirc|\.htpasswd|id_(rsa|dsa|ecdsa|ed25519)|.+\.(pem|key|p12|pfx|jks|keystore|kdbx)"
    r"|(credentials|secrets?)(\.(json|ya?ml|toml|ini))?",
    re.IGNORECASE,
)
_SAMPLE = re.compile(r"\.env\.(example|sample|template|dist)", re.IGNORECASE)
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
    """Why a file is skipped whatever it holds, or None.

    Files that usually hold secrets (`.env`, keys, credentials) are always skipped.

    Args:
        path: Relative, with forward slashes.
        hidden: True accepts hidden files and folders.
        generated: True accepts files that a tool wrote: lock files, minified and compiled sources, snapshots.
    """
    name = PurePosixPath(path).name
    if _SECRETS.fullmatch(name) and not _SAMPLE.fullmatch(name):
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
