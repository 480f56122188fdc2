"""`make mutants` measures the tests; these make sure that it measures what it says."""

import pytest

from tools.mutants import Mutant, is_noticed, read_mutants, workplace


def test_every_mutant_fits_the_code_and_has_a_name_of_its_own() -> None:
    mutants = read_mutants()
    assert not [(one.name, problem) for one in mutants if (problem := one.problem())]
    assert len({one.name for one in mutants}) == len(mutants)


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
