import asyncio
import hashlib
import io
import json
import math
import os
import re
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.public.__main__ import TABLES, main
from benchmarks.public.bm25 import BM25, code_words, words
from benchmarks.public.compint import is_held, placed
from benchmarks.public.contextbench import line_scores, repository_of
from benchmarks.public.inputs import MANIFEST, Input, InputError, Inputs, manifest_of
from benchmarks.public.issues import edited_lines
from benchmarks.public.page import PAGE, page_of, section_text
from benchmarks.public.records import records_of_text
from benchmarks.public.repositories import Issue, at_each_commit
from benchmarks.public.tables import (
    Row,
    Section,
    Share,
    Table,
    ahead_of_ours,
    is_compared,
    reported_rows,
    share_of,
)
from benchmarks.public.trees import Tree
from benchmarks.talks import Question, Turn, outcome_of, questions_of, turns_of
from llm_common.core import DefaultCounter


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()


def _commit(folder: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "a commit")
    return _git(folder, "rev-parse", "HEAD")


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    _git(folder, "init", "-q")
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def _add_git_directory(work_tree: Path, data: Path, name: str) -> None:
    (data / name).mkdir()
    _git(data, "clone", "-q", "--bare", str(work_tree), str(data / name / "repo"))


def _input(content: bytes, path: str = "rows.jsonl", commit: str = "0" * 40) -> Input:
    return Input("owner/name", commit, path, hashlib.sha256(content).hexdigest(), "MIT")


def _kept(data: Path, **contents: bytes) -> Inputs:
    """Write files of one repository, and return them as inputs."""
    folder = data / "owner+name"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return Inputs(data, {name: _input(content, name) for name, content in contents.items()})


# --- inputs


def test_a_file_is_read_from_a_git_directory_at_its_commit(work_tree: Path, data: Path) -> None:
    old = _commit(work_tree, {"rows.jsonl": "old"})
    _commit(work_tree, {"rows.jsonl": "new"})
    _add_git_directory(work_tree, data, "owner+name")
    assert Inputs(data, {"rows": _input(b"old", commit=old)}).text("rows") == "old"


def test_a_different_file_is_an_error_that_names_it(data: Path) -> None:
    inputs = _kept(data, **{"rows.jsonl": b"right"})
    (data / "owner+name" / "rows.jsonl").write_text("other")
    with pytest.raises(InputError, match=r"different: rows.jsonl of owner/name"):
        inputs.read("rows.jsonl")


@pytest.mark.parametrize("kind", ["a checkout", "a git directory"])
def test_the_files_of_a_folder_are_checked_by_one_hash(
    kind: str, work_tree: Path, data: Path
) -> None:
    commit = _commit(work_tree, {"docs/a.json": "1", "docs/b.json": "2"})
    _add_git_directory(work_tree, data, "owner+name")
    if kind == "a checkout":
        (data / "owner+name").rename(data / "bare")
        work_tree.rename(data / "owner+name")
    one, two = (hashlib.sha256(text).hexdigest() for text in (b"1", b"2"))
    sha256 = hashlib.sha256(f"{one}  a.json\n{two}  b.json\n".encode()).hexdigest()
    right = Input("owner/name", commit, "docs", sha256, "MIT")
    wrong = Input("owner/name", commit, "docs", "0" * 64, "MIT")
    inputs = Inputs(data, {"right": right, "wrong": wrong, "no": replace(right, path="x")})
    assert inputs.files("right") == {"a.json": b"1", "b.json": b"2"}
    with pytest.raises(InputError, match="different: docs of owner/name"):
        inputs.files("wrong")
    with pytest.raises(InputError, match="missing: x of owner/name"):
        inputs.files("no")


def test_every_input_is_pinned_by_commit_and_hash() -> None:
    inputs = manifest_of(MANIFEST)
    assert inputs
    for source in inputs.values():
        assert re.fullmatch(r"[0-9a-f]{40}", source.commit)
        assert re.fullmatch(r"[0-9a-f]{64}", source.sha256)
        assert source.licence


def test_a_run_names_missing_inputs_and_fails(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="skipped: folds"):
        main([str(data), "--tables", "folds", "--jobs", "1"])
    printed = capsys.readouterr()
    assert "missing: historical_trajectories/gpt-4o-airline.json" in printed.err
    assert "##" not in printed.out


def test_the_page_is_written_only_by_a_run_of_all_tables(data: Path) -> None:
    before = PAGE.read_bytes()
    with pytest.raises(SystemExit, match="2"):
        main([str(data), "--write", "--tables", "tools"])
    assert PAGE.read_bytes() == before


