"""What a text names by its form: URLs, addresses, quotes, paths, files and symbols: `names_in`."""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

NameKind = Literal["url", "email", "quoted", "path", "file", "symbol"]


class Name(NamedTuple):
    """A part of a text that its form tells from words.

    Attributes:
        start: Where it begins in the text.
        end: Where it ends, with the quotes around it.
        kind: What it looks like.
        text: The name, without quotes and the punctuation of the sentence.
    """

    start: int
    end: int
    kind: NameKind
    text: str


CODE_EXTENSIONS: Final = frozenset(  # one paragraph, since a list would take a page
    """
    asm bash bat c cc cfc cjs clj cljs cmake coffee cpp cr cs css cu cxx d dart ejs el elm erl ex
    exs f90 fs fsx glsl go gradle graphql groovy h hh hpp hrl hs htm html hxx ino ipynb java jl js
    jsx kt kts less lisp lua m mjs mk ml mli mm mts nim nix pas php pl pm proto ps1 purs py pyi pyx
    r rb re rkt rs s sass scala scm scss sh sol sql sv svelte swift tcl tf ts tsx v vb vhd vim vue
    wat wgsl zig zsh
    """.split()  # noqa: SIM905
)
"""Extensions of files that hold program text, without the dot, in lower case."""

FILE_EXTENSIONS: Final = CODE_EXTENSIONS | frozenset(
    """
    adoc avro bin bmp cfg conf config csv dat db diff doc docx dockerfile env gif gz ico ini jar
    jpeg jpg json json5 jsonc jsonl lock log markdown md mdx mp3 mp4 ndjson odt parquet patch pdf
    pem pkl png ppt pptx properties rst so sqlite svg tar tex toml tsv txt wav webp whl xls xlsx xml
    yaml yml zip
    """.split()  # noqa: SIM905
)
"""Extensions that tell a file name from other words with a dot."""

_URL: Final = re.compile(r"(?:https?|ftp|file|ssh|git)://[^\s<>\"'`]{1,2000}", re.IGNORECASE)
# A single quote beside a letter is an apostrophe, as in `don't`.
_QUOTED: Final = re.compile(
    r"(?<!\w)(?:"
    r"\"[^\"\n]{1,200}\"|`[^`\n]{1,200}`|'[^'\n]{1,200}'(?!\w)"
    r"|\u201c[^\u201d\n]{1,200}\u201d|\u00ab[^\u00bb\n]{1,200}\u00bb"
    r"|\u2018[^\u2019\n]{1,200}\u2019(?!\w))"
)
_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")
_SEPARATOR: Final = re.compile(r"[/\\]")
# A plural such as `file(s)` is not a call.
_TOKEN: Final = re.compile(r"(?:\b[A-Za-z]:(?=[/\\]))?[\w.~@+$/\\-]+(?P<call>\((?!s\)))?")
_TRAILING: Final = ".-+@$"
_ROOTED: Final = re.compile(r"(?:[A-Za-z]:|~|\.{1,2})?[/\\]\w")
_FILE_NAMES: Final = frozenset(  # a paragraph, since a list would take a page
    """
    CHANGELOG CONTRIBUTING Dockerfile Gemfile Jenkinsfile LICENSE Makefile Procfile README Rakefile
    """.split()  # noqa: SIM905
)
_HIDDEN_FILE: Final = re.compile(r"\.[a-z][a-z0-9._-]+")
_IDENTIFIER: Final = re.compile(r"[^\W\d]\w*")
# Each part has two characters or more, because `e.g.` and `i.e.` name nothing.
_DOTTED: Final = re.compile(r"[^\W\d]\w+(?:\.[^\W\d]\w+)+")
# Capitals need two small letters after them, because `URLs` and `PDFs` are plain plurals.
_CAMEL: Final = re.compile(r"[a-z]+[A-Z]|[A-Z]+[a-z0-9]+[A-Z]|[A-Z]{2,}[a-z]{2}")


def names_in(text: str) -> list[Name]:
    """Return what a text names, in its order. What is named within quotes follows the quote.

    Symbols are names such as `HttpClient`, `get_user`, `os.path.join` and `run()`, the last
    without its parentheses. A path without a known extension begins at a root or with a dot. Takes
    time linear in the text.
    """
    names: list[Name] = []
    for match in _URL.finditer(text):
        names.append(Name(match.start(), match.end(), "url", _url(match[0])))
    # Blanked at the same length, so that the positions of later names stay the same.
    text = _URL.sub(_blank, text)
    for match in _QUOTED.finditer(text):
        phrase = match[0][1:-1].strip()
        if phrase:
            names.append(Name(match.start(), match.end(), "quoted", phrase))
    for match in _EMAIL.finditer(text):
        names.append(Name(match.start(), match.end(), "email", match[0]))
    names += _tokens(_EMAIL.sub(_blank, text))
    return sorted(names, key=lambda name: (name.start, -name.end))


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _url(text: str) -> str:
    """Remove the punctuation of the sentence around a URL."""
    url = text.rstrip(".,;:!?")
    while url.endswith(")") and url.count(")") > url.count("("):
        url = url[:-1].rstrip(".,;:!?")
    return url


def _tokens(text: str) -> Iterator[Name]:
    """Yield the paths, files and symbols of a text."""
    for match in _TOKEN.finditer(text):
        name = match[0].removesuffix("(").lstrip("@+$-").rstrip(_TRAILING)
        kind = _kind(name, called=match["call"] is not None)
        if kind:
            yield Name(match.start(), match.end(), kind, name)


def _kind(name: str, *, called: bool) -> NameKind | None:
    """Return the kind of a name, or None for a plain word."""
    _, dot, extension = name[1:].rpartition(".")  # a leading dot marks a hidden file
    has_extension = dot != "" and extension.lower() in FILE_EXTENSIONS
    if _SEPARATOR.search(name):
        # Without an extension, only a name from a root or a dot: `read/write` is no path.
        return "path" if has_extension or _ROOTED.match(name) else None
    if called and (_IDENTIFIER.fullmatch(name) or _DOTTED.fullmatch(name)):
        return "symbol"
    if has_extension or name in _FILE_NAMES or _HIDDEN_FILE.fullmatch(name):
        return "file"
    looks_like_code = "_" in name.strip("_") or name[:2] == "__" or _CAMEL.match(name)
    if _DOTTED.fullmatch(name) or (_IDENTIFIER.fullmatch(name) and looks_like_code):
        return "symbol"
    return None
