"""The contract page and the ids that tests carry belong together."""

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "contract.md").read_text(encoding="utf-8")
LINES = set(re.findall(r"^\| ([STFL]\d?-?\d+) \|", PAGE, re.MULTILINE))


def ids_of_tests() -> Iterator[tuple[str, str]]:
    """The ids at the end of test names and of their cases, each with its file."""
    for path in TESTS.rglob("*.py"):
        names = re.findall(r"def (test_\w+)|id=\"([\w ]+)\"", path.read_text(encoding="utf-8"))
        for function, case in names:
            name = function or case
            for system, number in re.findall(r"_(s[0-4])_(\d\d)(?!\d)", name):
                yield f"{system.upper()}-{number}", path.name
            for number in re.findall(r"_t_(\d\d)(?!\d)", name):
                yield f"T-{number}", path.name
            for number in re.findall(r"_f_(\d{2,3})(?!\d)", name):
                yield f"F-{int(number):03d}", path.name


def test_every_id_in_a_test_name_is_a_line_of_the_contract() -> None:
    unknown = {f"{line} in {file}" for line, file in ids_of_tests() if line not in LINES}
    assert not unknown


def test_every_line_of_behaviour_has_a_test() -> None:
    tested = {line for line, _ in ids_of_tests()}
    assert {line for line in LINES if line.startswith(("S", "T"))} <= tested