# --- trees


def test_a_tree_has_exactly_the_files_of_each_commit(work_tree: Path, tmp_path: Path) -> None:
    first = _commit(work_tree, {"a.py": "a = 1\n", "b/c.py": "c = 1\n", "same.py": "x\n"})
    (work_tree / "a.py").unlink()
    (work_tree / "b" / "c.py").unlink()
    (work_tree / "b").rmdir()
    second = _commit(work_tree, {"b": "a file now\n", "same.py": "y\n"})
    tree = Tree(work_tree / ".git", tmp_path / "tree")
    times = []
    for commit, wanted in (
        (first, {"a.py": "a = 1\n", "b/c.py": "c = 1\n", "same.py": "x\n"}),
        (second, {"b": "a file now\n", "same.py": "y\n"}),
        (first, {"a.py": "a = 1\n", "b/c.py": "c = 1\n", "same.py": "x\n"}),
    ):
        tree.move_to(commit)
        files = (path for path in tree.folder.rglob("*") if path.is_file())
        found = {path.relative_to(tree.folder).as_posix(): path.read_text() for path in files}
        assert found == wanted
        assert tree.files.keys() == wanted.keys()
        times.append((tree.folder / "same.py").stat().st_mtime_ns)
    # An index reads a file again by its time: the same for equal contents, else another.
    assert times[0] == times[2] != times[1]


def test_whole_files_fill_the_budget_and_the_last_one_is_cut(work_tree: Path, data: Path) -> None:
    texts = {f"{name}.py": f"{name} = 1\n" * 50 for name in ("first", "second", "third")}
    commit = _commit(work_tree, texts)
    _add_git_directory(work_tree, data, "owner+name")
    issues = [Issue("owner/name", commit, "first")]
    for _, searched in at_each_commit(Inputs(data, {}), issues, Counter()):
        assert searched.ranked_by_bm25("first") == ["first.py"]
        whole = DefaultCounter().count(f"first.py\n{texts['first.py']}\n")
        shown = searched.shown_whole(["first.py", "second.py", "third.py"], whole + 40)
        assert shown.keys() == {"first.py", "second.py"}
        assert shown["first.py"] == ["first = 1"] * 50
        assert 1 <= len(shown["second.py"]) < 20


# --- measures


def test_bm25_has_the_scores_of_its_formula() -> None:
    index = BM25.of_texts(["red fox", "red red dog dog", "cat"])
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    mean = 7 / 3

    def expected(count: int, length: int) -> float:
        return idf * count / (count + 1.5 * (1 - 0.75 + 0.75 * length / mean))

    assert index.scores(words("RED bird")) == pytest.approx([expected(1, 2), expected(2, 4), 0])
    assert index.ranked(words("red")) == [1, 0]
    assert index.ranked(words("bird")) == []


def test_words_of_code_have_the_parts_of_identifiers() -> None:
    assert code_words("parseURL(max_size)") == [
        *("parseurl", "parse", "url"),
        *("max_size", "max", "size"),
    ]


def test_sessions_and_turns_of_a_ranking() -> None:
    question = Question("who?", 1, frozenset({"D1:3", "D2:1"}))
    ranked = ["D9:1", "D1:1", "D1:3", "D7:1", "D6:1", "D5:1", "D2:9"]
    outcome = outcome_of(question, ranked)
    assert outcome == (1, 0, 1, 1, 0, 1, 0.5)


def test_questions_without_evidence_do_not_count_and_turns_have_their_date() -> None:
    talk = {
        "session_1": [{"dia_id": "D1:1", "speaker": "Ann", "text": "Hi", "blip_caption": "a dog"}],
        "session_1_date_time": "1 May",
        "session_2_date_time": "2 May",
        "qa": [
            {"question": "a?", "evidence": ["D1:1; D1:2"], "category": 4},
            {"question": "b?", "evidence": [], "category": 5},
        ],
    }
    assert turns_of(talk) == [Turn("D1:1", "1 May Ann: Hi [image: a dog]")]
    assert [*questions_of(talk)] == [Question("a?", 4, frozenset({"D1:1", "D1:2"}))]


PATCH = """\
diff --git a/pkg/a.py b/pkg/a.py
--- a/pkg/a.py
+++ b/pkg/a.py
@@ -10,4 +10,5 @@ def f():
 ten
-eleven
+ELEVEN
 twelve
+inserted after twelve
 thirteen
@@ -40,1 +41,2 @@
+before forty
 forty
"""


