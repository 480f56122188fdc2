"""What kind of file a path is, told by its name alone."""

import re
from typing import Final

__all__ = ["CODE_EXTENSIONS", "FILE_EXTENSIONS", "is_code", "is_test"]

CODE_EXTENSIONS: Final = frozenset(  # one paragraph, since a list would take a page
    """
    asm bash bat c cc cfc cjs clj cljs cmake coffee cpp cr cs css cu cxx d dart ejs el elm erl ex exs f90 fs fsx glsl go
    gradle graphql groovy h hh hpp hrl hs htm html hxx ino ipynb java jl js jsx kt kts less lisp lua m mjs mk ml mli mm
    mts nim nix pas php pl pm proto ps1 purs py pyi pyx r rb re rkt rs s sass scala scm scss sh sol sql sv svelte swift
    tcl tf ts tsx v vb vhd vim vue wat wgsl zig zsh
    """.split()  # noqa: SIM905
)
"""Extensions of files that hold program text, without the dot, in lower case."""

FILE_EXTENSIONS: Final = CODE_EXTENSIONS | frozenset(
    """
    adoc avro bin bmp cfg conf config csv dat db diff doc docx dockerfile env gif gz ico ini jar jpeg jpg json json5
    jsonc jsonl lock log markdown md mdx mp3 mp4 ndjson odt parquet patch pdf pem pkl png ppt pptx properties rst so
    sqlite svg tar tex toml tsv txt wav webp whl xls xlsx xml yaml yml zip
    """.split()  # noqa: SIM905
)
"""Extensions that tell a file from other words with a dot in them."""

_CODE_NAMES: Final = frozenset({"dockerfile", "gemfile", "jenkinsfile", "makefile", "procfile", "rakefile"})
_TEST: Final = re.compile(
    r"(?:^|[/\\])(?:(?:tests?|__tests__|specs?|testdata|t)[/\\]|test_|conftest\.)|[._-](?:tests?|spec)\.", re.IGNORECASE
)
_NO_CODE: Final = frozenset(["", "csv", "json", "log", "markdown", "plain", "plaintext", "text", "toml", "xml", "yaml"])


def is_code(path: str, language: str | None = None) -> bool:
    """Whether a file holds program text: by its extension or name, else by the language that it is said to be in."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    extension = name.rpartition(".")[2] if "." in name else ""
    if extension in FILE_EXTENSIONS:
        return extension in CODE_EXTENSIONS
    return name in _CODE_NAMES or (language or "").lower() not in _NO_CODE


def is_test(path: str) -> bool:
    """Whether a file is a test or belongs to tests, by its folder or its name."""
    return _TEST.search(path) is not None
