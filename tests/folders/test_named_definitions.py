"""Definitions that a question names, and passages that match far less than the best."""

from pathlib import Path

import pytest

from llm_common.folders import FolderPack, pack_folder
from tests.folders.tree import Pack

# None of its later lines has a word of the questions below.
BODY = "".join(f"        self.heat_{number} = {number} * self.step\n\n" for number in range(60))
METHOD = f"    @logged\n    def fire(self):\n        # stops if the kiln is hot\n{BODY}"
OTHERS = "".join(
    f"    def cool_{number}(self):\n        # stops the kiln early in {number} minutes\n"
    f"        return self.door.open(width={number}, wait=True, reason='stop the kiln too early')\n\n"
    for number in range(20)
)
KILN = f"class Kiln:\n{OTHERS}{METHOD}{OTHERS.replace('cool', 'vent')}"


def shown(pack: FolderPack) -> dict[str, str]:
    return {block.id: block.text for block in pack.bundle.blocks}


EARLY = "".join(
    f"def stop_{number}():\n    # the kiln stops too early in fire\n    return {BODY[:700]!r}\n\n"
    for number in range(30)
)
FILES = {"pottery/kiln.py": KILN}
MORE = FILES | {f"early_{number}.py": EARLY for number in range(3)}


@pytest.mark.parametrize(
    ("files", "query", "is_whole"),
    [
        (FILES, "Kiln.fire() stops too early", True),
        (FILES, "the kiln stops too early, see `fire`", True),
        (FILES, "the kiln stops too early", False),
        (MORE, "Kiln.fire stops too early", True),
        (MORE, "the kiln stops too early", False),
    ],
)
def test_a_named_method_is_whole_and_first(
    packed: Pack, files: dict[str, str], query: str, is_whole: bool
) -> None:
    pack = packed(query, files, budget_tokens=1_500)
    assert (METHOD.strip() in pack.text) is is_whole
    assert is_whole or len(pack.files) == len(files)


@pytest.mark.parametrize(
    ("query", "path"),
    [("Kiln.fire stops", "kiln.py"), ("Oven.fire stops", "oven.py"), ("`fire` stops", "")],
)
def test_a_name_of_several_definitions_needs_its_class(packed: Pack, query: str, path: str) -> None:
    both = {"kiln.py": KILN, "oven.py": KILN.replace("Kiln", "Oven")}
    texts = shown(packed(query, both, budget_tokens=1_500))
    whole = [name for name, text in texts.items() if METHOD.strip() in text]
    assert whole == ([path] if path else [])


def test_definitions_in_tests_are_not_named(packed: Pack) -> None:
    both = {"kiln.py": KILN, "tests/test_kiln.py": KILN}
    texts = shown(packed("Kiln.fire stops", both, budget_tokens=2_500))
    assert METHOD.strip() in texts["kiln.py"]
    assert METHOD.strip() not in texts.get("tests/test_kiln.py", "")


def test_a_long_named_definition_is_packed_by_passages(packed: Pack) -> None:
    long = {"kiln.py": KILN.replace(BODY, BODY * 3)}
    pack = packed("Kiln.fire stops too early", long, budget_tokens=6_000)
    assert "stops the kiln early in 19 minutes" in pack.text
    assert "self.heat_30" not in pack.text


def test_passages_that_match_far_less_are_left_out(packed: Pack, tmp_path: Path) -> None:
    unrelated = "".join(
        f"def glaze_{number}(pot):\n    # one of the colours\n    return pot.colour({BODY[:300]!r})\n\n"
        for number in range(9)
    )
    answer = f"def fire(kiln):\n    # the kiln stops too early\n    return {BODY[:300]!r}\n\n"
    query = "why does the kiln stop too early, is one of the sensors broken"
    pack = packed(query, {"kiln.py": unrelated + answer + unrelated}, budget_tokens=20_000)
    assert answer in pack.text
    assert "glaze_4" not in pack.text
    # A named file keeps all of its passages.
    folder = tmp_path / "tree"
    assert pack_folder(query, folder / "kiln.py", budget_tokens=20_000).files[0].form == "whole"
    named = pack_folder(f"{query}, see kiln.py", folder, budget_tokens=20_000)
    assert named.files[0].form == "whole"


def test_the_three_best_files_are_shown_and_poor_matches_are_not(packed: Pack) -> None:
    files = {"oven.py": "def bake_the_bread(oven):\n    # bake the bread in the oven\n    ...\n"}
    files |= {f"note{number}.md": f"Bread, number {number}.\n" for number in range(6)}
    pack = packed("bake the bread in the oven", files)
    assert pack.files[0].path == "oven.py"
    assert len(pack.files) == 3
    assert {file.reason for file in pack.dropped} == {"poor_match"}


def test_records_that_match_far_less_are_left_out(packed: Pack) -> None:
    rows = "".join(f"{number},bread,{'x' * 30}\n" for number in range(400))
    files = {f"oven{number}.py": "def bake_the_bread(oven): ...\n" for number in range(3)}
    pack = packed("bake the bread in the oven", {**files, "sales.csv": f"id,item,note\n{rows}"})
    assert {file.path: file.reason for file in pack.dropped} == {"sales.csv": "poor_match"}
