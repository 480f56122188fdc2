"""Write the sections of a run as `docs/evidence.md`."""

import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from benchmarks.public.inputs import Input
from benchmarks.public.tables import Section, ahead_of_ours, is_compared

__all__ = ["PAGE", "page_of", "section_text"]

PAGE: Final = Path(__file__).parents[2] / "docs" / "evidence.md"
PACKAGES: Final = ("wordllama", "fastmcp")


def section_text(section: Section) -> str:
    """Return a section in Markdown."""
    parts = [f"## {section.title}", _unwrapped(section.about)]
    for table in section.tables:
        parts.append(table.markdown())
        ahead = ahead_of_ours(table)
        if is_compared(table):
            lines = [f"- {phrase}" for phrase in ahead] or ["- none of the other rows"]
            parts.append("Ahead of llm-common:")
            parts.append("\n".join(lines))
    parts += section.notes
    return "\n\n".join(parts)


def page_of(
    sections: Iterable[Section],
    failures: Mapping[str, str],
    manifest: Mapping[str, Input],
    *,
    limit: int | None = None,
) -> str:
    """Return the page.

    Args:
        sections: What was measured.
        failures: Why a table could not be measured, by its name.
        manifest: The inputs.
        limit: How many cases of each set were measured. None for all.
    """
    parts = [_unwrapped(INTRODUCTION), f"Measured on {_where_and_when()}."]
    if limit is not None:
        parts.append(f"**This page is a draft, with at most {limit} cases of each kind.**")
    parts += map(section_text, sections)
    parts += [
        _unwrapped(NOT_RUN),
        *(f"Not measured: {name}, {why}" for name, why in failures.items()),
    ]
    parts += ["## Data", _unwrapped(DATA), _sources(manifest)]
    return "\n\n".join(parts) + "\n"


def _unwrapped(text: str) -> str:
    """Return paragraphs with one line each, as in the other pages."""
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def _where_and_when() -> str:
    versions = [f"{platform.python_implementation()} {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return f"{datetime.now(UTC):%Y-%m-%d} with {', '.join(versions)}"


def _sources(manifest: Mapping[str, Input]) -> str:
    lines = ["| repository | commit | licence | files |", "|---|---|---|---|"]
    by_repository: dict[str, list[Input]] = {}
    for source in manifest.values():
        by_repository.setdefault(source.repository, []).append(source)
    for repository, files in by_repository.items():
        link = f"[{repository}](https://github.com/{repository})"
        first = files[0]
        lines.append(f"| {link} | `{first.commit[:12]}` | {first.licence} | {len(files)} |")
    return "\n".join(lines)


INTRODUCTION: Final = """
# Evidence

How well llm-common chooses, on public data, beside baselines of the same run and beside what others
report. `make bench-public DATA=folder WRITE=1` measures everything and writes this page.

**What a reader feels first**, each with its command and its limits in [benchmarks](benchmarks.md):

- **Nothing false.** Of 3,017 counts that previews state about 4,000 questions, 0 are false, by an
  oracle that knows the truth (`python -m benchmarks.quality_claims`).

- **What I said held.** What a user says for the conversation stays word for word when the prompt is
  folded: see [folded histories](#folded-histories-what-the-user-said-for-the-session) (`make bench-public
  TABLES=rules`).

- **Calls until the answer.** A reader that does only what the preview says takes 1.47 calls on
  average, with the call of the tool, and 984 tokens (`python -m benchmarks.quality_calls`).

**What is measured.** Retrieval and selection: whether the evidence for an answer is in what a model
would see, within a budget. This can be measured without a model, repeated by anyone, and is the
part of an agent that this library is responsible for.

**What is not measured.** Answers. No model reads anything here, so no figure says how many questions
an agent answers or how many issues it solves. Speed and cost are in [benchmarks](benchmarks.md).

**How to read it.** Rows in bold are ours, with one default configuration. Rows marked "reported"
are figures of others with the thread or paper that states them. We did not run those systems. Their
units and splits may differ, as the text says. All other rows are baselines that the same run
measured. Where constants were chosen on a part of the data, the figure in parentheses is the part
that was held back, and it is the one to trust. No constant was chosen on held-back data, but reviews
of earlier versions ran on some of it, and what they found wrong led to changes. Under each table are
all rows that are ahead of ours.
"""

NOT_RUN: Final = """
## Not run

LOCA-bench was not run: its environments are local files, but each of its 15 tasks needs a scripted
solver in place of a model, and none is written. LongMemEval is left out, since no public repository
that we know of has its data as plain files.
"""

DATA: Final = """
`benchmarks/public/inputs.toml` names each file by repository, commit, path and SHA-256. A missing or
different file is an error, and its table is left out. None of the data is part of this repository.
The folder has an entry `{owner}+{name}` for each repository: a checkout at the commit, or a folder
with the git directory `repo`. The tables about code need git directories of the repositories whose
issues they search.
"""
