"""Decide by name or content that a file is not searched, and give the reason."""

import re
from pathlib import PurePosixPath
from typing import Final, Literal

from llm_common.folders.contained_file import UTF_16_MARKS

SkipReason = Literal[
    "hidden",
    "secret",
    "generated",
    "binary",
    "too large",
    "unreadable",
    "hidden folder",
    "generated folder",
]
"""The reason why a file or folder is not searched."""

MAX_FILE_BYTES = 1024 * 1024
"""The maximum size of a searched file. Larger ones are data or generated, not written by hand."""

_SNIFFED_BYTES = 8192  # git looks for a null byte in its first 8,000 bytes
_HEAD_BYTES = 1000  # notes of code generators are in a file's first lines
# Text is minified if it is longer than this and its lines are this long on average.
_MINIFIED_BYTES = 4096
_MINIFIED_LINE_BYTES = 400
# Folders that package managers, compilers and test runners write.
_GENERATED_FOLDERS = frozenset(
    {
        "__pycache__",
        "build",
        "coverage",
        "dist",
        "env",
        "node_modules",
        "site-packages",
        "target",
        "vendor",
        "venv",
    }
)
_GENERATED = re.compile(
    r"(package-lock|npm-shrinkwrap)\.json|.+[.-]lock|.*-lock\.ya?ml|go\.(work\.)?sum|.*\.lockfile|bun\.lockb|packages\.lock\.json"
    r"|.+[.-]min\.(m?js|css)|.+-\d+(\.\d+)+\.(m?js|css)|.+\.bundle\.js|.+\.map|.+\.snap"
    r"|.+_pb2(_grpc)?\.pyi?|.+\.pb\.(go|cc|h)|.+\.g\.dart|.+\.designer\.cs",
    re.IGNORECASE,
)
_GENERATED_NOTE = re.compile(
    rb"\bgenerated\b.{0,120}\bdo not (edit|modify)\b|\bdo not (edit"
    rb"|modify)\b.{0,120}\bgenerated\b|@generated\b",
    re.IGNORECASE | re.DOTALL,
)

# The first comment of a library's distribution, such as "/*! jQuery v3.5.1 … MIT license". A
# project's own files have a licence there too, but no version.
_DISTRIBUTED = re.compile(
    rb"\s*(?:/\*!|//).{0,200}?\bv?\d+\.\d+\.\d+\b.{0,400}\blicen[cs]e",
    re.IGNORECASE | re.DOTALL,
)