def test_edited_lines_are_removed_ones_and_those_before_an_insertion() -> None:
    assert edited_lines(PATCH) == {"pkg/a.py": {11, 12, 39}}


def test_line_scores_compare_lines_within_their_file() -> None:
    wanted = {"a.py": frozenset({"x = 1", "y = 2"}), "b.py": frozenset({"z = 3"})}
    shown = {"a.py": ["x = 1", "", "{", "other"], "c.py": ["z = 3"]}
    recall, precision, f1 = line_scores(shown, wanted)
    assert (recall, precision) == pytest.approx((1 / 3, 1 / 3))
    assert f1 == pytest.approx(1 / 3)
    assert line_scores({}, wanted) == (0, 0, 0)


@pytest.mark.parametrize(
    ("instance", "repository"),
    [
        ("cli__cli-5047", "cli/cli"),
        ("fasterxml__jackson-core-964", "fasterxml/jackson-core"),
        (f"instance_NodeBB__NodeBB-{'f48e' * 10}-v{'0495' * 10}", "NodeBB/NodeBB"),
    ],
)
def test_the_repository_of_an_instance(instance: str, repository: str) -> None:
    assert repository_of(instance) == repository


def test_records_of_both_kinds_of_headings() -> None:
    text = (
        "### Ann Lee (ID: pers-1)\nDOB: 1980-01-02 | Email: a@example.org\n\n"
        "### acct-1 (owner: pers-1)\nbank_name: A: B\nbalance: 10.50\n"
    )
    assert [*records_of_text(text)] == [
        {
            "full_name": "Ann Lee",
            "person_id": "pers-1",
            "DOB": "1980-01-02",
            "Email": "a@example.org",
        },
        {"owner": "pers-1", "bank_name": "A: B", "balance": 10.5},
    ]


# --- tables


def test_a_share_has_the_held_back_part_only_if_both_parts_are_there() -> None:
    assert str(share_of([(1.0, False), (0.0, True)])) == ".500 (.000)"
    assert str(share_of([(1.0, True), (0.0, True)])) == ".500"
    assert str(share_of([(1.0, False)])) == "1.000"


def _table(*rows: Row) -> Table:
    return Table("title", ("recall", "tokens"), rows)


def test_rows_ahead_of_ours_are_named_for_each_part() -> None:
    table = _table(
        Row("ours", (Share(0.5, 0.5), "400"), "ours"),
        Row("ours, better", (Share(0.6, 0.4), "400"), "ours"),
        Row("base: words", (Share(0.55, 0.7), "900"), "baseline"),
        Row("others", (Share(0.9), None), "reported", "https://example.org"),
    )
    assert ahead_of_ours(table) == [
        "recall: others .900 (ours .600)",
        "recall, held back: base .700 (ours .500)",
    ]


def test_a_tie_at_three_digits_is_not_ahead() -> None:
    table = _table(
        Row("ours", (Share(0.5), None), "ours"), Row("base", (Share(0.5004), None), "baseline")
    )
    assert ahead_of_ours(table) == []
    assert is_compared(table)


def test_a_table_without_common_columns_is_not_compared() -> None:
    table = _table(
        Row("ours", (Share(0.5), "3"), "ours"), Row("others", ("93 of 100", None), "reported", "x")
    )
    assert not is_compared(table)
    assert "Ahead" not in section_text(Section("title", "about", (table,)))


def test_a_page_names_losses_sources_and_what_failed() -> None:
    table = _table(
        Row("ours", (Share(0.5), "400"), "ours"),
        Row("others", (Share(0.9), None), "reported", "https://example.org/7"),
    )
    section = Section("Some title", "About it.", (table,), ("A note.",))
    page = page_of([section], {"tools": "missing: x"}, {"rows": _input(b"x")})
    assert "Ahead of llm-common:\n\n- recall: others .900 (ours .500)\n" in page
    assert "| reported: others ([source](https://example.org/7)) | .900 |" in page
    assert "A note." in page
    assert "Not measured: tools, missing: x" in page
    assert "[owner/name](https://github.com/owner/name)" in page


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("locomo_all", ("any@1", "any@5", "any@10", "all@5", "all@10", "multi-hop all@5")),
        ("locomo_1_to_4", ("any@5", "any@10", "all@5", "all@10", "turns R@10")),
        ("letta", ("right in one query",)),
        ("swe_bench_lite", ("first file",)),
        (
            "contextbench",
            ("file recall", "file precision", "line recall", "line precision", "line F1"),
        ),
    ],
)
def test_every_reported_figure_has_a_source(table: str, columns: tuple[str, ...]) -> None:
    rows = [*reported_rows(table, columns)]
    assert rows
    for row in rows:
        assert row.source.startswith("https://")
        assert any(cell is not None for cell in row.cells)


