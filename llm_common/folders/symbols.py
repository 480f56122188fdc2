"""Find the language of a source file and the names that it defines."""

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

_LANGUAGES_BY_SUFFIX: Final[Mapping[str, str]] = {
    suffix: language
    for language, suffixes in {
        "python": "py pyi",
        "javascript": "js jsx mjs cjs",
        "typescript": "ts tsx mts cts",
        "vue": "vue svelte",
        "go": "go",
        "rust": "rs",
        "java": "java",
        "kotlin": "kt kts",
        "scala": "scala",
        "swift": "swift",
        "csharp": "cs",
        "c": "c h",
        "cpp": "cc cpp cxx hh hpp hxx",
        "ruby": "rb rake",
        "php": "php",
        "shell": "sh bash zsh",
        "sql": "sql",
        "protobuf": "proto",
        "markdown": "md mdx markdown",
        "restructuredtext": "rst",
        "html": "html htm",
        "css": "css scss less",
        "json": "json",
        "yaml": "yml yaml",
        "toml": "toml",
        "xml": "xml",
    }.items()
    for suffix in suffixes.split()
}
_LANGUAGES_BY_NAME: Final[Mapping[str, str]] = {
    "makefile": "make",
    "dockerfile": "docker",
    "rakefile": "ruby",
    "gemfile": "ruby",
}


def language_of(path: str) -> str | None:
    """Return the language of a file by its name, in lower case, or None if it is unknown."""
    name = PurePosixPath(path).name.lower()
    return _LANGUAGES_BY_NAME.get(name) or _LANGUAGES_BY_SUFFIX.get(name.rpartition(".")[2])


