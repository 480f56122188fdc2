"""The pins that `make lock` writes for pip."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tools.lock import constraints, supported_pythons

ROOT = Path(__file__).parent.parent
PYTHONS = ["3.11", "3.12", "3.13"]
HEAD = "# Made from poetry.lock by `make lock`.\n"


def locked(version: str, markers: object = None, *, pythons: str = ">=3.11") -> dict[str, Any]:
    package = {"name": "numpy", "version": version, "python-versions": pythons}
    return package if markers is None else {**package, "markers": markers}


@pytest.mark.parametrize(
    ("packages", "pins"),
    [
        pytest.param(
            [locked("2.4.6", {"main": 'extra == "mcp"', "dev": 'python_version < "4.0"'})],
            ["numpy==2.4.6"],
            id="locked once",
        ),
        pytest.param(
            [
                locked(
                    "2.5.5",
                    'python_version >= "3.13" and extra == "all" or python_version < "3.12"',
                ),
                locked(
                    "2.4.6",
                    'python_version == "3.12" and (extra == "all" or extra == "embeddings")',
                ),
            ],
            [
                'numpy==2.4.6 ; python_version == "3.12"',
                'numpy==2.5.5 ; python_version == "3.11"',
                'numpy==2.5.5 ; python_version == "3.13"',
            ],
            id="a version for each Python",
        ),
        pytest.param(
            [
                locked("2.4.6", 'python_version < "3.15"'),
                locked("2.5.5", 'python_version >= "3.14"', pythons=">=3.12"),
            ],
            ["numpy==2.4.6"],
            id="a version for later Pythons",
        ),
        pytest.param(
            [
                locked("2.4.6", 'python_version < "3.12"'),
                locked("2.5.5", pythons=">=3.12,<4.0"),
            ],
            [
                'numpy==2.4.6 ; python_version == "3.11"',
                'numpy==2.5.5 ; python_version == "3.12"',
                'numpy==2.5.5 ; python_version == "3.13"',
            ],
            id="Pythons of a version without a marker",
        ),
    ],
)
def test_each_python_gets_the_version_that_is_locked_for_it(
    packages: list[dict[str, Any]], pins: list[str]
) -> None:
    assert constraints(packages, PYTHONS) == HEAD + "".join(f"{pin}\n" for pin in pins)


def test_two_versions_for_one_python_are_an_error() -> None:
    packages = [
        locked("2.4.6", 'python_version < "3.15"'),
        locked("2.5.5", 'extra == "embeddings"', pythons=">=3.12"),
    ]
    with pytest.raises(SystemExit, match=r"numpy 2\.4\.6 and 2\.5\.5 for Python 3\.12\. Add a"):
        constraints(packages, PYTHONS)


def test_the_constraints_are_those_of_the_lock_file() -> None:
    packages = tomllib.loads((ROOT / "poetry.lock").read_text(encoding="utf-8"))["package"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    written = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert written == constraints(packages, supported_pythons(project))
