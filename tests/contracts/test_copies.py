"""A contract suite can be copied into the tests of another project, as docs/reference/testing/index.md says."""

import ast
import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SUITES = sorted(FOLDER.glob("*_contract.py"))
PAGE = (FOLDER.parents[1] / "docs/reference/testing/index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.stem)
def test_a_suite_imports_public_names_of_the_package_only(suite: Path) -> None:
    imports = 0
    for node in ast.walk(ast.parse(suite.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        module = str(node.module)
        assert not module.startswith("tests")
        if module.startswith("llm_common"):
            imports += 1
            assert {alias.name for alias in node.names} <= {
                *importlib.import_module(module).__all__
            }
    assert imports


def test_the_page_lists_every_suite() -> None:
    assert sorted(re.findall(r"`tests/contracts/(\w+\.py)`", PAGE)) == [
        suite.name for suite in SUITES
    ]


def test_a_copied_suite_runs_with_the_program_of_the_page(tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shutil.copy(FOLDER / "blob_contract.py", tmp_path)
    (tmp_path / "test_my_store.py").write_text(program, encoding="utf-8")
    (tmp_path / "my_store.py").write_text(
        "from llm_common.storage import MemoryBlobStore as MyBlobStore\n", encoding="utf-8"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_store.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert re.search(r"\d\d passed", ran.stdout)