def skip_reason_by_name(path: str, *, hidden: bool, generated: bool) -> SkipReason | None:
    """Return the reason to skip a file or folder whatever its content, or None.

    Files that usually hold secrets (`.env`, keys, credentials) are always skipped.

    Args:
        path: Relative, with forward slashes. The path of a folder ends with a slash.
        hidden: Whether to accept hidden files and folders.
        generated: Whether to accept files that a tool wrote, such as lock files, minified and
            compiled sources, and snapshots.
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
    """Return the reason to skip a file because of its content, or None.

    Args:
        content: The whole content.
        generated: Whether to accept text with a generator's note, with the banner of a library's
            distribution, or with very long lines, as in minified sources.
    """
    if is_binary(content):
        return "binary"
    if generated:
        return None
    lines = content.count(b"\n") + 1
    is_minified = len(content) > max(_MINIFIED_BYTES, _MINIFIED_LINE_BYTES * lines)
    if is_minified or _GENERATED_NOTE.search(content[:_HEAD_BYTES]):
        return "generated"
    if _DISTRIBUTED.match(content[:_HEAD_BYTES]):
        return "generated"
    return None


def is_hidden(path: str) -> bool:
    """Return whether a part of the path begins with a dot."""
    return path.startswith(".") or "/." in path


def is_binary(content: bytes) -> bool:
    """Return whether the content is binary: it has a null byte near its beginning, as in git.

    Half of the bytes of UTF-16 are null.
    """
    return b"\0" in content[:_SNIFFED_BYTES] and not content.startswith(UTF_16_MARKS)


# A word such as `credentials` counts only in the name of a data file: `credentials.py` is code that
# handles secrets.
_DATA: Final = frozenset(
    {
        "",
        "cfg",
        "conf",
        "config",
        "csv",
        "enc",
        "env",
        "ini",
        "json",
        "jsonl",
        "plist",
        "properties",
        "toml",
        "tsv",
        "txt",
        "xml",
        "yaml",
        "yml",
    }
)
"""Extensions of files that may consist of a secret. "" means no extension."""

# In structured data, one secret may be among other values, so any word of the name counts.
_STRUCTURED: Final = _DATA - {"", "csv", "tsv", "txt"}
# Editors and people append these to the name of the original.
_BACKUP: Final = re.compile(r"(?:\.(?:bak|backup|copy|old|orig|save|\d{1,3})|~)+\Z")
# Samples hold placeholders instead of secrets.
_SAMPLE: Final = re.compile(
    r"(?:example|sample|template)\.env"
    r"|.+[._-](?:dist|example|sample|template|tpl)(?:\.(?:env|ini|json|php|tfvars|toml|txt|ya?ml))?"
)
# Folders in which tools keep their credentials.
_FOLDERS: Final = re.compile(
    r"(?:^|/)(?:\.(?:aws|azure|gcloud|git|gnupg|kube|password-store|secrets|ssh)/|\.config/(?:gcloud|gh)/|\.docker/config\.json\Z)"
)


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


_NAMES: Final = _any_of(
    # Environments.
    r"\.envrc",
    r"\.env(?:[._-].+)?",
    r".+\.env(?:[._-](?:ci|dev|enc|live|local|prod|stag|test)[a-z\d]*)*",
    r"env\.(?:ci|dev|live|local|private|prod|secret|stag|test)\w*",
    # Private keys.
    r"(?:.+[._-])?id_(?:dsa|ecdsa|ed25519|rsa)(?:_sk)?(?:[._-](?!pub$).+)?",
    r".*\.(?:gpg|jceks|jks|kdbx?|key|keychain|keystore|ovpn|p12|p8|pem|pfx|pgp|pk8|ppk)",
    r".+\.key\.(?:enc|json|txt)",
    r".+_(?:dsa|ecdsa|ed25519|rsa)",
    r"key(?:store)?\.properties",
    r"wg\d{1,3}\.conf",
    # Clouds, clusters, package registries.
    r".*\.tfstate(?:\..+)?",
    r".*\.tfvars(?:\.json)?",
    r".*service[ ._-]?account.*\.json",
    r".*firebase[ ._-]?adminsdk.*\.json",
    r"(?:.+[._-])?kubeconfig(?:[_-][^.]*)?(?:\.(?:conf|json|txt|ya?ml))?",
    r"\.(?:boto|databrickscfg|dockercfg|dockerconfigjson|npmrc|pypirc|s3cfg|terraformrc)|terraform\.rc|rclone\.conf",
    # Databases, servers, editors, browsers.
    r"\.(?:my|mylogin)\.cnf|\.pgpass|pgpass\.conf|\.passwd-s3fs|shadow|(?:.*[._-])?ht(?:digest|passwd)",
    r"local\.settings\.json|localsettings\.php|wp-config(?!-sample)[\w.-]*\.php",
    r"\.ftpconfig|\.remote-sync\.json|recentservers\.xml|sftp(?:-config)?\.json|sitemanager\.xml",
    r"cookies\.txt|logins\.json|wallet\.dat",
    # Shells and network clients.
    r"\.\w+_?history|\.histfile",
    r"[._]netrc|\.(?:curlrc|fetchmailrc|gitcookies|mailrc|msmtprc|muttrc|wgetrc)",
    r".*\.(?:credentials?|secrets?|token)",
)
# The name ends with such a word: `db_password.txt`, but not `change-password.txt`.
_LAST_WORDS: Final = _any_of(
    r"(?:.+[._ -])?(?:creds?|passphrases?|passwd|secrets?|token|vault[_-]?pass)",
    r"(?!.*(?:change|common|confirm|forgot|lost|reset|strong|update|weak))(?:.+[._ -])?passwords?",
    r"(?:.+[._ -])?(?:access|api|auth|bearer|bot|oauth|refresh|session)[_-]?tokens?",
    r"(?:.+[._ -])?(?:access|api|auth|deploy|encryption|master|private|root|secret|service"
    r"|signing|ssh)[_-]?keys?",
    r"(?!.*(?:partition|primary|public|sort))(?:.+[._ -])?key",
)
_ANY_WORD: Final = re.compile(r"(?:.*[._ -])?(?:creds|secrets?)(?:[._ -].*)?")


def usually_holds_secrets(path: str) -> bool:
    """Return whether files with such a name, or backups of them, usually hold secrets.

    Args:
        path: The path relative to the searched folder, with forward slashes.
    """
    if _FOLDERS.search(path):
        return True
    name = _BACKUP.sub("", PurePosixPath(path).name.lower())
    if _SAMPLE.fullmatch(name):
        return False
    if _NAMES.fullmatch(name):
        return True
    stem, dot, extension = name.removeprefix(".").rpartition(".")
    if not dot:
        stem, extension = extension, ""
    if extension not in _DATA:
        return False
    is_word = "credential" in stem or _LAST_WORDS.fullmatch(stem) is not None
    return is_word or (extension in _STRUCTURED and _ANY_WORD.fullmatch(stem) is not None)
