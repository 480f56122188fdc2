"""Write the lists of names in docs/reference: `python tools/reference_index.py`.

The pages of a package are `docs/reference/PACKAGE/*.md`. Their order is that of `mkdocs.yml`. What
an `index.md` has above the mark is written by hand.
"""

import ast
import inspect
import re
from importlib import import_module
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MARK = "<!-- written by tools/reference_index.py -->\n"


def index_pages() -> list[Path]:
    """Return the pages that have a generated list."""
    pages = sorted((DOCS / "reference").glob("*/index.md"))
    return [page for page in pages if MARK in page.read_text(encoding="utf-8")]


def with_list(page: Path) -> str:
    """Return the text of an index page with its list of names."""
    text = page.read_text(encoding="utf-8").partition(MARK)[0]
    blocks = [names_of(path) for path in pages_beside(page)]
    return text + MARK + "\n" + "\n".join(blocks)


def pages_beside(index: Path) -> list[Path]:
    """Return the pages of a package in the order of the navigation."""
    folder = index.parent.relative_to(DOCS).as_posix()
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = re.findall(rf": {re.escape(folder)}/(\w+\.md)$", navigation, re.MULTILINE)
    return [index.parent / name for name in names if name != index.name]


def names_of(page: Path) -> str:
    """Return a heading and a table with one line for each name of a page."""
    text = page.read_text(encoding="utf-8")
    title = text.splitlines()[0].removeprefix("# ")
    rows = [f"## [{title}]({page.name})\n", "| Name | Description |", "|---|---|"]
    for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE):
        name = path.rpartition(".")[2]
        rows.append(f"| [`{name}`]({page.name}#{path}) | {summary(path)} |")
    return "\n".join(rows) + "\n"


def summary(path: str) -> str:
    """Return the first line of a docstring."""
    module, _, name = path.rpartition(".")
    value = getattr(import_module(module), name)
    if inspect.isclass(value) or inspect.isfunction(value):
        docstring = value.__doc__ or ""
    else:
        docstring = value_docstring(ROOT / module.replace(".", "/"), name)
    first_line = docstring.strip().partition("\n")[0]
    if not first_line:
        raise ValueError(f"{path} has no docstring")
    return first_line.replace("|", r"\|")


def value_docstring(folder: Path, name: str) -> str:
    """Return the text below the assignment of a value, which exists in the source only."""
    for path in sorted(folder.rglob("*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for statement, follower in pairwise(body):
            if isinstance(statement, ast.Assign):
                target = statement.targets[0]
            elif isinstance(statement, ast.AnnAssign):
                target = statement.target
            else:
                continue
            if not isinstance(target, ast.Name) or target.id != name:
                continue
            if isinstance(follower, ast.Expr) and isinstance(follower.value, ast.Constant):
                return str(follower.value.value)
    return ""


if __name__ == "__main__":
    for page in index_pages():
        page.write_text(with_list(page), encoding="utf-8")
        print(f"wrote {page.relative_to(ROOT)}")
