"""Writes poetry.lock and, from it, constraints.txt: one pinned version of every package for pip.

Run by `make lock` with the Poetry of the tool environment. Poetry asks the package index in a JSON
form that some indexes and mirrors do not answer; the mirror plugin makes it use the simple index
that pip uses.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from pip._internal.models.index import PyPI

ROOT = Path(__file__).resolve().parent.parent


def pip_index_url() -> str:
    """Return the simple index of pip's configuration, else pip's default."""
    configured = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return os.environ.get("PIP_INDEX_URL") or configured or PyPI.simple_url


def lock() -> None:
    env = {**os.environ, "POETRY_PYPI_MIRROR_URL": pip_index_url().rstrip("/") + "/"}
    subprocess.run(
        [sys.executable, "-m", "poetry", "lock", *sys.argv[1:]], cwd=ROOT, env=env, check=True
    )
    path = ROOT / "poetry.lock"
    text = path.read_text(encoding="utf-8")
    portable = re.sub(r"\n\[package\.source\]\n(?:[a-z_]+ = .*\n)+", "\n", text)
    if re.search(r"https?://", portable):
        sys.exit("poetry.lock names a host; it must not")
    if portable != text:
        path.write_text(portable, encoding="utf-8")


def constraints() -> str:
    packages = tomllib.loads((ROOT / "poetry.lock").read_text(encoding="utf-8"))["package"]
    lines = ["# Made from poetry.lock by `make lock`."]
    lines += sorted(
        f"{package['name']}=={package['version']}{python_marker(package)}" for package in packages
    )
    return "\n".join(lines) + "\n"


def python_marker(package: dict[str, object]) -> str:
    """Return the Python versions for which a locked version is meant, if there are several.

    Extras do not matter to a constraint.
    """
    clauses = re.findall(
        r'python(?:_full)?_version [<>=!]+ "[^"]+"', str(package.get("markers", ""))
    )
    return f" ; {' and '.join(dict.fromkeys(clauses))}" if clauses else ""


if __name__ == "__main__":
    lock()
    (ROOT / "constraints.txt").write_text(constraints(), encoding="utf-8")
