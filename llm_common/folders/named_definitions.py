"""Find the functions, methods and classes that a question names: `named_definitions`."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from llm_common.context.mentions import is_test


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition and the lines that it takes.

    Attributes:
        path: The file's path.
        name: The defined name.
        parent: The name of the definition around it, or "".
        first_line: Its first line, from 1, with the decorators and comments above it.
    """

    path: str
    name: str
    parent: str
    first_line: int


def named_definitions(symbols: Iterable[str], definitions: Iterable[Definition]) -> set[Definition]:
    """Return the definitions that a question names.

    It names a definition by `Class.method`, or by a name that looks like code, if no other
    definition has it. Definitions in tests do not count.

    Args:
        symbols: The names in the question that look like code.
        definitions: The definitions to choose from.
    """
    by_name: defaultdict[str, list[Definition]] = defaultdict(list)
    for definition in definitions:
        if not is_test(definition.path):
            by_name[definition.name].append(definition)

    named: set[Definition] = set()
    for symbol in symbols:
        parts = symbol.split(".")
        for name in parts[1:] or parts:
            if len(by_name[name]) == 1:
                named.update(by_name[name])
        for parent, name in pairwise(parts):
            named.update(method for method in by_name[name] if method.parent == parent)
    return named
