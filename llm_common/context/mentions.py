"""Find what a text names: keywords, files, symbols, URLs, phrases, and files of the pool."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Final, NamedTuple

from llm_common.context.request import (
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    EntityKind,
    ExtractedEntity,
    Kind,
)
from llm_common.ranking.lexical import STOP_WORDS, stem

# ASCII runs are separate, since Chinese puts no space before `config.ts`.
_RUN: Final = re.compile(r"[0-9a-z_]+|[^\W0-9a-z_]+")
_SEPARATOR: Final = re.compile(r"[/\\]")
_NO_PATH: Final = re.compile(r"[^\w.@+~$/\\-]")
_MAX_PATH_CHARS: Final = 1_024  # bounds the work at each name
# Characters that continue a name. `my-config.ts`, `config.ts.bak` and `config.ts~` do not name
# `config.ts`, and `main.c++` does not name `main.c`.
_CONTINUED_BEFORE: Final = re.compile(r"[0-9a-z_~.]\Z|[0-9a-z_]-\Z")
_CONTINUED_AFTER: Final = re.compile(r"[0-9a-z_/\\~]|[.@-][0-9a-z_]|\+\+")
_QUOTES: Final = frozenset("'\"`\u2018\u2019\u201c\u201d\u00ab\u00bb")
_ACRONYM_CHARS: Final = 3


def mentioned_files(
    files: Sequence[ContextFile], request: ContextSelectionRequest
) -> frozenset[str]:
    """Return the ids of the files that the request's text or a priority hint names."""
    text = request.intent.text
    for hint in request.priority_hints:
        text += f'\n"{hint}"'  # quoted, so that a name such as "build" counts
    lowered = text.lower()

    # A plain search excludes most files, and is faster than indexing their names.
    def is_spelled(file: ContextFile) -> bool:
        return any(name.lower() in lowered for name in _spellings(file))

    return MentionFinder(filter(is_spelled, files)).find(text)


class _LowerPath(NamedTuple):
    """The path of a file in lower case, and its components."""

    file_id: str
    path: str
    components: tuple[str, ...]


class MentionFinder:
    """Finds the files that a text names by path or name, as whole tokens (S1-09).

    A name without an extension that may be a word, such as `build`, counts only within quotes or
    after a folder. `README` and `Makefile` cannot be words. A name after a folder, such as
    `src/config.ts`, means the files whose path ends that way. If there are none, it means the files
    whose path ends the path in the text, which may be absolute. The text is read in one pass,
    however many files there are.

    Args:
        files: The files to look for.
    """

    def __init__(self, files: Iterable[ContextFile]) -> None:
        self._files: dict[str, list[_LowerPath]] = {}
        self._words: set[str] = set()
        for file in files:
            path = file.path.lower()
            lower_path = _LowerPath(file.id, path, _components(path))
            for spelling in _spellings(file):
                name = spelling.lower()
                self._files.setdefault(name, []).append(lower_path)
                is_acronym = spelling.isupper() and len(spelling) >= _ACRONYM_CHARS
                is_file_name = spelling.endswith("file") and spelling[0].isupper()
                if spelling.isalnum() and not is_acronym and not is_file_name:
                    self._words.add(name)
        self._names: dict[str, list[tuple[int, str]]] = {}
        for name in self._files:
            # Indexed by the longest run of the stem, because many names share an extension.
            runs = _RUN.finditer(name.rpartition(".")[0] or name)
            longest = max(runs, key=lambda run: len(run.group()), default=None)
            if longest is not None:
                self._names.setdefault(longest.group(), []).append((longest.start(), name))

    def find(self, text: str) -> frozenset[str]:
        """Return the ids of the files that the text names."""
        text = text.lower()
        file_ids: set[str] = set()
        for run in _RUN.finditer(text):
            for offset, name in self._names.get(run.group(), ()):
                start = run.start() - offset
                if start < 0 or not text.startswith(name, start):
                    continue
                if _is_whole(text, start, start + len(name)):
                    file_ids.update(self._named_at(text, start, name))
        return frozenset(file_ids)

    def _named_at(self, text: str, start: int, name: str) -> list[str]:
        files, end = self._files[name], start + len(name)
        before, after = text[start - 1 : start], text[end : end + 1]
        if before in {"/", "\\"}:
            return _named_by_path(text, start, end, files)
        if name in self._words and not (before in _QUOTES and after in _QUOTES):
            return []
        return [file.file_id for file in files]


