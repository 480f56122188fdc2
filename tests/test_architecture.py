"""The house rules that a program can check."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

import llm_common

PACKAGE = Path(llm_common.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60
FORBIDDEN_NAMES = {"utils", "helpers", "base", "types", "manager", "common", "misc"}
EXTRAS = {
    "bpe_openai",
    "numpy",
    "obstore",
    "opentelemetry",
    "pathspec",
    "psycopg",
    "psycopg_pool",
    "rich",
    "safetensors",
    "tokenizers",
    "typer",
    "wordllama",
}

# Third-party code is run in these places only, and may raise anything there.
BROAD_CATCHES = {
    "core/external_errors.py": 1,  # a client that is not ours
    "tools/tool.py": 1,  # a tool or a registry that is not ours
    "text/canonical.py": 1,  # methods of a caller's objects
    "pointers/save_threads.py": 1,  # work of a thread, whose error goes to the task that waits for it
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules() -> list[ParameterSet]:
    return [pytest.param(path, id=name_of(path)) for path in MODULES]


@pytest.mark.parametrize("path", modules())
def test_a_module_is_short_and_named_for_what_it_defines(path: Path) -> None:
    assert path.read_text(encoding="utf-8").count("\n") <= MAX_MODULE_LINES
    assert path.stem not in FORBIDDEN_NAMES


@pytest.mark.parametrize("path", modules())
def test_a_function_is_short(path: Path) -> None:
    long = {
        node.name: length
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert not long


@pytest.mark.parametrize("path", modules())
def test_only_env_reads_the_environment_and_only_the_command_line_prints(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}:
            assert name_of(path) == "_env.py"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            assert name_of(path).startswith("cli/")


def test_broad_catches_stand_only_around_third_party_code() -> None:
    found: dict[str, int] = {}
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = "BaseException" if node.type is None else ast.unparse(node.type)
            reraises = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            if re.search(r"\b(Base)?Exception\b", caught) and not reraises:
                found[name_of(path)] = found.get(name_of(path), 0) + 1
    assert found == BROAD_CATCHES


def test_cancellation_is_never_swallowed() -> None:
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ExceptHandler) and node.type is not None:
                assert "CancelledError" not in ast.unparse(node.type), name_of(path)


@pytest.mark.parametrize("path", modules())
def test_public_names_are_listed_once_and_exist(path: Path) -> None:
    dotted = ".".join(("llm_common", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    if dotted.endswith("__main__"):
        return
    module = importlib.import_module(dotted)
    assert hasattr(module, "__all__"), f"{dotted} has no __all__"
    exported = list(module.__all__)
    assert len(exported) == len(set(exported))
    assert all(hasattr(module, name) for name in exported)


@pytest.mark.parametrize("path", modules())
def test_public_things_have_docstrings_and_nothing_is_unfinished(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), f"{name_of(path)} has no docstring"
    assert not re.search(r"\b(TODO|FIXME|XXX|stub)\b", path.read_text(encoding="utf-8"))


def test_every_submodule_imports_alone() -> None:
    names = [info.name for info in pkgutil.walk_packages([str(PACKAGE)], "llm_common.")]
    assert "llm_common.agents.context_pointers" in names
    for name in names:
        importlib.import_module(name)


def test_importing_everything_in_agents_pulls_in_no_extra_and_reads_no_environment() -> None:
    program = """
import os, sys
real, read = os.environ, []
class Watched(dict):
    def get(self, key, default=None):
        read.append(key)
        return super().get(key, default)
    def __getitem__(self, key):
        read.append(key)
        return super().__getitem__(key)
os.environ = Watched(real)
import llm_common.agents
for name in llm_common.agents.__all__:
    getattr(llm_common.agents, name)
print(sorted(name for name in sys.modules if "." not in name))
print([name for name in read if name.startswith("LLM_COMMON") or name.endswith("_API_KEY")])
"""
    lines = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert not EXTRAS & set(ast.literal_eval(lines[0]))
    assert ast.literal_eval(lines[1]) == []
