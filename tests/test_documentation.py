"""The programs of the pages run, every page is reachable, and names on pages exist."""

import asyncio
import importlib
import os
import re
from contextlib import AsyncExitStack, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pydantic import BaseModel

from benchmarks import plots
from llm_common._exports import PUBLIC_PACKAGES
from tests.endpoint import replying
from tools import reference_index
from tools.site_check import foreign_loads

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
}
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROOT_PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("*.md"))}
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]

# Other tests run the programs of these pages. Most need packages or servers that `make test` does
# not install.
RUN_ELSEWHERE = {
    "gateway.md": "tests/apps/gateway/test_gateway_docs.py",
    "reference/testing/index.md": "tests/contracts/test_copies.py",
    "telemetry.md": "tests/test_telemetry.py",
    "trace.md": "tests/trace/test_docs.py",
} | {
    page: f"tests/integrations/test_{Path(page).stem}.py"
    for page in PAGES
    if page.startswith("integrations/")
}

FENCE = re.compile(
    r"(?:^<!-- (?P<note>[^>]*?) -->\n)?^```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
WITH_A_MODEL = "needs a model, which answers:\n"
MAX_BLOCKS_RUN_ELSEWHERE = 4


@dataclass(frozen=True)
class Program:
    """One Python block of a page."""

    line: int
    source: str
    note: str
    output: str | None  # the `output` block below it

    @property
    def runner(self) -> str | None:
        """Return the test file that runs it, if its comment names one."""
        match = re.search(r"run by (tests/\S+)", self.note)
        return match and match[1]


def programs_of(page: str) -> list[Program]:
    text = PAGES[page]
    fences = [*FENCE.finditer(text)]
    followers: list[re.Match[str] | None] = [*fences[1:], None]
    return [
        Program(
            line=text.count("\n", 0, fence.start("text")),
            source=fence["text"],
            note=fence["note"] or "",
            output=after["text"] if after and after["kind"] == "output" else None,
        )
        for fence, after in zip(fences, followers, strict=False)
        if fence["kind"] == "python"
    ]


RUN_HERE = [
    page
    for page in PAGES
    if page not in RUN_ELSEWHERE and any(not program.runner for program in programs_of(page))
]


def run(program: Program, page: str, names: dict[str, Any]) -> str:
    """Return what a block prints. Tracebacks show the line of the page."""
    output = StringIO()
    # Empty lines above the block make the lines of a traceback those of the page.
    code = compile("\n" * program.line + program.source, DOCS / page, "exec")
    with redirect_stdout(output):
        exec(code, names)
    return output.getvalue()


@pytest.mark.parametrize("page", RUN_HERE)
async def test_the_programs_of_a_page_print_the_output_below_them(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for program in programs_of(page):
        if program.runner:
            continue
        async with AsyncExitStack() as stack:
            stack.enter_context(patch.dict(os.environ))
            if program.note.startswith(WITH_A_MODEL):
                replies = program.note.removeprefix(WITH_A_MODEL).splitlines()
                settings, _ = await stack.enter_async_context(replying(*replies))
                os.environ |= settings
            printed = await asyncio.to_thread(run, program, page, names)
        assert program.output is None or printed == program.output, f"line {program.line}"


def test_few_programs_run_elsewhere_and_their_tests_exist() -> None:
    blocks = [
        (page, program.runner) for page in PAGES for program in programs_of(page) if program.runner
    ]
    assert len(blocks) <= MAX_BLOCKS_RUN_ELSEWHERE
    for page, runner in [*blocks, *RUN_ELSEWHERE.items()]:
        assert Path(page).stem in (ROOT / runner).read_text(encoding="utf-8"), (
            f"{runner} does not run {page}"
        )


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(re.findall(r": (\S+\.md)$", NAVIGATION, re.MULTILINE)) == sorted(PAGES)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site build them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    names = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in headings]
    return {*names, *(heading.replace(" ", "-") for heading in words)}


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *DOCS.rglob("*.md")], ids=lambda page: page.name
)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\(([^)\s#:]+)(?:#([^)]*))?\)", text):
        linked = page.parent / target
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked.read_text(encoding="utf-8")), anchor


def test_hosted_checks_run_the_local_ones_and_nothing_else() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert re.findall(r"\brun: *(.+)", workflow) == [".ci/run"]


def test_local_checks_run_each_make_command_of_the_readme() -> None:
    checks = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = set(re.findall(r"^make \w+", README, re.MULTILINE))
    assert {"make demo", "make test"} <= commands
    assert commands <= set(re.findall(r"^step (make \w+)$", checks, re.MULTILINE))


def test_the_readme_shows_each_framework_as_its_page_does() -> None:
    rows = re.findall(r"^\| .*\(docs/integrations/.*$", README, re.MULTILINE)
    pages: list[str] = []
    missing: list[tuple[str, str]] = []
    for row in rows:
        linked = re.findall(r"\(docs/(integrations/\w+\.md)\)", row)
        pages += linked
        for code in re.findall("`([^`]+)`", row):
            missing += [(page, code) for page in linked if code not in PAGES[page]]
    assert sorted(pages) == [page for page in PAGES if page.startswith("integrations/")]
    assert missing == []


def test_the_modules_that_the_design_names_exist() -> None:
    missing = []
    for row in re.findall(r"^\| (`[\w/.]+/`) \|.*\| ([^|]*) \|$", PAGES["design.md"], re.MULTILINE):
        folder = ROOT / "llm_common" / row[0].strip("`")
        for module in re.findall(r"`([\w.]+\.py)`", row[1]):
            if not (folder / module).exists():
                missing.append(f"{folder.name}/{module}")
    assert missing == []


def test_pages_name_make_targets_that_exist_and_contributing_lists_them_all() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = dict(re.findall(r"^([a-z-]+):(.*)", makefile, re.MULTILINE))
    for page, text in [*PAGES.items(), *ROOT_PAGES.items()]:
        assert {*re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)} <= targets.keys(), page
    described = {name for name, rest in targets.items() if "## " in rest} - {"help"}
    assert {*re.findall(r"\bmake ([a-z-]+)", ROOT_PAGES["CONTRIBUTING.md"])} == described


