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
    classes: list[str] = []
    groups: list[str] = []
    for path in pages_beside(page):
        title = title_of(path)
        rows = rows_of(path)
        if len(rows) == 1 and f"`{title}`" in rows[0]:  # the page of one class
            classes += rows
        else:
            groups.append(table(f"[{title}]({path.name})", rows))
    if classes:
        groups.insert(0, table("Classes with their own page", classes))
    return text + MARK + "\n" + "\n".join(groups)


def pages_beside(index: Path) -> list[Path]:
    """Return the pages of a package in the order of the navigation."""
    folder = index.parent.relative_to(DOCS).as_posix()
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = re.findall(rf": {re.escape(folder)}/(\w+\.md)$", navigation, re.MULTILINE)
    return [index.parent / name for name in names if name != index.name]


def title_of(page: Path) -> str:
    """Return the title of a page."""
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def rows_of(page: Path) -> list[str]:
    """Return one line of a table for each name of a page."""
    rows = []
    for path in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        name = path.rpartition(".")[2]
        rows.append(f"| [`{name}`]({page.name}#{path}) | {summary(path)} |")
    return rows


def table(heading: str, rows: list[str]) -> str:
    """Return a heading with a table of names below it."""
    return "\n".join([f"## {heading}\n", "| Name | Description |", "|---|---|", *rows, ""])


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
