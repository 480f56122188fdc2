"""The package runs without its sources, and out of a zip archive."""

import compileall
import shutil
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

import llm_common

PACKAGE = Path(llm_common.__file__).parent

# Uses what a face imports on first use, a file of the package's data, and the disk.
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


def run(python_path: Path, store: Path) -> str:
    program = f"import sys; sys.path.insert(0, {str(python_path)!r})\n{PROGRAM}"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program, store],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder that holds a copy of the package."""
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
    printed = run(archive, tmp_path / "store")
    assert printed == f"{archive}/llm_common/__init__.py [1] <!doctype html>\n"
    ran = subprocess.run(
        [sys.executable, archive, "context", "list", "--store", tmp_path / "store"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
