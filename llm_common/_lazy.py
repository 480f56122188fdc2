"""Lazy exports: a package's public names, each imported on first use (PEP 562)."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from inspect import getsource


def lazy_exports(package: str) -> tuple[Callable[[str], object], list[str]]:
    """The `__getattr__` of a package, and the names that it exports, sorted.

    The names are the imports under `if TYPE_CHECKING:` in the package's source: listed once, also for type checkers
    and editors. Needs the source, which a wheel or a zip archive holds too.

    Args:
        package: The package's `__name__`.
    """
    module_of = {
        name.name: node.module
        for block in ast.parse(getsource(sys.modules[package])).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
    }

    def get(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, sorted(module_of)
