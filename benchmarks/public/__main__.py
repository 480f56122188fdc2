"""Measure llm-common on public data, and write `docs/evidence.md`.

    python -m benchmarks.public FOLDER                      # all tables
    python -m benchmarks.public FOLDER --tables tools folds # some
    python -m benchmarks.public FOLDER --limit 5            # few cases of each, to try it
    python -m benchmarks.public FOLDER --write              # and write the page

With `--limit` and `--write` the page says that it is a draft.

Ends with 1 if an input of an asked table is missing or different. Tables run in two processes, or
as many as `--jobs` says.
"""

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from benchmarks.public.compint import rules
from benchmarks.public.contextbench import contextbench
from benchmarks.public.conversations import bundles, sessions
from benchmarks.public.folding import folds
from benchmarks.public.inputs import MANIFEST, InputError, Inputs, manifest_of
from benchmarks.public.issues import swe_bench_lite
from benchmarks.public.knowledge import knowledge
from benchmarks.public.loc_bench import loc_bench
from benchmarks.public.outputs import previews
from benchmarks.public.page import PAGE, page_of, section_text
from benchmarks.public.records import queries
from benchmarks.public.tables import Section
from benchmarks.public.tool_search import tools

Measure = Callable[[Inputs, int | None], Section]

# In the order of the page.
TABLES: Final[dict[str, Measure]] = {
    "sessions": sessions,
    "bundles": bundles,
    "previews": previews,
    "queries": queries,
    "folds": folds,
    "rules": rules,
    "tools": tools,
    "knowledge": knowledge,
    "issues": swe_bench_lite,
    "contextbench": contextbench,
    "locbench": loc_bench,
}
# The longest first, so that no process waits at the end.
LONGEST_FIRST: Final = (
    "locbench",
    "issues",
    "contextbench",
    "rules",
    "knowledge",
    "previews",
    "folds",
    "bundles",
)


def _measured(name: str, folder: Path, limit: int | None) -> tuple[Section, str]:
    """Return a section, and how long it took."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    section = TABLES[name](Inputs(folder, manifest_of(MANIFEST)), limit)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return section, f"{wall_s:.0f} s, {cpu_s:.0f} s of CPU time"


def measure_all(
    names: list[str], folder: Path, limit: int | None, jobs: int
) -> tuple[dict[str, Section], dict[str, str]]:
    """Return the sections by table, and why a table failed."""
    sections: dict[str, Section] = {}
    failures: dict[str, str] = {}
    with ProcessPoolExecutor(jobs) as pool:
        futures: dict[Future[tuple[Section, str]], str] = {}
        for name in sorted(names, key=_place):
            futures[pool.submit(_measured, name, folder, limit)] = name
        for future in as_completed(futures):
            name = futures[future]
            try:
                sections[name], duration = future.result()
            except InputError as exc:
                failures[name] = str(exc)
                print(f"{name}: skipped, {exc}", file=sys.stderr, flush=True)
                continue
            print(f"{name}: {duration}", file=sys.stderr, flush=True)
    return {name: sections[name] for name in TABLES if name in sections}, failures


def _place(name: str) -> int:
    return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the repositories, see benchmarks/README.md")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=[*TABLES])
    parser.add_argument("--limit", type=int, help="few cases of each set, to try the command")
    parser.add_argument("--jobs", type=int, default=2, help="processes, default 2")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    if options.write and set(options.tables) != {*TABLES}:
        parser.error("--write needs all tables")
    sections, failures = measure_all(
        options.tables, options.folder.resolve(), options.limit, options.jobs
    )
    for section in sections.values():
        print(f"\n{section_text(section)}")
    if options.write:
        page = page_of(sections.values(), failures, manifest_of(MANIFEST), limit=options.limit)
        PAGE.write_text(page, encoding="utf-8")
        for section in sections.values():
            for name, text in section.files.items():
                PAGE.with_name(name).write_text(text, encoding="utf-8")
    if failures:
        sys.exit(f"skipped: {', '.join(failures)}")


if __name__ == "__main__":
    main()
