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
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pip._internal.models.index import PyPI

ROOT = Path(__file__).resolve().parent.parent
CLASSIFIER = "Programming Language :: Python :: "


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


def supported_pythons(project: Mapping[str, Any]) -> list[str]:
    """Return the versions of Python that the classifiers name, such as 3.11."""
    versions = [
        classifier.removeprefix(CLASSIFIER)
        for classifier in project["classifiers"]
        if classifier.startswith(CLASSIFIER)
    ]
    return sorted(versions, key=Version)


def constraints(packages: Iterable[Mapping[str, Any]], pythons: list[str]) -> str:
    """Return the text of constraints.txt, with one pin of a package for each Python.

    Args:
        packages: What poetry.lock has under `package`.
        pythons: The supported versions, in ascending order.

    Raises:
        SystemExit: If two versions of a package are locked for one Python.
    """
    locked: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for package in packages:
        locked[package["name"]].append(package)
    lines: list[str] = []
    for name, versions in locked.items():
        if len(versions) == 1:
            # Whether it is installed is up to who requires it, so a marker would say nothing.
            lines.append(f"{name}=={versions[0]['version']}")
        else:
            lines += pins(name, versions, pythons)
    return "\n".join(["# Made from poetry.lock by `make lock`.", *sorted(lines)]) + "\n"


def pins(name: str, versions: Iterable[Mapping[str, Any]], pythons: list[str]) -> Iterator[str]:
    """Yield the pin of a package for each supported Python, or one pin if all get one version."""
    pinned: dict[str, str] = {}
    for python in pythons:
        meant = [package["version"] for package in versions if is_meant_for(package, python)]
        if len(meant) > 1:
            sys.exit(
                f"poetry.lock has {name} {' and '.join(meant)} for Python {python}. Add a marker "
                f"with python_version to one of them in poetry.lock, or a requirement of {name} "
                "to pyproject.toml, and run this again"
            )
        if meant:
            pinned[python] = meant[0]
    if len(pinned) == len(pythons) and len({*pinned.values()}) == 1:
        yield f"{name}=={pinned[pythons[0]]}"
        return
    for python, version in pinned.items():
        yield f'{name}=={version} ; python_version == "{python}"'


def is_meant_for(package: Mapping[str, Any], python: str) -> bool:
    """Return whether a locked version is for a Python, with any extra and in any group."""
    if not SpecifierSet(package["python-versions"]).contains(f"{python}.99"):
        return False
    markers = package.get("markers", "")
    texts = list(markers.values()) if isinstance(markers, dict) else [markers]
    for text in texts:
        if not text:
            return True
        for extra in ("", *re.findall(r'extra == "([^"]+)"', text)):
            where = {
                "python_version": python,
                "python_full_version": f"{python}.99",
                "extra": extra,
            }
            if Marker(text).evaluate(where):
                return True
    return False


def main() -> None:
    lock()
    packages = tomllib.loads((ROOT / "poetry.lock").read_text(encoding="utf-8"))["package"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = constraints(packages, supported_pythons(project))
    (ROOT / "constraints.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
