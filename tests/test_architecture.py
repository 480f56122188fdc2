"""The house rules that a program can check.

One test a rule, which names every place that breaks it.
"""

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeVar

import pytest

import llm_common
from tests.programs import printed

NodeT = TypeVar("NodeT", bound=ast.AST)
PACKAGE = Path(llm_common.__file__).parent
GLOSSARY = Path(__file__).parent.parent / "docs" / "glossary.md"
NAMES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

FACES = {
    "agents/context_pointers.py",
    "agents/schemas.py",
    "agents/tool_context.py",
    "agents/tool_selector.py",
    "clients.py",
    "errors.py",
    "testing.py",
    "trace/account.py",
}

DOORS = ("apps/", "integrations/")

# Code of others runs in these places only, and may raise anything there.
BROAD_CATCHES = {
    "_threads.py": 1,  # an application's tool; raised again where it was called
    "core/http/external_errors.py": 1,  # an application's client
    "agents/session/offloading.py": 1,  # the same for what takes the place of a preview
    "parts/result_parts.py": 1,  # results have any shape, and their previews never end a call
    "tools/tool.py": 1,  # an application's tool, registry or memory
    # the client of a third-party server, which fails in any way
    "apps/gateway/servers/connection.py": 1,
    "text/canonical.py": 1,  # methods of a caller's objects
}

# Words of a user, or of the names of a database, which a list has to know.
ALLOWED_WORDS = {("context/intent.py", "tidy"), ("redaction/secret_values.py", "foreign")}

EXTRAS = {
    "bpe_openai",
    "httpx2",
    "mcp",
    "mcp_types",
    "numpy",
    "obstore",
    "opentelemetry",
    "psycopg",
    "psycopg_pool",
    "rich",
    "safetensors",
    "starlette",
    "tokenizers",
    "typer",
    "uvicorn",
    "wordllama",
}


@cache
def source_of(name: str) -> str:
    return (PACKAGE / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def _syntax_trees() -> Iterator[None]:
    """Forget the trees of all modules after the last test that looks at them."""
    yield
    nodes_of.cache_clear()


@cache
def nodes_of(name: str) -> list[ast.AST]:
    return [*ast.walk(ast.parse(source_of(name)))]


def nodes(kind: type[NodeT]) -> Iterator[tuple[str, NodeT]]:
    """Every node of a kind, with the name of its module."""
    return ((name, node) for name in NAMES for node in nodes_of(name) if isinstance(node, kind))


def dotted(name: str) -> str:
    return f"llm_common.{name.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__")


def assert_none(broken: Iterable[object]) -> None:
    """Fails with every place that breaks a rule, a line for each."""
    lines = sorted({str(place) for place in broken})
    assert not lines, "\n".join(["these break the rule:", *lines])


def test_only_env_reads_the_environment() -> None:
    readers = {
        name
        for name, node in nodes(ast.Attribute)
        if node.attr in {"environ", "getenv", "environb"}
    }
    assert_none(readers - {"_env.py"})


