"""`make mutants` measures the tests; these make sure that it measures what it says."""

import ast
from collections import defaultdict

import pytest

from tools.mutants import ROOT, Mutant, is_noticed, read_mutants, workplace


def test_every_mutant_fits_the_code_and_has_a_name_of_its_own() -> None:
    mutants = read_mutants()
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    by_file: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_file[mutant.file].append(mutant)
        for test in mutant.tests:
            assert (ROOT / test.partition("::")[0]).exists(), mutant.name
    for file, changes in by_file.items():
        code = (ROOT / file).read_text(encoding="utf-8")
        changed = code
        for mutant in changes:
            assert code.count(mutant.find) == 1, mutant.name
            if changed.count(mutant.find) == 1:
                changed = mutant.mutated(changed)
            else:  # another change has removed what it quotes
                ast.parse(mutant.mutated(code), mutant.name)
        # All changes of a file together, since reading it for each one takes seconds.
        ast.parse(changed, file)


@pytest.mark.parametrize(
    ("replace", "noticed"),
    [
        pytest.param("return hashlib.sha1", True, id="a-broken-promise"),
        pytest.param(
            "return  hashlib.sha256", False, id="a-changed-space", marks=pytest.mark.torture
        ),
    ],
)
def test_a_broken_promise_is_noticed_and_a_changed_space_is_not(
    replace: str, noticed: bool
) -> None:
    mutant = Mutant(
        name="the digest of a text",
        file="llm_common/pointers/pointer.py",
        find="return hashlib.sha256",
        replace=replace,
        tests=("tests/pointers/test_pointer.py",),
    )
    assert mutant.problem() is None
    with workplace() as place:
        assert is_noticed(mutant, place) is noticed
        assert (place / mutant.file).read_text(encoding="utf-8").count(mutant.find) == 1
