"""Definitions that a question names, and passages that match far less than the best."""

from pathlib import Path

import pytest

from llm_common.folders import FolderPack, pack_folder
from tests.folders.tree import write

# None of its later lines has a word of the questions below.
BODY = "".join(f"        self.heat_{number} = {number} * self.step\n\n" for number in range(60))
METHOD = f"    @logged\n    def fire(self):\n        # stops if the kiln is hot\n{BODY}"
OTHERS = "".join(
    f"    def cool_{number}(self):\n        # stops the kiln early in {number} minutes\n"
    f"        return self.door.open(width={number}, wait=True, reason='stop the kiln too early')\n\n"
    for number in range(20)
)
KILN = f"class Kiln:\n{OTHERS}{METHOD}{OTHERS.replace('cool', 'vent')}"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(tmp_path / "tree", {"pottery/kiln.py": KILN})


def shown(pack: FolderPack) -> dict[str, str]:
    return {block.id: block.text for block in pack.bundle.blocks}


@pytest.mark.parametrize(
    "query",
    [
        "Kiln.fire() stops too early",
        "the kiln stops too early, see `fire`",
    ],
)
def test_a_named_method_is_whole_and_first(tree: Path, query: str) -> None:
    assert METHOD.strip() in pack_folder(query, tree, budget_tokens=1_500).text


def test_a_method_that_is_not_named_is_packed_by_passages(tree: Path) -> None:
    pack = pack_folder("the kiln stops too early", tree, budget_tokens=1_500)
    assert METHOD.strip() not in pack.text


def test_a_named_definition_comes_before_passages_of_other_files(tree: Path) -> None:
    early = "".join(
        f"def stop_{number}():\n    # the kiln stops too early in fire\n    return {BODY[:700]!r}\n\n"
        for number in range(30)
    )
    write(tree, {f"early_{number}.py": early for number in range(3)})
    named = pack_folder("Kiln.fire stops too early", tree, budget_tokens=1_500)
    unnamed = pack_folder("the kiln stops too early", tree, budget_tokens=1_500)
    assert METHOD.strip() in named.text
    assert METHOD.strip() not in unnamed.text
    assert len(unnamed.files) > 1


@pytest.mark.parametrize(
    ("query", "path"),
    [("Kiln.fire stops", "kiln.py"), ("Oven.fire stops", "oven.py"), ("`fire` stops", "")],
)
def test_a_name_of_several_definitions_needs_its_class(
    tmp_path: Path, query: str, path: str
) -> None:
    oven = KILN.replace("Kiln", "Oven")
    folder = write(tmp_path / "both", {"kiln.py": KILN, "oven.py": oven})
    texts = shown(pack_folder(query, folder, budget_tokens=1_500))
    whole = [name for name, text in texts.items() if METHOD.strip() in text]
    assert whole == ([path] if path else [])


def test_definitions_in_tests_are_not_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "both", {"kiln.py": KILN, "tests/test_kiln.py": KILN})
    texts = shown(pack_folder("Kiln.fire stops", folder, budget_tokens=2_500))
    assert METHOD.strip() in texts["kiln.py"]
    assert METHOD.strip() not in texts.get("tests/test_kiln.py", "")


def test_a_long_named_definition_is_packed_by_passages(tmp_path: Path) -> None:
    folder = write(tmp_path / "long", {"kiln.py": KILN.replace(BODY, BODY * 3)})
    pack = pack_folder("Kiln.fire stops too early", folder, budget_tokens=6_000)
    assert "stops the kiln early in 19 minutes" in pack.text
    assert "self.heat_30" not in pack.text


def test_passages_that_match_far_less_are_left_out(tmp_path: Path) -> None:
    unrelated = "".join(
        f"def glaze_{number}(pot):\n    # one of the colours\n    return pot.colour({BODY[:300]!r})\n\n"
        for number in range(9)
    )
    answer = f"def fire(kiln):\n    # the kiln stops too early\n    return {BODY[:300]!r}\n\n"
    folder = write(tmp_path / "tree", {"kiln.py": unrelated + answer + unrelated})
    query = "why does the kiln stop too early, is one of the sensors broken"
    pack = pack_folder(query, folder, budget_tokens=20_000)
    assert answer in pack.text
    assert "glaze_4" not in pack.text
    # A named file keeps all of its passages.
    assert pack_folder(query, folder / "kiln.py", budget_tokens=20_000).files[0].form == "whole"
    named = pack_folder(f"{query}, see kiln.py", folder, budget_tokens=20_000)
    assert named.files[0].form == "whole"


def test_the_three_best_files_are_shown_and_poor_matches_are_not(tmp_path: Path) -> None:
    files = {"oven.py": "def bake_the_bread(oven):\n    # bake the bread in the oven\n    ...\n"}
    files |= {f"note{number}.md": f"Bread, number {number}.\n" for number in range(6)}
    pack = pack_folder("bake the bread in the oven", write(tmp_path / "tree", files))
    assert pack.files[0].path == "oven.py"
    assert len(pack.files) == 3
    assert {file.reason for file in pack.dropped} == {"poor_match"}


def test_records_that_match_far_less_are_left_out(tmp_path: Path) -> None:
    rows = "".join(f"{number},bread,{'x' * 30}\n" for number in range(400))
    files = {f"oven{number}.py": "def bake_the_bread(oven): ...\n" for number in range(3)}
    files["sales.csv"] = f"id,item,note\n{rows}"
    pack = pack_folder("bake the bread in the oven", write(tmp_path / "tree", files))
    assert {file.path: file.reason for file in pack.dropped} == {"sales.csv": "poor_match"}
