"""Find the functions, methods and classes that a question names: `named_definitions`."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from llm_common.context.mentions import is_test

_MAX_NAMES = 64
_MIN_NAME_CHARS = 4
# `snake_case`, `camelCase`, names before a parenthesis or in backquotes, and names after a dot.
_CODE_NAME = re.compile(
    r"\b(?:(?=[A-Za-z]*_[A-Za-z]|[A-Za-z]*[a-z0-9][A-Z])\w+|[A-Za-z_]\w*(?=\())|(?<=`)[A-Za-z_]\w*(?=`)|(?<=\w\.)[A-Za-z_]\w*"
)
# `Class` and `method` of `Class.method`. The lookahead lets `a.b.c` match twice.
_QUALIFIED = re.compile(r"\b([^\W\d]\w*)\.(?=([^\W\d]\w*))")


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


def code_names(query: str) -> list[str]:
    """Return the first 64 names in a query that look like code.

    These are `get_page`, `getPage`, `page()`, `.page`, and names in backquotes.
    """
    names = dict.fromkeys(_CODE_NAME.findall(query))
    return [name for name in names if len(name) >= _MIN_NAME_CHARS][:_MAX_NAMES]


def named_definitions(query: str, definitions: Iterable[Definition]) -> set[Definition]:
    """Return the definitions that a query names.

    A query names a definition by `Class.method`, or by a name that looks like code, if no other
    definition has it. Definitions in tests do not count.

    Args:
        query: The question.
        definitions: The definitions to choose from.
    """
    by_name: defaultdict[str, list[Definition]] = defaultdict(list)
    for definition in definitions:
        if not is_test(definition.path):
            by_name[definition.name].append(definition)

    named: set[Definition] = set()
    for name in code_names(query):
        if len(by_name[name]) == 1:
            named.update(by_name[name])
    for parent, name in set(_QUALIFIED.findall(query)):
        named.update(method for method in by_name[name] if method.parent == parent)
    return named