def _spellings(file: ContextFile) -> set[str]:
    return {_basename(file.path), _basename(file.name)}


def _is_whole(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - 2) : start]
    return not _CONTINUED_BEFORE.search(before) and not _CONTINUED_AFTER.match(text, end)


def _named_by_path(text: str, start: int, end: int, files: Sequence[_LowerPath]) -> list[str]:
    """Return the files of one name that fit the path in the text best."""
    folder = _NO_PATH.split(text[max(0, start - _MAX_PATH_CHARS) : start])[-1]
    components = _components(folder + text[start:end])
    by_fit: dict[float, list[str]] = {0: []}
    for file in files:
        by_fit.setdefault(_fit(components, file, text, end), []).append(file.file_id)
    closest = max(by_fit)
    return by_fit[closest] if closest else []


def _fit(components: tuple[str, ...], file: _LowerPath, text: str, end: int) -> float:
    """Return infinity if the file's path ends with the path in the text.

    Else return the length of the file's path if it ends the path in the text, or 0.
    """
    length = len(file.components)
    if file.components[-len(components) :] == components:
        return math.inf
    if components[-length:] == file.components:
        return length
    # A path with spaces is not found by its components.
    start = end - len(file.path)
    if start >= 0 and text.startswith(file.path, start) and _is_whole(text, start, end):
        return length
    return 0


def _components(path: str) -> tuple[str, ...]:
    return tuple(part for part in _SEPARATOR.split(path) if part not in {"", "."})


