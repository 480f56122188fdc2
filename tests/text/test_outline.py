"""The headings of a long text, which a preview shows where no word of a question leads."""

from itertools import pairwise

from hypothesis import given, strategies as st

from llm_common.text.outline import outline

PAGE = "\n".join(
    f"## Chapter {chapter}\n\nA tale.\n\n### Part {part} of {chapter}\n\nMore."
    for chapter in range(20)
    for part in range(2)
)


def test_headings_have_the_numbers_of_their_lines() -> None:
    lines = PAGE.split("\n")
    for line in outline(PAGE, 10_000).split("\n")[1:]:
        number, _, heading = line.partition(": ")
        assert lines[int(number) - 1] == heading


def test_the_deepest_headings_are_left_out_first() -> None:
    shown = outline(PAGE, 1_000).split("\n")
    assert shown[0] == "40 of 80 headings by line:"
    assert not any("Part" in line for line in shown)


def test_headings_of_one_level_are_thinned_out_evenly() -> None:
    shown = outline("".join(f"# Day {day}\n" for day in range(1_000)), 300).split("\n")
    days = [int(line.rpartition(" ")[2]) for line in shown[1:]]
    assert days[0] == 0
    assert days[-1] > 900
    assert len({later - earlier for earlier, later in pairwise(days)}) == 1


def test_files_of_a_diff_sections_and_definitions_are_headings() -> None:
    text = "+++ b/x\n[tool.ruff]\nclass Store:\n    def save(self):\nexport function f() {}"
    assert outline(text, 1_000).split("\n")[1:] == [
        "1: +++ b/x",
        "2: [tool.ruff]",
        "3: class Store:",
        "5: export function f() {}",
    ]


def test_comments_of_a_program_and_examples_of_a_page_are_no_headings() -> None:
    program = "# Why\nclass One:\n    pass\n\n# Then\ndef two():\n    pass\n"
    assert outline(program, 1_000).split("\n")[1:] == ["2: class One:", "6: def two():"]
    page = f"# Title\n## First\n{program}## Second\n"
    assert not any("class" in line or "def" in line for line in outline(page, 1_000).split("\n"))


def test_levels_that_fit_together_are_shown_together() -> None:
    page = "# Title\n" + "## Chapter\n### Part\n" * 4
    chapters = "5 of 9 headings by line:\n1: # Title\n2: ## Chapter\n4: ## Chapter"
    assert outline(page, 80).startswith(chapters)
    lines = outline(page, 10_000).split("\n")
    assert lines[0] == "Headings by line:"
    assert len(lines) == 10
    # A limit that the lines fill exactly leaves none of them out.
    assert outline(page, sum(len(line) + 1 for line in lines[1:])) == "\n".join(lines)


def test_five_thousand_headings_are_read_and_a_long_one_is_cut() -> None:
    page = f"# {'long ' * 400}\n" + "# Day\n" * 5_100
    lines = outline(page, 1_000_000).split("\n")
    assert len(lines) == 1 + 5_000
    assert lines[1] == "1: # " + ("long " * 20)[:77] + "…"
    assert lines[-1] == "5000: # Day"


def test_a_text_without_headings_has_no_outline() -> None:
    assert outline("a line\n" * 100, 1_000) == ""
    assert outline("# One\n" + "a line\n" * 100, 1_000) == ""
    assert outline(PAGE, 10) == ""


@given(st.lists(st.sampled_from(["# a", "## b", "### c", "text", "# " + "long " * 40])))
def test_an_outline_stays_within_its_size(lines: list[str]) -> None:
    shown = outline("\n".join(lines), 200)
    assert len(shown) <= 200 + 40
