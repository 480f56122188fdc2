"""The public packages: which names they import late, and where a misplaced name is."""

import ast
import importlib
import inspect
from pkgutil import iter_modules

import pytest

import llm_common
from tests.programs import printed


@pytest.mark.parametrize(
    ("package", "name", "home"),
    [
        ("llm_common.agents", "SqliteMemory", "llm_common.memory"),
        ("llm_common.agents", "PostgresMemory", "llm_common.memory"),
        ("llm_common.agents", "ContextSelector", "llm_common.context"),
        ("llm_common.agents", "LLMClient", "llm_common.core"),
        ("llm_common.agents", "LLMError", "llm_common.errors"),
        ("llm_common.agents", "ScriptedClient", "llm_common.testing"),
        ("llm_common.agents", "pack_folder", "llm_common.folders"),
        ("llm_common.core", "LLMError", "llm_common.errors"),
        ("llm_common.core", "ToolRegistry", "llm_common.agents"),
        ("llm_common.core", "ObjectContextPointerStore", "llm_common.agents"),
        ("llm_common", "ToolRegistry", "llm_common.agents"),
        ("llm_common", "OpenAICompatibleClient", "llm_common.core"),
    ],
)
def test_an_import_error_names_the_public_package(package: str, name: str, home: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from {package} import {name}")
    remedy = f"from {home} import {name}"
    assert str(caught.value) == f"cannot import name {name!r} from {package!r}. Write: {remedy}"
    exec(remedy)


@pytest.mark.parametrize("package", ["llm_common", "llm_common.agents", "llm_common.core"])
@pytest.mark.parametrize("name", ["Nowhere", "_private", "__wrapped__", "pytest_plugins"])
def test_an_unknown_name_is_an_attribute_error(package: str, name: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute '{name}'"):
        getattr(importlib.import_module(package), name)
    with pytest.raises(ImportError, match="cannot import name"):
        exec(f"from {package} import {name}")


LATE = [
    "llm_common.agents",
    "llm_common.agents.context_pointers",
    "llm_common.core",
    "llm_common.history",
    "llm_common.memory",
    "llm_common.pointers",
    "llm_common.ranking",
    "llm_common.runtime",
    "llm_common.storage",
    "llm_common.tables",
    "llm_common.text",
    "llm_common.tools",
    "llm_common.trace",
]


@pytest.mark.parametrize("face", LATE)
def test_type_checkers_see_the_same_late_names_as_programs(face: str) -> None:
    module = importlib.import_module(face)
    seen: dict[str, str] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                assert isinstance(statement, ast.ImportFrom)
                seen |= {alias.name: str(statement.module) for alias in statement.names}
    assert seen == module._MODULES
    for name, home in seen.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
        assert name in dir(module)


@pytest.mark.parametrize("face", LATE)
def test_no_late_name_is_that_of_a_module_beside_it(face: str) -> None:
    """Importing the module would replace the name."""
    module = importlib.import_module(face)
    beside = {found.name for found in iter_modules(getattr(module, "__path__", []))}
    assert not beside & module._MODULES.keys()


def test_a_package_is_imported_without_the_others() -> None:
    program = """
import sys
from llm_common import errors
import llm_common
print(hasattr(llm_common, "__wrapped__"), sorted(name for name in sys.modules if name.startswith("llm_common")))
"""
    assert printed(program) == "False ['llm_common', 'llm_common._exports', 'llm_common.errors']\n"
    assert llm_common.__version__
