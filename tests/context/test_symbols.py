"""Defined names."""

import time

import pytest

from llm_common.context.measured_scoring import defined_symbols


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("class reader:\n    async def read_all(self):", "reader read_all"),
        ("export function parse(x) {}\nconst limit = 3", "limit parse"),
        ("func (s *server) serve(w int) error {\ntype server struct {", "serve server"),
        ("pub fn scan<t>() {}\nenum kind { a }\ntrait shape {}\nstruct point {}", "kind scan point shape"),
        ("no definitions here", ""),
    ],
)
def test_names_after_the_keywords_of_common_languages(text: str, names: str) -> None:
    assert sorted(defined_symbols(text).split()) == sorted(names.split())


def test_hostile_text_takes_no_time_f_142() -> None:
    started = time.perf_counter()
    defined_symbols("func " * 100_000 + "func (" * 50_000 + " " * 200_000)
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("a.py", "Reader"),
        ("a.PYI", "Reader"),
        ("a.go", "of"),
        ("a.txt", "Reader of"),
        ("", "Reader of"),
        ("py", "Reader"),
    ],
)
def test_the_path_tells_which_keywords_define_something(path: str, names: str) -> None:
    assert sorted(defined_symbols("class Reader:  # any type of", path).split()) == names.split()
