"""The demo's plan: what to ask about a folder, and which tasks answer it."""

import re
from collections import defaultdict
from collections.abc import Sequence

from llm_common.apps.cli.demo.workspace import Workspace, split_passages, word_beginnings
from llm_common.folders.candidates import readme_rank
from llm_common.plans import ExecutionPlan, PlannedTask, SubTask
from llm_common.ranking import Hit, best_first, folded, query_terms, scan

_READ_FILES = 4
_SEARCHED_WORDS = 8
_RANKED_WORDS = 16
_MAX_DESCRIPTION_CHARS = 200
_SEARCHED_FILES = 200
_SEARCHED_CHARS = 1_000_000
_RANKED_PASSAGES = 60
_DESCRIPTION = re.compile(r'(?:^|[{,])\s*"?description"?\s*[:=]\s*"([^"]+)"', re.MULTILINE)
_DOCSTRING = re.compile(r'^[rR]?"""(.+?)(?:\.\s|\n\n|""")', re.DOTALL)
_PROSE = re.compile(r"^[A-Za-z].*(?:\n\S.*)*", re.MULTILINE)


def default_question(workspace: Workspace) -> str:
    """What the folder says about itself, asked back as a question about where it does that."""
    description = " ".join(_description(workspace).split())[:_MAX_DESCRIPTION_CHARS]
    return (
        f"Where is this done: {description}" if description else f"What does {workspace.name} do?"
    )


def plan_for(workspace: Workspace, question: str) -> ExecutionPlan:
    """Three tasks: survey the folder, search for the question's words, read the files that promise most.

    A task without anything to search for or to read is left out.
    """
    words = " ".join(query_terms(question)[:_SEARCHED_WORDS])
    steps = {
        "Survey the folder": [
            "List the files of the folder",
            "Count files and lines by kind of file",
        ],
        "Search the text for the words of the question": [f'Grep the words "{words}"']
        if words
        else [],
        "Read the most promising files": [
            f'Read file "{path}"'
            for path in promising_files(workspace, question, limit=_READ_FILES)
        ],
    }
    tasks = []
    for number, (name, parts) in enumerate(steps.items(), start=1):
        sub_tasks = [
            SubTask(id=place, description=step) for place, step in enumerate(parts, start=1)
        ]
        tasks += [PlannedTask(id=number, description=name, sub_tasks=sub_tasks)] if parts else []
    return ExecutionPlan(tasks=tasks)


def promising_files(workspace: Workspace, question: str, *, limit: int) -> list[str]:
    """The files whose passages rank best for the question.

    Where no file has a word of it, the introductions.
    Files that hold most of the question's words are searched, 200 of them and a million characters
    at most. Each of their passages gives its file `1 / (5 + rank)`, so that several good passages
    count for more than one.
    """
    texts = _searched(workspace, word_beginnings(question)[:_RANKED_WORDS])
    passages = [
        (path, passage.text) for path, text in texts.items() for passage in split_passages(text)
    ]
    matches = scan(
        question, [(folded(path), folded(text)) for path, text in passages], weights=(2.0, 1.0)
    )
    found = best_first(
        Hit(path, match) for (path, _), match in zip(passages, matches, strict=True) if match
    )
    scores: defaultdict[str, float] = defaultdict(float)
    for rank, hit in enumerate(found[:_RANKED_PASSAGES]):
        scores[hit.key] += 1 / (5 + rank)
    ranked = sorted(scores, key=lambda path: (-scores[path], path))
    return (ranked or sorted(workspace.paths, key=lambda path: (readme_rank(path), path)))[:limit]


def _searched(workspace: Workspace, beginnings: Sequence[str]) -> dict[str, str]:
    """The files worth ranking, those with most of the words first."""
    held: dict[str, int] = {}
    for path in workspace.paths:
        text = workspace.text(path).lower()
        if number := sum(word in text for word in beginnings):
            held[path] = number
    texts: dict[str, str] = {}
    chars_left = _SEARCHED_CHARS
    for path in sorted(held, key=lambda path: (-held[path], path))[:_SEARCHED_FILES]:
        text = workspace.text(path)
        if len(text) <= chars_left:
            texts[path] = text
            chars_left -= len(text)
    return texts


def _description(workspace: Workspace) -> str:
    """What the project file, the package or the readme says it is; "" when none says anything."""
    top = [path for path in workspace.paths if "/" not in path]
    for path, pattern in [
        *(
            (path, _DESCRIPTION)
            for path in top
            if path in {"pyproject.toml", "package.json", "Cargo.toml"}
        ),
        *((path, _DOCSTRING) for path in top if path == "__init__.py"),
        *((path, _PROSE) for path in top if path.lower().startswith("readme")),
    ]:
        if match := pattern.search(workspace.text(path)):
            return match[match.lastindex or 0]
    return ""