# On the public index this name belongs to another project.
INSTALLS_THE_NAMESAKE = re.compile(
    r"\b(?:pipx?|uv|poetry)\b[^\n;&|`@]*\b(?:install|add|run)\b[^\n;&|`@]*\bllm[-_]common\b"
    r"(?![-_/.]|\[[\w,{}-]+\] @ git\+| @ git\+)"
    r"|\bllm[-_]common\[(?![\w,{}-]+\] @ git\+)(?=[a-z{])"
)


def test_every_install_command_names_the_repository() -> None:
    files = [ROOT / "Makefile", *ROOT.glob("*.*")]
    for folder in (".ci", "llm_common", "docs", "examples", "benchmarks", "tests", "tools"):
        files.extend((ROOT / folder).rglob("*"))
    lines: list[str] = []
    for path in files:
        if path.is_file() and path.suffix in {"", ".py", ".md", ".toml", ".txt", ".yml"}:
            text = path.read_text(encoding="utf-8", errors="replace")
            lines.extend(line for line in text.splitlines() if INSTALLS_THE_NAMESAKE.search(line))
    assert lines == []


# Left out of `__all__`, so that a star import works without the extra.
NEEDS_AN_EXTRA = {
    "llm_common.agents": ["ObjectContextPointerStore"],
    "llm_common.memory": ["PostgresMemory"],
}


REFERENCE = sorted(
    {page.split("/")[1].removesuffix(".md") for page in PAGES if "reference/" in page}
)


def reference_of(package: str) -> list[str]:
    """Return the pages of a package: one, or a folder with an index."""
    folder = f"reference/{package}/"
    return [page for page in PAGES if page == f"reference/{package}.md" or page.startswith(folder)]


def module_of(package: str) -> str:
    """Return the full name of a package, which is the heading of its first page."""
    pages = reference_of(package)
    first = f"reference/{package}/index.md" if len(pages) > 1 else pages[0]
    return PAGES[first].splitlines()[0].removeprefix("# ")


def test_error_messages_send_to_the_packages_that_the_reference_describes() -> None:
    """Other packages export names for the applications and integrations of the library alone."""
    documented = {f"llm_common.{name}" for name in REFERENCE}
    assert documented - {*PUBLIC_PACKAGES} == {"llm_common.gateway", "llm_common.integrations"}
    assert {*PUBLIC_PACKAGES} <= documented


