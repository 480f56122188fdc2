"""Test the definitions that are found in source files, by language."""

import time

import pytest

from llm_common.folders.symbols import DEFINITIONS, language_of, symbols_of

SOURCES = {
    "a.py": (
        (
            "LIMIT: int = 3\nclass Store(Base):\n    async def save(self, x):\n        pass\ndef "
            "load(): ...\n"
        ),
        "Store save load LIMIT",
    ),
    "a.ts": (
        (
            "export interface Opts {}\nexport const make = async (x) => {\n}\nexport default "
            "class Panel {\n"
            "  private async draw(ctx: Ctx): void {\n    if (x) {\n  }\n}\ntype Id = "
            "string\nenum Kind { A }\n"
        ),
        "Opts Panel Id Kind make draw",
    ),
    "a.jsx": ("function* walk() {}\nmodule.exports = {}\nlet twice = x => x * 2\n", "walk twice"),
    "a.go": (
        (
            "package a\nfunc Run() {}\nfunc (s *Server) Serve(l net.Listener) error "
            "{\ntype Opts struct {\nvar _ I = x\n"
        ),
        "Run Serve Opts",
    ),
    "a.rs": (
        (
            "pub(crate) async fn go() {}\nimpl<T> Display for Wrapper<T> "
            "{\n    pub const fn len(&self) {}\n}\nenum E {}\n"
        ),
        "go len E Wrapper",
    ),
    "A.java": (
        (
            "public final class A extends B "
            "{\n    private static <T> List<T> all(int x) {\n        return call(x);\n"
            "    }\n"
            "    @Override\n    public A(int y) {\n"
        ),
        "A all A",
    ),
    "a.kt": ("data class P(val x: Int)\nfun String.shout(): String = this\n", "P shout"),
    "a.cs": (
        (
            "namespace My.App "
            "{\n  public interface IThing {\n    public async Task<int> CountAsync(string s)\n"
        ),
        "My.App IThing CountAsync",
    ),
    "a.c": (
        (
            "#define MAX(a, b) x\nstatic int parse_line(char "
            "*s)\n{\n  if (x) return call(y);\n}\nint proto(int);\n"
            "struct node {\n"
        ),
        "parse_line node MAX",
    ),
    "a.cpp": (
        "namespace db {\nvoid Table::insert(const Row& r) {\nclass Table final {\n",
        "Table::insert db Table",
    ),
    "a.rb": ("module M\n  class C\n    def self.build(x)\n    def ok?\n", "M C build ok?"),
    "a.php": ("final class C\n{\n    public static function make($x)\n", "make C"),
    "a.sh": ("function one {\ntwo() {\n  three\n}\n", "two one"),
    "a.sql": ("CREATE TABLE IF NOT EXISTS users (\ncreate or replace function f()\n", "users f"),
    "a.proto": (
        "message Ping {\n  enum Kind {\nservice S {\n  rpc Call(Ping)\n",
        "Ping Kind S Call",
    ),
    "a.swift": ("public struct P {\n  mutating func go() {}\n", "P go"),
    "a.scala": ("case class P(x: Int)\nobject O {\n  def run(): Unit\n", "P O run"),
    "a.md": ("# Title\ntext\n## How to run\n", "Title How to run"),
    "a.txt": ("def nothing():\n", ""),
}
SUFFIXES = "py js ts vue go rs java kt scala swift cs c cpp rb php sh sql proto md rst"


def defined_names(path: str, text: str) -> list[str]:
    """Return the words of all defined names."""
    return " ".join(symbol.name for symbol in symbols_of(path, text)).split()


@pytest.mark.parametrize("path", SOURCES)
def test_defined_names_are_found(path: str) -> None:
    source, names = SOURCES[path]
    assert sorted(defined_names(path, source)) == sorted(names.split())


def test_every_language_with_patterns_has_files() -> None:
    known = {language_of(f"a.{suffix}") for suffix in SUFFIXES.split()}
    assert set(DEFINITIONS) == known
    assert language_of("Makefile") == "make"
    assert language_of("noext") is None


@pytest.mark.parametrize(
    "broken", ["def f(a,\n      b):\n  return (\nclass C:\n", "def f(a,\n      b): pass\n\0"]
)
def test_python_that_does_not_parse_has_definitions(broken: str) -> None:
    assert next((symbol.name, symbol.line) for symbol in symbols_of("a.py", broken)) == ("f", 1)


@pytest.mark.torture
@pytest.mark.parametrize("path", SOURCES)
@pytest.mark.parametrize(
    "hostile", [" " * 200_000, "export const " + "a" * 200_000, "f(" * 60_000, "public " * 30_000]
)
def test_every_text_is_searched_quickly(path: str, hostile: str) -> None:
    begin = time.process_time()
    defined_names(path, hostile)
    assert time.process_time() - begin < 1


@pytest.mark.parametrize(
    "hostile", [" " * 9_000, "export const " + "a" * 9_000, "f(" * 3_000, "public " * 2_000]
)
def test_a_definition_after_hostile_text_is_found(hostile: str) -> None:
    for path, (source, names) in SOURCES.items():
        found = defined_names(path, f"{hostile}\n{source}")
        assert set(names.split()) <= set(found), path