def _basename(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


_ANY_DEPTH: Final = "**"


def excluded_items(pool: DataPoolSnapshot, patterns: Sequence[str]) -> frozenset[tuple[Kind, str]]:
    """Return kind and id of the items whose path, name or id matches a pattern, in any case.

    Patterns work as in a `.gitignore`. A pattern without a slash matches at any depth, and one with
    a slash from the root. `*` matches within a component, and `**` matches any number of
    components. A pattern that matches a folder covers its content. Only files have paths and names,
    and the id of the project is its name.
    """
    globs = [*filter(None, map(_glob, patterns))]
    excluded: set[tuple[Kind, str]] = set()
    if not globs:
        return frozenset()
    for kind, item_id, spellings in _items(pool):
        for spelling in spellings:
            components = _components(spelling.lower())
            if any(_matches(glob, components) for glob in globs):
                excluded.add((kind, item_id))
    return frozenset(excluded)


def _items(pool: DataPoolSnapshot) -> Iterator[tuple[Kind, str, set[str]]]:
    """Yield kind and id of every item, and the texts that a pattern may match."""
    for file in pool.context_files:
        yield "file", file.id, {file.path, file.name, file.id}
    for turn in pool.session_log:
        yield "turn", turn.id, {turn.id}
    for snippet in pool.memory_hits:
        yield "memory", snippet.id, {snippet.id}
    for pointer in pool.tool_outputs:
        yield "output", pointer.pointer_id, {pointer.pointer_id}
    if pool.project_state:
        yield "project", pool.project_state.name, {pool.project_state.name}


# A test for each component. None is `**`.
_Glob = tuple[Callable[[str], object] | None, ...]


def _glob(pattern: str) -> _Glob:
    """Compile a pattern to the tests of its components, with consecutive `**` as one."""
    components = _components(pattern.lower())
    # As in a .gitignore, a slash at the end does not bind a pattern to the root.
    if len(components) == 1 and "/" not in pattern.rstrip("/"):
        components = (_ANY_DEPTH, *components)
    tests: list[Callable[[str], object] | None] = []
    for component in components:
        if component != _ANY_DEPTH:
            # Each component alone, because the `*` of fnmatch matches slashes too.
            tests.append(re.compile(translate(component)).match)
        elif tests[-1:] != [None]:
            tests.append(None)
    return tuple(tests)


def _matches(glob: _Glob, components: tuple[str, ...]) -> bool:
    """Return whether a path, or a folder above it, matches the glob."""
    position = index = retry = 0
    star = -1
    while position < len(glob):
        test = glob[position]
        if test is None:
            star, retry = position, index
        elif index < len(components) and test(components[index]):
            index += 1
        elif star < 0 or retry >= len(components):
            return False
        else:
            # Only the last `**` has to be retried with one more component. An earlier one cannot
            # help, because the last one already started at the first place that it could.
            position, retry = star, retry + 1
            index = retry
        position += 1
    return True


_CODE_EXTENSIONS: Final = frozenset(  # one paragraph, since a list would take a page
    """
    asm bash bat c cc cfc cjs clj cljs cmake coffee cpp cr cs css cu cxx d dart ejs el elm erl ex
    exs f90 fs fsx glsl go gradle graphql groovy h hh hpp hrl hs htm html hxx ino ipynb java jl js
    jsx kt kts less lisp lua m mjs mk ml mli mm mts nim nix pas php pl pm proto ps1 purs py pyi pyx
    r rb re rkt rs s sass scala scm scss sh sol sql sv svelte swift tcl tf ts tsx v vb vhd vim vue
    wat wgsl zig zsh
    """.split()  # noqa: SIM905
)
"""Extensions of files that hold program text, without the dot, in lower case."""

FILE_EXTENSIONS: Final = _CODE_EXTENSIONS | frozenset(
    """
    adoc avro bin bmp cfg conf config csv dat db diff doc docx dockerfile env gif gz ico ini jar
    jpeg jpg json json5 jsonc jsonl lock log markdown md mdx mp3 mp4 ndjson odt parquet patch pdf
    pem pkl png ppt pptx properties rst so sqlite svg tar tex toml tsv txt wav webp whl xls xlsx xml
    yaml yml zip
    """.split()  # noqa: SIM905
)
"""Extensions that tell a file name from other words with a dot."""

_CODE_NAMES: Final = frozenset(
    {"dockerfile", "gemfile", "jenkinsfile", "makefile", "procfile", "rakefile"}
)
_TEST: Final = re.compile(
    r"(?:^|[/\\])(?:(?:tests?|__tests__|specs?|testdata|t)[/\\]|test_|conftest\.)|[._-](?:tests?|spec)\.",
    re.IGNORECASE,
)
_NO_CODE: Final = frozenset(
    ["", "csv", "json", "log", "markdown", "plain", "plaintext", "text", "toml", "xml", "yaml"]
)


def is_code(path: str, language: str | None = None) -> bool:
    """Return whether a file contains code, by its extension or name, else by its language."""
    name = _basename(path).lower()
    _, dot, extension = name.rpartition(".")
    if dot and extension in FILE_EXTENSIONS:
        return extension in _CODE_EXTENSIONS
    return name in _CODE_NAMES or (language or "").lower() not in _NO_CODE


def is_test(path: str) -> bool:
    """Return whether a file is a test or belongs to tests, by its folder or its name."""
    return _TEST.search(path) is not None


MAX_ENTITIES: Final = 64
"""Maximum number of entities of a text. Every turn is searched for each of them."""

URL: Final = re.compile(r"(?:https?|ftp|file|ssh|git)://[^\s<>\"'`]{1,2000}", re.IGNORECASE)
# A single quote beside a letter is an apostrophe, as in `don't`.
QUOTED: Final = re.compile(
    r"(?<!\w)(?:"
    r"\"(?P<double>[^\"\n]{1,200})\"|`(?P<code>[^`\n]{1,200})`|'(?P<single>[^'\n]{1,200})'(?!\w)"
    r"|\u201c(?P<curly>[^\u201d\n]{1,200})\u201d|\u00ab(?P<angled>[^\u00bb\n]{1,200})\u00bb"
    r"|\u2018(?P<raised>[^\u2019\n]{1,200})\u2019(?!\w))"
)

_Located = tuple[int, EntityKind, str]

# Users write before or after a long text that they paste.
_HEAD_CHARS: Final = 4_000
_TAIL_CHARS: Final = 2_000
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


def extract_entities(text: str) -> tuple[ExtractedEntity, ...]:
    """Return the first 64 distinct entities of a text, in their order.

    Entities are URLs, paths, file names with a known extension, symbols and quoted phrases. Symbols
    are names such as `HttpClient`, `get_user`, `os.path.join` and `run()`, the last without its
    parentheses. A quoted phrase that is itself another entity does not count as a phrase. Reads the
    first 4,000 and the last 2,000 characters of a longer text.
    """
    text = head_and_tail(text)
    entities: list[_Located] = []
    for url in URL.finditer(text):
        entities.append((url.start(), "url", _url(url.group())))
    # Blanked at the same length, so that the positions of later entities stay the same.
    unlinked = URL.sub(lambda match: " " * len(match.group()), text)
    for match in QUOTED.finditer(unlinked):
        phrase = match.group()[1:-1].strip()
        names = {name for _, _, name in _names(phrase)}
        if phrase and phrase.removesuffix("()") not in names:
            entities.append((match.start(), "quoted", phrase))
    entities += _names(unlinked)
    distinct: dict[tuple[EntityKind, str], ExtractedEntity] = {}
    for _, kind, name in sorted(entities):
        distinct[kind, name] = ExtractedEntity(kind=kind, text=name)
    return tuple(distinct.values())[:MAX_ENTITIES]


def head_and_tail(text: str) -> str:
    """Return the text, or the beginning and the end of a long one, which surround pasted text."""
    if len(text) <= _HEAD_CHARS + _TAIL_CHARS:
        return text
    return f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"


def _url(text: str) -> str:
    """Remove the punctuation of the sentence around a URL."""
    url = text.rstrip(".,;:!?")
    while url.endswith(")") and url.count(")") > url.count("("):
        url = url[:-1].rstrip(".,;:!?")
    return url


def _names(text: str) -> Iterator[_Located]:
    """Yield the paths, files and symbols of a text."""
    for match in _TOKEN.finditer(text):
        name = match.group().removesuffix("(").lstrip("@+$-").rstrip(_TRAILING)
        kind = _kind(name, called=match["call"] is not None)
        if kind:
            yield match.start(), kind, name


def _kind(name: str, *, called: bool) -> EntityKind | None:
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


_MAX_KEYWORDS: Final = 64
"""Maximum number of keywords of a text. Every file is searched for each of them."""

_WORD: Final = re.compile(r"\w+")


def extract_keywords(text: str) -> tuple[str, ...]:
    """Return the first 64 distinct words of a text, in lower case, without stop words.

    An identifier such as `get_user` is one word. Single ASCII characters are omitted, since every
    text contains them.
    """
    words: dict[str, None] = {}
    for match in _WORD.finditer(text):
        word = match.group().lower()
        if word not in STOP_WORDS and (len(word) > 1 or not word.isascii()):
            words[word] = None
            if len(words) == _MAX_KEYWORDS:
                break
    return tuple(words)


def stem_counts(text: str) -> dict[str, int]:
    """Count the words of a text by their stems, without English stop words."""
    return Counter(stem(word) for word in _WORD.findall(text.lower()) if word not in STOP_WORDS)


def similarity(left: Mapping[str, int], right: Mapping[str, int]) -> float:
    """Return the cosine of two `stem_counts`, within [0, 1], symmetric, and 0 if one is empty.

    A cheap measure without embeddings: Salton's vector space model, without inverse document
    frequencies.
    """
    if len(left) > len(right):
        left, right = right, left
    shared = sum(times * right.get(stem, 0) for stem, times in left.items())
    if not shared:
        return 0.0
    left_square = sum(times * times for times in left.values())
    right_square = sum(times * times for times in right.values())
    return min(1.0, shared / math.sqrt(left_square * right_square))  # rounding may exceed 1
