"""What coding agents read: the skill in the package, `llms.txt` and AGENTS.md."""

import re
from importlib.resources import files
from pathlib import Path

from tests.programs import printed

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SKILL_PATH = "llm_common/.agents/skills/llm-common/SKILL.md"
SKILL = (
    files("llm_common").joinpath(".agents/skills/llm-common/SKILL.md").read_text(encoding="utf-8")
)
LLMS = (DOCS / "llms.txt").read_text(encoding="utf-8")
AGENTS = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
MAX_DESCRIPTION_CHARS = 1_024


def test_the_skill_has_the_front_matter_that_agents_read() -> None:
    front = re.match(r"---\nname: (\S+)\ndescription: ([^\n]+)\n---\n\n# ", SKILL)
    assert front is not None
    assert front[1] == Path(SKILL_PATH).parent.name
    assert len(front[2]) <= MAX_DESCRIPTION_CHARS


def test_the_programs_of_the_skill_run(tmp_path: Path) -> None:
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", SKILL, re.DOTALL | re.MULTILINE))
    assert printed(program, cwd=tmp_path).splitlines() == [
        "True True",
        "['list_orders', 'query_context', 'read_context', 'search_context']",
    ]


def test_the_skill_names_what_the_pages_of_the_frameworks_import() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.glob("integrations/*.md"))
    hooks = set(re.findall(r"\bLLMCommon[A-Z]\w+", pages))
    assert set(re.findall(r"\bLLMCommon[A-Z]\w+", SKILL)) == hooks | {"LLMCommonError"}


def test_the_skill_lists_ten_mistakes() -> None:
    mistakes = SKILL.partition("## Ten mistakes\n")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d+)\. \*\*", mistakes, re.MULTILINE) == [str(n) for n in range(1, 11)]


def test_llms_txt_has_a_title_a_summary_and_lists_of_links() -> None:
    head, *sections = re.split(r"^## ", LLMS, flags=re.MULTILINE)
    assert re.match(r"# llm-common\n\n> [^\n]+\n\n", head)
    for section in sections:
        _, _, links = section.partition("\n\n")
        for line in links.strip().splitlines():
            assert re.fullmatch(r"- \[[^]]+\]\([\w/-]+\.md\): .+", line), line


def test_llms_txt_links_to_every_page_but_those_of_python_names() -> None:
    links = re.findall(r"\]\(([^)]+)\)", LLMS)
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert len(links) == len(set(links))
    assert set(links) == {page for page in pages if not page.startswith("reference/")}


def test_agents_md_names_files_that_exist() -> None:
    assert SKILL_PATH in AGENTS
    for path in re.findall(r"`((?:docs|llm_common|tools)/[^`*]+)`", AGENTS):
        assert (ROOT / path).exists(), path