# Modules of integrations import frameworks that are not installed here.
@pytest.mark.parametrize("package", [name for name in REFERENCE if name != "integrations"])
def test_the_reference_of_a_package_describes_exactly_the_public_names(package: str) -> None:
    module = module_of(package)
    described: list[str] = []
    for page in reference_of(package):
        pattern = rf"^::: {re.escape(module)}(?:\.\w+)*\.(\w+)$"
        described += re.findall(pattern, PAGES[page], re.MULTILINE)
    public = [*importlib.import_module(module).__all__, *NEEDS_AN_EXTRA.get(module, ())]
    assert sorted(described) == sorted(public)


@pytest.mark.parametrize("package", [name for name in REFERENCE if name != "integrations"])
def test_the_docstring_of_a_model_describes_each_field(package: str) -> None:
    module = importlib.import_module(module_of(package))
    for name in module.__all__:
        model = getattr(module, name)
        if isinstance(model, type) and issubclass(model, BaseModel):
            described = re.findall(r"^ {8}(\w+):", model.__doc__ or "", re.MULTILINE)
            assert model.model_fields.keys() <= {*described}, name


def test_the_reference_describes_each_name_of_an_integration_that_a_page_imports() -> None:
    described = set()
    for page in reference_of("integrations"):
        described.update(re.findall(r"^::: (llm_common\.\S+)$", PAGES[page], re.MULTILINE))
    imported: set[str] = set()
    for text in PAGES.values():
        for module, names in re.findall(
            r"^from (llm_common\.integrations\.\w+) import (.+)$", text, re.MULTILINE
        ):
            imported.update(f"{module}.{name}" for name in names.split(", "))
    assert "llm_common.integrations.langchain.LLMCommonMiddleware" in imported
    assert imported <= described


@pytest.mark.parametrize("page", reference_index.index_pages(), ids=lambda page: page.parent.name)
def test_an_index_has_one_line_for_each_name_of_its_package(page: Path) -> None:
    refresh = "run python tools/reference_index.py, and review the change"
    assert page.read_text(encoding="utf-8") == reference_index.with_list(page), refresh
    folder = page.parent.relative_to(DOCS).as_posix()
    assert len([name for name in PAGES if name.startswith(f"{folder}/")]) > 1


def test_every_name_in_the_table_of_parts_can_be_imported_from_the_module_beside_it() -> None:
    table = PAGES["index.md"].partition("## The parts")[2]
    cells = [row.split("|")[2] for row in table.splitlines() if row.startswith("| ")]
    listed = set()
    for cell in cells:
        module = re.search(r"\(`(llm_common\.[\w.]+)`\)", cell)
        for name in re.findall(r"`([A-Z]\w+|[a-z]+_folder|format_\w+)`", cell):
            listed.add((module[1] if module else "llm_common.agents", name))
    assert ("llm_common.agents", "ToolSelector") in listed
    assert ("llm_common.folders", "pack_folder") in listed
    missing = [
        (module, name)
        for module, name in listed
        if not hasattr(importlib.import_module(module), name)
    ]
    assert missing == []


@pytest.mark.parametrize(("path", "svg"), plots.plots().items(), ids=lambda value: str(value)[-12:])
def test_a_plot_has_the_figures_of_the_page(path: Path, svg: str) -> None:
    assert path.read_text(encoding="utf-8") == svg, "run python -m benchmarks.plots"
    assert "<script" not in svg
    assert f"images/{path.name}" in PAGES["benchmarks.md"]


@pytest.mark.parametrize(
    ("html", "foreign"),
    [
        ('<script src="https://a.example/x.js"></script>', True),
        ('<link rel="stylesheet" href="//a.example/x.css">', True),
        ('<img srcset="x.png, https://a.example/x.png 2x">', True),
        ("<style>@import 'https://a.example/x.css';</style>", True),
        ('<p style="background: url(http://a.example/x.png)">', True),
        ('<pre class="mermaid">graph</pre>', True),
        (
            '<a href="https://a.example">read</a><link rel="canonical" href="https://a.example">',
            False,
        ),
        ('<script src="assets/x.js"></script><img src="data:image/png;base64,AA//">', False),
    ],
)
def test_a_page_that_loads_from_another_host_is_noticed(html: str, foreign: bool) -> None:
    assert bool(foreign_loads(html)) is foreign
