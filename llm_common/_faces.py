"""`late_names`: a package's public face whose names are imported when they are first asked for (PEP 562)."""

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module

__all__ = ["late_names"]


def late_names(package: str, homes: Mapping[str, Collection[str]]) -> Callable[[str], object]:
    """The `__getattr__` of a package that imports a name's module on demand, and remembers the name.

    Args:
        package: The package's `__name__`.
        homes: The names that each of its modules is home to, by the module's name below the package.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
