"""List the files of a folder, and decide by name or content that a file is not searched.

The files are those that git tracks or that no `.gitignore` excludes.
"""

import os
import re
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from llm_common._env import environment_without
from llm_common.folders.contained_file import UTF_16_MARKS, ContainedFile
from llm_common.text.display import visible
from llm_common.text.ignore_rules import IgnoreRules

_GIT_TIMEOUT_S = 20.0
# Git sets these for its hooks. They would direct our git to the hook's repository.
_GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
# One entry of `git ls-files --stage`: mode, object id, stage, a tab, and then the path.
_STAGED = re.compile(rb"(?P<mode>\d{6}) [0-9a-f]{40,64} \d\t")
_LINE_BREAK_OR_TAB = re.compile(r"[\t\n\u2028\u2029]")  # the others are control characters
_SUBMODULE = b"160000"  # the mode of a submodule
_MAX_NESTED = 5  # checkouts in checkouts; each level starts a git process per checkout
_MAX_IGNORE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A regular file below a folder.

    Attributes:
        path: The path relative to the folder, with forward slashes.
        size: The size in bytes.
        mtime_ns: The modification time in nanoseconds since 1970, at least 1.
        target: If the file or one of its folders is a link, the real path relative to the folder.
    """

    path: str
    size: int
    mtime_ns: int
    target: str | None = field(default=None, compare=False)


def list_paths(root: Path, *, hidden: bool = False) -> Iterator[str]:
    """Yield the paths below a folder, relative to it, with forward slashes, in a fixed order.

    In a git checkout, these are the files that git tracks or would track, including those of
    submodules and other checkouts inside it. In other folders, these are all files that no
    `.gitignore` file excludes. A hidden, generated or unreadable folder is not entered. It is
    yielded as one path that ends with a slash, and "/" is the folder itself. Only `.gitignore`
    files are opened.

    Args:
        root: An existing folder, resolved.
        hidden: Whether to enter hidden folders, except `.git`. Has no effect in a git checkout.
    """
    yield from _git_paths(root) or _walked_paths(root, hidden=hidden)


def stat_files(root: Path, paths: Iterable[str]) -> Iterator[tuple[str, ListedFile | None]]:
    """Yield each path with its file, or with None if it must not be read.

    These are paths that do not lead to a regular file inside the folder, and paths that
    `is_unsafe`.

    Args:
        root: The folder, resolved.
        paths: Paths relative to the folder, with forward slashes.
    """

    @cache  # many files share a folder
    def real_folder(folder: str) -> str | None:
        return ContainedFile(root, folder).real_path()

    def regular_file(path: str) -> ListedFile | None:
        folder = path.rpartition("/")[0]
        target = None
        try:
            status = (root / path).lstat()
            if stat.S_ISLNK(status.st_mode) or real_folder(folder) != (folder or "."):
                target = ContainedFile(root, path).real_path()
            if target:
                status = (root / path).stat()
        except OSError:
            return None
        # A link without a target inside the folder has a link's mode, so it is not regular.
        is_regular = stat.S_ISREG(status.st_mode)
        if not is_regular or is_unsafe(path) or real_folder(folder) is None:
            return None
        # The index stores 0 for files that it has to read again.
        return ListedFile(path, status.st_size, max(status.st_mtime_ns, 1), target)

    for path in paths:
        yield path, regular_file(path)


def is_unsafe(path: str) -> bool:
    """Return whether a terminal, a prompt or a reader could misread a path.

    It contains control characters, line breaks, marks that change the direction of text, letters
    that no font shows, or bytes that are not UTF-8.
    """
    return visible(path) != path or _LINE_BREAK_OR_TAB.search(path) is not None


def _git_paths(root: Path, depth: int = 0) -> list[str]:
    """Return the files below the folder that git tracks or would track, or [] if git fails."""
    # The checkout may be untrusted, and `core.fsmonitor` in its configuration names a program.
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(root), "ls-files", "-z"]
    command += ["--cached", "--others", "--exclude-standard", "--stage"]
    try:
        listing = subprocess.run(  # noqa: S603 - fixed arguments, no shell
            command,
            capture_output=True,
            check=True,
            timeout=_GIT_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env=environment_without(*_GIT_VARIABLES),
        )
    except (OSError, subprocess.SubprocessError):
        return []
    paths: set[str] = set()
    for entry in filter(None, listing.stdout.split(b"\0")):
        staged = _STAGED.match(entry)
        path = os.fsdecode(entry)
        is_checkout = path.endswith("/")  # an untracked one
        if staged:
            path = os.fsdecode(entry[staged.end() :])
            is_checkout = staged["mode"] == _SUBMODULE
        inner: list[str] = []
        if is_checkout:
            inner = _checkout_paths(root, path.rstrip("/"), depth)
        paths.update(inner or [path])
    return sorted(paths)


def _checkout_paths(root: Path, path: str, depth: int) -> list[str]:
    """Return the files of a checkout inside another one, relative to the outer one.

    Returns [] if the path is not a checkout, or is nested too deep.
    """
    folder = root / path
    # `Path.is_symlink` and `Path.exists` raise if a folder may not be searched.
    is_checkout = not os.path.islink(folder) and os.path.exists(folder / ".git")  # noqa: PTH110, PTH114
    if depth >= _MAX_NESTED or not is_checkout:
        return []
    return [f"{path}/{inner}" for inner in _git_paths(folder, depth + 1)]


def _walked_paths(root: Path, *, hidden: bool) -> Iterator[str]:
    rules: dict[str, IgnoreRules] = {}  # by the folder of the `.gitignore` file
    unreadable: list[OSError] = []
    for folder, folders, files in os.walk(root, onerror=unreadable.append):
        prefix = _below(root, folder)
        if content := ContainedFile(root, f"{prefix}.gitignore").read(max_bytes=_MAX_IGNORE_BYTES):
            rules[prefix.removesuffix("/")] = IgnoreRules(content.decode("utf-8", errors="replace"))
        entered = []
        for name in sorted(folders):
            path = f"{prefix}{name}/"
            if name == ".git" or _is_ignored(path, rules):
                continue
            if skip_reason_by_name(path, hidden=hidden, generated=False):
                yield path
            elif os.path.islink(root / path):  # noqa: PTH114 - `Path.is_symlink` may raise
                yield path.removesuffix("/")
            else:
                entered.append(name)
        folders[:] = entered  # in place, as `os.walk` requires
        for name in sorted(files):
            # In a worktree or a submodule, `.git` is a file.
            if name != ".git" and not _is_ignored(prefix + name, rules):
                yield prefix + name
    for error in unreadable:
        yield _below(root, error.filename) or "/"


def _is_ignored(path: str, rules: Mapping[str, IgnoreRules]) -> bool:
    """Return whether git would ignore a path. The path of a folder ends with a slash."""
    folder = path.rstrip("/")
    # As in git, the nearest `.gitignore` file with a matching rule decides.
    while folder:
        folder = folder.rpartition("/")[0]
        if folder in rules:
            verdict = rules[folder].verdict(path[len(folder) :].lstrip("/"))
            if verdict is not None:
                return verdict
    return False


def _below(root: Path, folder: str) -> str:
    """Return the relative path of a folder with a slash at its end, or "" for the root."""
    return "" if folder == str(root) else f"{Path(folder).relative_to(root).as_posix()}/"


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
