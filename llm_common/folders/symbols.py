"""What a source file defines: names for ranking, and the lines where a file may be divided."""

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from llm_common.folders.languages import DEFINITIONS, language_of

_MAX_SIGNATURE_CHARS = 140
_LINE_END = re.compile(r"\n")
_OPEN_SIGNATURE = re.compile(r"[^\n]*\([ \t]*\n[^()]*(?:\([^()]*\)[^()]*){0,20}\)[^\n{]*")


@dataclass(frozen=True, slots=True)
class Symbol:
    """One definition: its name, its line from 1, its indentation, its signature in one line."""

    name: str
    line: int
    indent: int
    signature: str


def defined_names(path: str, text: str) -> str:
    """Return the names that a file defines, with spaces between.

    "" for a language that is not known. Linear, no parsing.
    """
    # Two patterns may find the same definition.
    by_start = {match.start("name"): match["name"] for match in _definitions(path, text)}
    return " ".join(by_start.values())


def symbols_of(path: str, text: str, *, parse: bool = True) -> list[Symbol]:
    """Return what a file defines, in the order of the lines.

    Args:
        path: Names the language.
        text: The file.
        parse: True reads Python by its grammar, which finds signatures of several lines whole. Text
            that does not parse, and every other language, is read line by line.
    """
    if parse and language_of(path) == "python":
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # string escapes of third-party code
                return sorted(
                    _python_symbols(ast.parse(text), indent=0), key=lambda symbol: symbol.line
                )
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass  # read below, without a grammar
    ends = [match.start() for match in _LINE_END.finditer(text)]
    by_line: dict[int, Symbol] = {}
    for match in _definitions(path, text):
        line = bisect_right(ends, match.start("name") - 1) + 1
        raw = text[match.start() : match.start() + 4 * _MAX_SIGNATURE_CHARS]
        opened = _OPEN_SIGNATURE.match(raw)
        signature = opened.group() if opened else raw.partition("\n")[0]
        signature = _one_line(signature.strip().rstrip("{ \t"))
        indent = len(raw) - len(raw.lstrip())
        by_line.setdefault(line, Symbol(match["name"], line, indent, signature))
    return [by_line[line] for line in sorted(by_line)]


def _definitions(path: str, text: str) -> Iterator[re.Match[str]]:
    for pattern in DEFINITIONS.get(language_of(path) or "", ()):
        yield from pattern.finditer(text)


def _python_symbols(parent: ast.AST, *, indent: int) -> Iterator[Symbol]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            signature = _one_line(f"{keyword} {node.name}({ast.unparse(node.args)}){returns}")
            yield Symbol(node.name, node.lineno, indent, signature)
        elif isinstance(node, ast.ClassDef):
            bases = ", ".join(map(ast.unparse, [*node.bases, *node.keywords]))
            signature = _one_line(f"class {node.name}({bases})" if bases else f"class {node.name}")
            yield Symbol(node.name, node.lineno, indent, signature)
            yield from _python_symbols(node, indent=indent + 4)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not indent:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id.isupper():
                yield Symbol(target.id, node.lineno, 0, target.id)
        elif isinstance(node, ast.If | ast.Try):
            yield from _python_symbols(node, indent=indent)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SIGNATURE_CHARS else f"{line[: _MAX_SIGNATURE_CHARS - 1]}…"
