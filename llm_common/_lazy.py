"""Lazy exports: a package's public names, each imported on first use (PEP 562).

And where a name is that it lacks.
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from inspect import getsource


def lazy_exports(package: str) -> tuple[Callable[[str], object], list[str]]:
    """The `__getattr__` of a package, and the names that it exports, sorted.

    The names are the imports under `if TYPE_CHECKING:` in the package's source: listed once, also
    for type checkers and editors. Needs the source, which a wheel or a zip archive holds too.

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
            raise missing_name(package, name)
        value: object = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    _EXPORTS[package] = frozenset(module_of)
    return get, sorted(module_of)


def missing_name(package: str, name: str) -> Exception:
    """The error for a name that a package lacks: an `ImportError` if another public package has it.

    `from package import name` replaces the text of an `AttributeError`, and leaves that of an
    `ImportError`.

    Args:
        package: Where the name was looked for.
        name: The name.
    """
    unknown = AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
    # a submodule is about to be imported
    if name.startswith("_") or find_spec(f"{package}.{name}") is not None:
        return unknown
    for place in _PUBLIC:
        module = import_module(place)
        # what needs an extra, and is in no `__all__`
        lazy = {*dir(module)}.difference(vars(module))
        if name in _EXPORTS.get(place, lazy.union(getattr(module, "__all__", ()))):
            text = f"cannot import name {name!r} from {package!r}: it is in {place}; write from {place} import {name}"
            return ImportError(text, name=package)
    return unknown


# Where applications import from; a package that exports lazily is known here once it is imported.
_PUBLIC = tuple(
    f"llm_common.{name}"
    for name in (
        "agents",
        "core",
        "decisions",
        "clients",
        "context",
        "memory",
        "history",
        "tools",
        "trace",
        "errors",
        "folders",
        "prompt",
        "testing",
    )
)
_EXPORTS: dict[str, frozenset[str]] = {}
