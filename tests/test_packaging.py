"""The packages of an install, and runs without sources and from a zip archive."""

import compileall
import shutil
import subprocess
import sys
import tomllib
import zipapp
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import llm_common

PACKAGE = Path(llm_common.__file__).parent
PROJECT: dict[str, Any] = tomllib.loads(
    (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
)["project"]
MAX_DISTRIBUTIONS = 18

# Uses names that are imported on first use, a data file of the package, and the disk.
PROGRAM = """
import asyncio, sys

import llm_common.agents, llm_common.apps.cli, llm_common.context, llm_common.core
import llm_common.folders, llm_common.memory, llm_common.testing, llm_common.trace
from llm_common.apps.inspector.rendering import render_html

for face in (llm_common.agents, llm_common.core):
    for name in face.__all__:
        getattr(face, name)

store = llm_common.agents.FileContextPointerStore(sys.argv[1])
pointer = asyncio.run(store.save(query_id="q", tool_name="t", args={}, result=[1]))
trace = llm_common.trace.Trace(sys.argv[1] + "/traces")
with trace.run("q") as run:
    pass
trace.flush()
page = render_html(llm_common.trace.read_trace(run.path))
print(llm_common.__file__, store.load_result(pointer=pointer), page[:15])
"""


def distributions_of(requirements: list[str]) -> set[str]:
    """Return the names of the distributions that requirements install, with dependencies."""
    names: set[str] = set()
    pending = [Requirement(text) for text in requirements]
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        if name not in names:
            names.add(name)
            for text in requires(requirement.name) or []:
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                    pending.append(needed)
    return names


def test_a_plain_install_brings_few_packages_and_no_terminal() -> None:
    distributions = distributions_of(PROJECT["dependencies"])
    assert len(distributions | {"llm-common"}) <= MAX_DISTRIBUTIONS
    assert not distributions & {"jinja2", "rich", "typer"}


@pytest.mark.parametrize("extra", ["mcp", "inspect", "all"])
def test_the_extras_of_commands_contain_the_command(extra: str) -> None:
    extras = PROJECT["optional-dependencies"]
    assert {*extras["cli"]} <= {*extras[extra]}


def test_the_extra_all_contains_every_other_one() -> None:
    extras = PROJECT["optional-dependencies"]
    assert {*extras["all"]} == {text for texts in extras.values() for text in texts}


def run(python_path: Path, store: Path, more: str = "") -> str:
    program = f"import sys; sys.path.insert(0, {str(python_path)!r})\n{PROGRAM}{more}"
    completed = subprocess.run(
        [sys.executable, "-P", "-c", program, store],
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a folder with a copy of the package."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "copy" / "llm_common", ignore=ignored)
    return tmp_path / "copy"


def test_the_package_runs_without_its_sources_s0_41_f_202(copy: Path, tmp_path: Path) -> None:
    assert compileall.compile_dir(copy, quiet=1, legacy=True)
    for source in copy.rglob("*.py"):
        source.unlink()
    printed = run(copy, tmp_path / "store")
    assert printed == f"{copy}/llm_common/__init__.pyc [1] <!doctype html>\n"


def test_the_package_runs_out_of_a_zip_archive_s0_41_f_202(copy: Path, tmp_path: Path) -> None:
    archive = tmp_path / "app.pyz"
    zipapp.create_archive(copy, archive, main="llm_common.apps.cli:main")
    store = tmp_path / "store"
    # In the process that has compiled the modules, as an archive keeps no bytecode.
    command = f"""
import runpy
sys.argv = ["app", "context", "list", "--store", {str(store)!r}]
runpy.run_path({str(archive)!r}, run_name="__main__")
"""
    first, *listed = run(archive, store, command).splitlines()
    assert first == f"{archive}/llm_common/__init__.py [1] <!doctype html>"
    assert listed[0].startswith("q\t1\t")
