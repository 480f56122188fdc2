"""Find what a text names: keywords, files, symbols, URLs, phrases, and files of the pool."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from llm_common.context.request import (
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    EntityKind,
    ExtractedEntity,
    Kind,
)
from llm_common.ranking.cues import CODE_EXTENSIONS, FILE_EXTENSIONS, names_in
from llm_common.ranking.lexical import STOP_WORDS, stem
from llm_common.text.ignore_rules import IgnoreRules

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
    return files_named_in(text, files)


class _LowerPath(NamedTuple):
    """The path of a file in lower case, and its components."""

    file_id: str
    path: str
    components: tuple[str, ...]


def files_named_in(text: str, files: Iterable[ContextFile]) -> frozenset[str]:
    """Return the ids of the files that a text names by path or name, as whole tokens (S1-09).

    A name without an extension that may be a word, such as `build`, counts only within quotes or
    after a folder. `README` and `Makefile` cannot be words. A name after a folder, such as
    `src/config.ts`, means the files whose path ends that way. If there are none, it means the files
    whose path ends the path in the text, which may be absolute.
    """
    text = text.lower()
    homonyms: dict[str, list[_LowerPath]] = {}
    words: set[str] = set()
    for file in files:
        for spelling in {_basename(file.path), _basename(file.name)}:
            name = spelling.lower()
            # A plain search excludes most files.
            if name not in text or not _RUN.search(name):
                continue
            path = file.path.lower()
            homonyms.setdefault(name, []).append(_LowerPath(file.id, path, _components(path)))
            if _may_be_a_word(spelling):
                words.add(name)
    file_ids: set[str] = set()
    for name, paths in homonyms.items():
        for match in re.finditer(f"(?={re.escape(name)})", text):
            start, end = match.start(), match.start() + len(name)
            if not _is_whole(text, start, end):
                continue
            before, after = text[start - 1 : start], text[end : end + 1]
            if before in {"/", "\\"}:
                file_ids.update(_named_by_path(text, start, end, paths))
            elif name not in words or (before in _QUOTES and after in _QUOTES):
                file_ids.update(path.file_id for path in paths)
    return frozenset(file_ids)


def _may_be_a_word(spelling: str) -> bool:
    is_acronym = spelling.isupper() and len(spelling) >= _ACRONYM_CHARS
    is_file_name = spelling.endswith("file") and spelling[0].isupper()
    return spelling.isalnum() and not is_acronym and not is_file_name


def _is_whole(text: str, start: int, end: int) -> bool:
    if _is_within_run(text, start) or _is_within_run(text, end):
        return False
    before = text[max(0, start - 2) : start]
    return not _CONTINUED_BEFORE.search(before) and not _CONTINUED_AFTER.match(text, end)


def _is_within_run(text: str, position: int) -> bool:
    run = _RUN.match(text, position - 1) if position else None
    return run is not None and run.end() > position


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


def excluded_items(pool: DataPoolSnapshot, patterns: Sequence[str]) -> frozenset[tuple[Kind, str]]:
    """Return kind and id of the items whose path, name or id matches a pattern, in any case.

    Patterns work as in a `.gitignore`. A pattern without a slash matches at any depth, and one with
    a slash from the root. `*` matches within a component, and `**` matches any number of
    components. A pattern that matches a folder covers its content. Only files have paths and names,
    and the id of the project is its name.
    """
    if not patterns:
        return frozenset()
    rules = IgnoreRules("\n".join(map(_rule, patterns)))
    excluded: set[tuple[Kind, str]] = set()
    for kind, item_id, spellings in _items(pool):
        for spelling in spellings:
            # A pattern that matches a folder covers its content.
            if any(map(rules.verdict, accumulate(_components(spelling.lower()), "{}/{}".format))):
                excluded.add((kind, item_id))
    return frozenset(excluded)


def _rule(pattern: str) -> str:
    """Return a pattern as a line of a `.gitignore`, from the root if it has folders."""
    components = [*_components(pattern.lower())]
    is_rooted = len(components) > 1 or "/" in pattern.rstrip("/")
    while components[1:] and components[-1] == "**":
        components.pop()  # the folder covers its content
    glob = "/".join(components)
    if is_rooted:
        return f"/{glob}"
    return f"\\{glob}" if glob.startswith(("!", "#")) else glob


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
        return extension in CODE_EXTENSIONS
    return name in _CODE_NAMES or (language or "").lower() not in _NO_CODE


def is_test(path: str) -> bool:
    """Return whether a file is a test or belongs to tests, by its folder or its name."""
    return _TEST.search(path) is not None


MAX_ENTITIES: Final = 64
"""Maximum number of entities of a text. Every turn is searched for each of them."""

# Users write before or after a long text that they paste.
_HEAD_CHARS: Final = 4_000
_TAIL_CHARS: Final = 2_000


def extract_entities(text: str) -> tuple[ExtractedEntity, ...]:
    """Return the first 64 distinct entities of a text, in their order.

    Entities are URLs, paths, file names with a known extension, symbols and quoted phrases. Symbols
    are names such as `HttpClient`, `get_user`, `os.path.join` and `run()`, the last without its
    parentheses. A quoted phrase that is itself another entity does not count as a phrase. Reads the
    first 4,000 and the last 2,000 characters of a longer text.
    """
    names = names_in(head_and_tail(text))
    inner = {name.text for name in names if name.kind != "quoted"}
    distinct: dict[tuple[EntityKind, str], ExtractedEntity] = {}
    for name in names:
        if name.kind == "email" or (
            name.kind == "quoted" and name.text.removesuffix("()") in inner
        ):
            continue
        distinct[name.kind, name.text] = ExtractedEntity(kind=name.kind, text=name.text)
    return tuple(distinct.values())[:MAX_ENTITIES]


def head_and_tail(text: str) -> str:
    """Return the text, or the beginning and the end of a long one, which surround pasted text."""
    if len(text) <= _HEAD_CHARS + _TAIL_CHARS:
        return text
    return f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"


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
