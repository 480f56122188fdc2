"""Lazy exports of packages, and the error for a name that a package does not export.

A package with lazy exports has a dictionary from name to module, `_MODULES`, and looks up names in
it (PEP 562). The same names are in `__all__`, and under `TYPE_CHECKING` for type checkers.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec

# The documented packages. An error message searches them in this order, since some names are
# exported by several.
PUBLIC_PACKAGES = (
    "llm_common.agents",
    "llm_common.core",
    "llm_common.clients",
    "llm_common.context",
    "llm_common.memory",
    "llm_common.history",
    "llm_common.tools",
    "llm_common.trace",
    "llm_common.errors",
    "llm_common.folders",
    "llm_common.testing",
)


def lazy_exports(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports its names on first use.

    Args:
        package: Name of the package.
        modules: The module of each name. No name may be that of a module in the package, because
            the import system would replace the one by the other.
    """

    def import_name(name: str) -> object:
        if name not in modules:
            raise missing_name(package, name)
        return getattr(import_module(modules[name]), name)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return import_name, list_names


def missing_name(package: str, name: str) -> Exception:
    """Return the error for a missing name, which names the public package that has it.

    An `ImportError` keeps its text in `from package import name`, an `AttributeError` does not.
    """
    # `from package import submodule` looks up the attribute before it imports the submodule.
    is_package = "__path__" in vars(import_module(package))
    is_submodule = is_package and find_spec(f"{package}.{name}") is not None
    if not name.startswith("_") and not is_submodule:
        for public in PUBLIC_PACKAGES:
            module = import_module(public)
            # `_MODULES` also has the names that need an extra, which `__all__` leaves out.
            if name in module.__all__ or name in getattr(module, "_MODULES", ()):
                text = (
                    f"cannot import name {name!r} from {package!r}. "
                    f"Write: from {public} import {name}"
                )
                return ImportError(text, name=package)
    return AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