def test_only_the_command_line_prints() -> None:
    prints = {
        name
        for name, node in nodes(ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert_none(name for name in prints if not name.startswith("apps/cli/"))


def test_broad_catches_stand_only_around_code_of_others() -> None:
    found = Counter[str]()
    for name, node in nodes(ast.ExceptHandler):
        caught = "BaseException" if node.type is None else ast.unparse(node.type)
        raises_again = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
        found[name] += bool(re.search(r"\b(Base)?Exception\b", caught)) and not raises_again
    assert +found == BROAD_CATCHES


def test_cancellation_is_never_swallowed() -> None:
    assert_none(
        name
        for name, node in nodes(ast.ExceptHandler)
        if node.type and "Cancelled" in ast.unparse(node.type)
    )


def test_public_names_are_listed_once_and_exist() -> None:
    """In the packages and in the few modules that stay importable.

    Elsewhere an underscore says what is private.
    """
    broken = []
    for name in NAMES:
        try:
            module = importlib.import_module(dotted(name))
        except ModuleNotFoundError as exc:  # a framework, which only its own environment has
            if not name.startswith("integrations/") or str(exc.name).startswith("llm_common"):
                raise
            broken += [name] if "__all__" in source_of(name) else []
            continue
        listed = Counter(getattr(module, "__all__", ()))
        is_face = name.endswith("__init__.py") or name in FACES
        broken += [name] if is_face is not hasattr(module, "__all__") else []
        broken += [
            f"{name}: {each}"
            for each, count in listed.items()
            if count > 1 or not hasattr(module, each)
        ]
    assert_none(broken)


def test_every_module_has_a_docstring_and_none_is_unfinished() -> None:
    assert_none(name for name, tree in nodes(ast.Module) if not ast.get_docstring(tree))
    assert_none(name for name in NAMES if re.search(r"\b(TODO|FIXME|XXX|stub)\b", source_of(name)))


def test_the_package_uses_the_words_of_the_glossary() -> None:
    text = GLOSSARY.read_text(encoding="utf-8")
    left_column = "\n".join(re.findall(r"^\| [^|]*", text, re.MULTILINE))
    words = re.findall(r"(\w+)\*", left_column.replace("`", ""))
    assert "gravestone" in words
    # One pass over all sources leaves the few in which a word is looked for alone.
    beginnings = "|".join(word.lstrip("_") for word in words)
    any_word = re.compile(rf"\b_?(?:{beginnings})", re.IGNORECASE)
    names = [name for name in NAMES if any_word.search(source_of(name))]
    places = ((name, word) for word in words for name in names if holds(source_of(name), word))
    assert_none(f"{word} in {name}" for name, word in places if (name, word) not in ALLOWED_WORDS)


def holds(text: str, word: str) -> bool:
    """Whether a word of the text begins so.

    Constants are told from other names by their capitals.
    """
    return bool(
        re.search(rf"\b_?{word.lstrip('_')}", text, re.NOFLAG if word.isupper() else re.IGNORECASE)
    )


def test_modules_import_each_other_in_no_circle_not_even_late() -> None:
    graph = {}
    for name, tree in nodes(ast.Module):
        graph[dotted(name)] = {*imports_of(tree), *late_modules_of(tree)} - {dotted(name)}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_only_lazy_exports_import_a_module_by_its_name() -> None:
    """So no import is hidden from the tests above and from import-linter."""
    importers = {name for name, node in nodes(ast.Name) if node.id == "__import__"}
    for name, imported in nodes(ast.alias):
        if imported.name in {"importlib", "import_module", "__import__"}:
            importers.add(name)
    assert_none(importers - {"_exports.py"})
    callers = {name for name, node in nodes(ast.Name) if node.id == "lazy_exports"}
    assert_none(name for name in callers if not name.endswith("__init__.py") and name not in FACES)


def test_applications_and_integrations_import_only_what_the_library_exports() -> None:
    """Anywhere in a module, so that each of them could be a package of its own."""
    imported = set()
    for name, node in nodes(ast.ImportFrom):
        module = node.module or ""
        if name.startswith(DOORS) and is_of_the_library(module):
            names = {alias.name for alias in node.names} - exports_of(module)
            imported |= {f"{name}: {module}.{inner}" for inner in names}
    for name, statement in nodes(ast.Import):
        if name.startswith(DOORS):
            modules = {alias.name for alias in statement.names}
            imported |= {f"{name}: {module}" for module in modules if is_of_the_library(module)}
    assert_none(imported)


def is_of_the_library(module: str) -> bool:
    """Whether a module is below applications and integrations."""
    package = module.split(".")[:2]
    return package[0] == "llm_common" and package[1:] not in (["apps"], ["integrations"])


@cache
def exports_of(module: str) -> set[str]:
    """The names that a face has, and the faces in it. Other modules have none."""
    faces = {dotted(name) for name in {*NAMES} & FACES}
    packages = {dotted(name) for name in NAMES if name.endswith("__init__.py")}
    if module not in faces | packages:
        return set()
    names = vars(importlib.import_module(module))
    inner_faces = {face.rpartition(".")[2] for face in faces if face.rpartition(".")[0] == module}
    return {*names["__all__"], *names.get("_MODULES", ())} | inner_faces


def late_modules_of(tree: ast.Module) -> Iterator[str]:
    """The modules in the dictionary of a face."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_MODULES":
            yield from ast.literal_eval(node.value).values()


def imports_of(tree: ast.Module) -> Iterator[str]:
    """The modules of the package that a module imports while it is imported."""
    known = {dotted(name) for name in NAMES}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in known:
            deeper = {f"{node.module}.{each.name}" for each in node.names} & known
            yield from deeper or {node.module}


def test_importing_everything_in_agents_pulls_in_no_extra_and_reads_no_environment() -> None:
    program = """
import os, sys
real, read = os.environ, []
class Watched(dict):
    def get(self, key, default=None):
        read.append(key)
        return super().get(key, default)
    def __getitem__(self, key):
        read.append(key)
        return super().__getitem__(key)
os.environ = Watched(real)
import llm_common.agents
for name in llm_common.agents.__all__:
    getattr(llm_common.agents, name)
print(sorted(name for name in sys.modules if "." not in name))
print([name for name in read if name.startswith("LLM_COMMON") or name.endswith("_API_KEY")])
"""
    imported, read = map(ast.literal_eval, printed(program).splitlines())
    assert not EXTRAS & {*imported}
    assert read == []