def test_made_up_talks_are_measured_by_halves(data: Path) -> None:
    talk = {
        "speaker_a": "Ann",
        "session_1_date_time": "1:00 pm on 1 May, 2023",
        "session_1": [
            {"dia_id": "D1:1", "speaker": "Ann", "text": "I adopted a parrot."},
            {"dia_id": "D1:2", "speaker": "Bob", "text": "Lovely weather."},
        ],
        "session_2_date_time": "1:00 pm on 2 May, 2023",
        "session_2": [{"dia_id": "D2:1", "speaker": "Bob", "text": "My car broke down."}],
        "qa": [{"question": "Who adopted a parrot?", "evidence": ["D1:1"], "category": 1}],
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in ("26", "30"):
            archive.writestr(f"talks/{name}.json", json.dumps(talk))
    inputs = _kept(data, locomo=buffer.getvalue())
    table = TABLES["sessions"](inputs, None).tables[0]
    by_label = {row.label: row.cells for row in table.rows if row.group != "reported"}
    assert table.title == "LoCoMo, all questions (2)"
    assert by_label["llm-common, SqliteMemory, words only"][0] == Share(1.0, 1.0)
    assert by_label["BM25"][0] == Share(1.0, 1.0)
    assert by_label["newest turns"][0] == Share(0.0, 0.0)


def test_all_wanted_files_of_an_issue_must_be_among_the_first(work_tree: Path, data: Path) -> None:
    parser = "def parse_header(line):\n    return line.partition(':')\n"
    files = {"mail/parser.py": parser, "mail/send.py": "def send(mail):\n    mail.connect()\n"}
    commit = _commit(work_tree, files)
    _add_git_directory(work_tree, data, "owner+mail")
    issue = {"repo": "owner/mail", "base_commit": commit, "problem_statement": "parse_header fails"}
    rows = [
        {**issue, "instance_id": "owner__mail-1"},
        {**issue, "instance_id": "owner__mail-2", "problem_statement": "Who may send mail?"},
        {**issue, "instance_id": "owner__mail-3", "repo": "owner/other"},
    ]
    edited = {
        "owner__mail-1": ["mail/parser.py:parse_header"],
        "owner__mail-2": ["mail/parser.py:parse_header", "mail/send.py:send"],
        "owner__mail-3": ["x.py:x"],
    }
    candidates = [{"instance_id": "owner__mail-1", "hybrid_top": [{"file": "mail/send.py"}]}]
    ranked = [{"instance_id": "owner__mail-1", "ranked": ["mail/parser.py"]}]
    texts = {
        "loc_bench": _json_lines(rows),
        "loc_bench_functions": json.dumps(edited),
        "chronorepo_candidates": _json_lines(candidates),
        "chronorepo_kimi_k2": _json_lines(ranked),
    }
    inputs = _kept(data, **{name: text.encode() for name, text in texts.items()})
    section = TABLES["locbench"](inputs, None)
    by_label = {row.label: row.cells for row in section.tables[0].rows}
    assert by_label["llm-common, pack_folder"][0] == Share(0.5, 0.0)
    assert by_label["ChronoRepo's candidates, no model"][:3] == (Share(0.0, 0.0),) * 3
    assert by_label["ChronoRepo and one call of Kimi K2"][0] == Share(0.5, 0.0)
    by_issue = section.files["loc_bench.csv"].splitlines()
    assert by_issue[1] == "owner__mail-1,0,1,1,1,,1"
    assert "owner/other (1)" in section.notes[1]


def _json_lines(rows: Iterable[Mapping[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_constraint_is_held_if_its_words_stand_in_the_folded_prompt() -> None:
    chat = []
    for number in range(60):
        chat.append({"role": "user", "content": f"What is {number} times seven?"})
        chat.append({"role": "assistant", "content": f"It is {number * 7}. " * 20})
    constraint = "Never write a number as a word."
    for place, index in (("first", 0), ("middle", 60)):
        messages = placed(chat, f"For the rest of this session. {constraint}", place)
        assert messages[index]["content"].endswith(chat[index]["content"])
        assert asyncio.run(is_held(messages, constraint, 2_000))
    assert not asyncio.run(is_held(chat, constraint, 2_000))
