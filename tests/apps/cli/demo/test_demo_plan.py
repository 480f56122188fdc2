"""The demo's plan: its question, its tasks and the files it reads."""

import json
from pathlib import Path

import pytest

from llm_common.apps.cli.demo.demo_plan import default_question, plan_for, promising_files
from llm_common.apps.cli.demo.workspace import Workspace

STANDARD_JSON = Workspace(Path(json.__file__).parent)


def test_a_plan_surveys_searches_and_reads() -> None:
    plan = plan_for(STANDARD_JSON, "how are strings escaped")
    assert [task.id for task in plan.tasks] == [1, 2, 3]
    steps = [[step.description for step in task.sub_tasks] for task in plan.tasks]
    assert steps[1] == ['Grep the words "strings escaped"']
    assert steps[2][0] == 'Read file "encoder.py"'
    assert len(steps[2]) == 4


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("how are strings escaped", "encoder.py"),
        ("where is JSONDecodeError raised", "decoder.py"),
        ("command line tool to pretty-print", "tool.py"),
    ],
)
def test_the_file_that_answers_promises_most(question: str, first: str) -> None:
    assert promising_files(STANDARD_JSON, question, limit=1) == [first]


def test_a_question_without_known_words_reads_the_introductions(tmp_path: Path) -> None:
    for name in ("zz.py", "main.py", "README.md"):
        (tmp_path / name).write_text("text\n")
    assert promising_files(Workspace(tmp_path), "zebra", limit=2) == ["README.md", "main.py"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pyproject.toml", '[project]\nname = "x"\ndescription = "Packs context."\n'),
        ("package.json", '{"name": "x", "description": "Packs context."}'),
        ("__init__.py", '"""Packs context. And more."""\n'),
        ("README.md", "# x\n\n[![badge](a)](b)\n\nPacks context.\n\nMore.\n"),
    ],
)
def test_the_question_is_what_the_folder_says_about_itself(
    tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    question = default_question(Workspace(tmp_path))
    assert question.rstrip(".") == "Where is this done: Packs context"


def test_an_empty_folder_has_nothing_to_read(tmp_path: Path) -> None:
    assert [task.id for task in plan_for(Workspace(tmp_path), "anything").tasks] == [1, 2]


def test_a_question_without_words_is_not_searched_for() -> None:
    assert [task.id for task in plan_for(STANDARD_JSON, "?!").tasks] == [1, 3]


def test_a_folder_that_says_nothing_is_asked_by_name(tmp_path: Path) -> None:
    assert default_question(Workspace(tmp_path)) == f"What does {tmp_path.name} do?"