# Each pattern matches the beginning of a line that defines `name`. Repetitions are bounded, so that
# hostile lines cannot make a search slow.
_GAP = r"[ \t]{1,8}"
_INDENT = r"^[ \t]{0,40}"
_PYTHON = (
    rf"{_INDENT}(?:async{_GAP})?(?:def|class){_GAP}(?P<name>\w+)",
    r"^(?P<name>[A-Z][A-Z0-9_]+)[ \t]?(?::[^=\n]{1,120})?=(?!=)",
)
_SCRIPT = (
    (
        rf"{_INDENT}(?:export{_GAP})?(?:default{_GAP})?(?:declare{_GAP})?(?:abstract{_GAP})?(?:async{_GAP})?"
        rf"(?:function\b[ \t*]{{0,4}}|(?:class|interface|enum|type|namespace"
        rf"|module){_GAP})(?P<name>[\w$]+)(?![\w$]|,)"
    ),
    (
        rf"^(?:export{_GAP})?(?:const|let|var){_GAP}(?P<name>[\w$]+)[^=\n]{{0,160}}=[ \t]*"
        r"(?:async\b|function\b|class\b|\(|\w+[ \t]*=>)"
    ),
    rf"^export{_GAP}(?:const|let|var){_GAP}(?P<name>[\w$]+)",
    (
        rf"^[ \t]{{1,40}}(?:(?:public|private|protected|static|async|override|readonly|get"
        rf"|set){_GAP}){{0,4}}[#*]?"
        r"(?!(?:if|for|while|switch|catch|function|return|with|constructor)\b)(?P<name>[\w$]+)"
        r"(?:<[^>\n]{1,80}>)?\([^;\n]{0,200}\{[ \t]*$"
    ),
)
_TYPE_WORDS = "class|interface|enum|record|struct|trait|object|protocol|extension|actor|namespace"
_MODIFIERS = (
    rf"(?:(?:public|private|protected|internal|static|final|abstract|sealed|partial|virtual|override|async|open|data|"
    rf"readonly|unsafe|synchronized|native|default|inline|suspend|implicit|lazy|case|fileprivate|mutating|extern|new)"
    rf"{_GAP})"
)
_TYPES = (
    rf"{_INDENT}{_MODIFIERS}{{0,6}}@?(?:{_TYPE_WORDS}){_GAP}"
    rf"(?:class{_GAP}|struct{_GAP})?(?P<name>[\w.]+)"
)
_JAVA = (
    _TYPES,
    (
        rf"^[ \t]{{1,40}}{_MODIFIERS}{{1,6}}(?:<[^>\n]{{1,80}}>[ \t]?)?"
        rf"(?:[\w.]+(?:<[^(\n]{{1,80}}>)?[\[\]?]{{0,4}}{_GAP})?"
        r"(?P<name>\w+)[ \t]?(?:<[^>\n]{1,40}>)?\("
    ),
)
_FUN = (
    rf"{_INDENT}{_MODIFIERS}{{0,6}}(?:fun|func|def){_GAP}"
    rf"(?:<[^>\n]{{1,80}}>[ \t]?)?(?:\w+\.)?(?P<name>\w+)"
)
_GO = (
    rf"^func{_GAP}(?:\([^)\n]{{1,120}}\){_GAP})?(?P<name>\w+)",
    rf"^(?:type|var|const){_GAP}(?P<name>[^\W_]\w*)",
    r"^\t(?P<name>[A-Z]\w*)[ \t]{1,8}(?:struct|interface)\b",
)
_RUST = (
    (
        rf"{_INDENT}(?:pub(?:\([^)\n]{{1,40}}\))?{_GAP})?(?:(?:async|const|unsafe|default|extern|\"C\"){_GAP}){{0,4}}"
        rf"(?:fn|struct|enum|trait|type|mod|union|const|static|macro_rules!){_GAP}(?:mut{_GAP})?(?P<name>\w+)"
    ),
    rf"^(?:unsafe{_GAP})?impl\b(?:<[^\n]{{1,120}}?>)?{_GAP}(?:[^\n{{]{{1,120}}?{_GAP}for{_GAP})?&?(?P<name>[\w:]+)",
)
_C = (
    (
        r"^(?!(?:if|else|for|while|switch|return|case|do|typedef|extern|using|goto|delete|new)\b)"
        r"(?:[A-Za-z_][\w:<>, \t*&]{0,120}[ \t*&])?(?P<name>~?[A-Za-z_][\w:~]{2,80})"
        r"[ \t]?\([^;\n]{0,200}$"
    ),
    rf"^(?:typedef{_GAP})?(?:struct|class|enum(?:{_GAP}class)?|union|namespace){_GAP}(?P<name>\w+)[^;\n]{{0,120}}$",
    rf"^#[ \t]?define{_GAP}(?P<name>\w+)\(",
)
_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "python": _PYTHON,
    "javascript": _SCRIPT,
    "typescript": _SCRIPT,
    "vue": _SCRIPT,
    "go": _GO,
    "rust": _RUST,
    "java": _JAVA,
    "csharp": _JAVA,
    "kotlin": (_TYPES, _FUN),
    "scala": (_TYPES, _FUN),
    "swift": (_TYPES, _FUN),
    "c": _C,
    "cpp": _C,
    "ruby": (rf"{_INDENT}(?:def|class|module){_GAP}(?:self\.)?(?P<name>[\w:]+[?!=]?)",),
    "php": (
        rf"{_INDENT}{_MODIFIERS}{{0,4}}function{_GAP}&?(?P<name>\w+)",
        rf"{_INDENT}{_MODIFIERS}{{0,4}}(?:class|interface|trait|enum){_GAP}(?P<name>\w+)",
    ),
    "shell": (
        rf"{_INDENT}(?:function{_GAP})?(?P<name>[\w:.-]+)[ \t]?\(\)",
        rf"{_INDENT}function{_GAP}(?P<name>[\w:.-]+)",
    ),
    "sql": (
        (
            rf"(?i)^create{_GAP}(?:or{_GAP}replace{_GAP})?(?:\w+{_GAP}){{0,2}}?"
            rf"(?:table|view|function|procedure|index|trigger|type){_GAP}(?:if{_GAP}not{_GAP}exists{_GAP})?"
            r"(?P<name>[\w.\"`]+)"
        ),
    ),
    "protobuf": (rf"{_INDENT}(?:message|enum|service|rpc){_GAP}(?P<name>\w+)",),
    "markdown": (r"^#{1,4}[ \t]{1,4}(?P<name>[^\n]{1,120})",),
    "restructuredtext": (r"^(?P<name>\S[^\n]{2,120})\n(?=([=\-~^*#])\2{2,120}$)",),
}
DEFINITIONS: Final[Mapping[str, tuple[re.Pattern[str], ...]]] = {
    language: tuple(re.compile(pattern, re.MULTILINE) for pattern in patterns)
    for language, patterns in _PATTERNS.items()
}
"""By language, patterns for lines that define something. The group `name` is the defined name."""


_LINE_END = re.compile(r"\n")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A definition in a source file.

    Attributes:
        name: The defined name.
        line: The line number, from 1.
        indent: The number of characters before the definition in its line.
    """

    name: str
    line: int
    indent: int


def symbols_of(path: str, text: str) -> list[Symbol]:
    """Return the definitions of a file, one a line, in the order of their lines.

    Returns none if the language is unknown. Takes linear time, because nothing is parsed.

    Args:
        path: The file's path, which decides the language.
        text: The file's content.
    """
    ends = [match.start() for match in _LINE_END.finditer(text)]
    by_line: dict[int, Symbol] = {}
    for pattern in DEFINITIONS.get(language_of(path) or "", ()):
        for match in pattern.finditer(text):
            line = bisect_right(ends, match.start("name") - 1) + 1
            indent = len(match.group()) - len(match.group().lstrip())
            by_line.setdefault(line, Symbol(match["name"], line, indent))
    return sorted(by_line.values(), key=lambda symbol: symbol.line)
