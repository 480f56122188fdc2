"""Which items the patterns of a request keep out."""

import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import translate
from typing import Final

from llm_common.context.pool import DataPoolSnapshot
from llm_common.context.request import Kind

__all__ = ["excluded_items"]

_ANY_DEPTH: Final = "**"


def excluded_items(pool: DataPoolSnapshot, patterns: Sequence[str]) -> frozenset[tuple[Kind, str]]:
    """Kind and id of the items whose path, name or id one of the patterns matches, in any case.

    As in a `.gitignore`: a pattern without a slash matches at any depth, one with a slash from the root on, `*` stays
    within a component, `**` spans any number of them, and what matches a folder covers what it holds. Only files have
    paths and names; the project's id is its name.
    """
    globs = [glob for pattern in patterns if (glob := _glob(pattern))]
    if not globs:
        return frozenset()
    return frozenset(
        (kind, item_id)
        for kind, item_id, spellings in _items(pool)
        if any(_matches(glob, _components(spelling.lower())) for spelling in spellings for glob in globs)
    )


def _items(pool: DataPoolSnapshot) -> Iterator[tuple[Kind, str, set[str]]]:
    for file in pool.context_files:
        yield "file", file.id, {file.path, file.name, file.id}
    for turn in pool.session_log:
        yield "turn", turn.id, {turn.id}
    for snippet in pool.memory_hits:
        yield "memory", snippet.id, {snippet.id}
    for pointer in pool.tool_outputs:
        yield "output", pointer.pointer_id, {pointer.pointer_id}
    if pool.project_state:
        yield "project", pool.project_state.name, {pool.project_state.name}


# A component's test; None stands for `**`.
_Glob = tuple[Callable[[str], object] | None, ...]


def _glob(pattern: str) -> _Glob:
    parts = _components(pattern.lower())
    if len(parts) == 1 and "/" not in pattern.rstrip("/"):
        parts = (_ANY_DEPTH, *parts)
    return tuple(
        None if part == _ANY_DEPTH else re.compile(translate(part)).match
        for part, before in zip(parts, ("", *parts), strict=False)
        if (part, before) != (_ANY_DEPTH, _ANY_DEPTH)
    )


def _matches(glob: _Glob, parts: tuple[str, ...]) -> bool:
    if not glob:
        return True
    test, rest = glob[0], glob[1:]
    if test is None:
        return any(_matches(rest, parts[skipped:]) for skipped in range(len(parts) + 1))
    return bool(parts) and bool(test(parts[0])) and _matches(rest, parts[1:])


def _components(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.replace("\\", "/").split("/") if part not in {"", "."})
