"""A name that is imported from the wrong place: the error says where it is."""

import importlib
import subprocess
import sys

import pytest

import llm_common


@pytest.mark.parametrize(
    ("package", "name", "place"),
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
def test_the_import_error_of_a_name_says_where_it_is_u_b17(
    package: str, name: str, place: str
) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from {package} import {name}")
    remedy = f"from {place} import {name}"
    assert (
        str(caught.value)
        == f"cannot import name {name!r} from {package!r}: it is in {place}; write {remedy}"
    )
    exec(remedy)


@pytest.mark.parametrize("package", ["llm_common", "llm_common.agents", "llm_common.core"])
@pytest.mark.parametrize("name", ["Nowhere", "_private", "__wrapped__", "pytest_plugins"])
def test_a_name_that_nothing_has_is_an_attribute_error(package: str, name: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute '{name}'"):
        getattr(importlib.import_module(package), name)
    with pytest.raises(ImportError, match="cannot import name"):
        exec(f"from {package} import {name}")


def test_a_package_is_imported_without_the_others() -> None:
    program = """
import sys
from llm_common import errors
import llm_common
print(hasattr(llm_common, "__wrapped__"), sorted(name for name in sys.modules if name.startswith("llm_common")))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert ran.stdout == "False ['llm_common', 'llm_common._lazy', 'llm_common.errors']\n"
    assert llm_common.__version__
