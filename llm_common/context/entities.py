"""The keywords of a text, and the files, symbols, URLs and phrases that it names."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from llm_common.context.mentions import FILE_EXTENSIONS
from llm_common.context.request import EntityKind, ExtractedEntity
from llm_common.ranking.lexical import STOP_WORDS
from llm_common.ranking.scan import stem

MAX_ENTITIES: Final = 64
"""Most entities of a text: every turn is searched for each, and the first say most."""

URL: Final = re.compile(r"(?:https?|ftp|file|ssh|git)://[^\s<>\"'`]{1,2000}", re.IGNORECASE)
QUOTED: Final = re.compile(
    r"(?<!\w)(?:"
    r"\"(?P<double>[^\"\n]{1,200})\"|`(?P<code>[^`\n]{1,200})`|'(?P<single>[^'\n]{1,200})'(?!\w)"
    r"|\u201c(?P<curly>[^\u201d\n]{1,200})\u201d|\u00ab(?P<angled>[^\u00bb\n]{1,200})\u00bb"
    r"|\u2018(?P<raised>[^\u2019\n]{1,200})\u2019(?!\w))"
)

_Located = tuple[int, EntityKind, str]

_HEAD_CHARS: Final = 4_000
_TAIL_CHARS: Final = 2_000
_TOKEN: Final = re.compile(r"(?:\b[A-Za-z]:(?=[/\\]))?[\w.~@+$/\\-]+(?P<call>\((?!s\)))?")
_TRAILING: Final = ".-+@$"
_SEPARATORS: Final = re.compile(r"[/\\]+")
_ROOTED: Final = re.compile(r"(?:[A-Za-z]:|~|\.{1,2})?[/\\]\w")
_FOLDERS: Final = frozenset(  # a paragraph, since a list would take a page
    """
    .github app apps bin cmd config docs examples include internal lib packages pkg scripts src test
    tests tools
    """.split()  # noqa: SIM905
)
_MIN_FOLDERS: Final = 3  # `read/write` is no path, `a/b/c` is
_FILE_NAMES: Final = frozenset(  # a paragraph, since a list would take a page
    """
    CHANGELOG CONTRIBUTING Dockerfile Gemfile Jenkinsfile LICENSE Makefile Procfile README Rakefile
    """.split()  # noqa: SIM905
)
_INITIALS: Final = re.compile(r"(?:[A-Z]\.)+[A-Z]")
_HIDDEN_FILE: Final = re.compile(r"\.[a-z][a-z0-9._-]+")
_IDENTIFIER: Final = re.compile(r"[^\W\d]\w*")
_DOTTED: Final = re.compile(r"[^\W\d]\w+(?:\.[^\W\d]\w+)+")
_CAMEL: Final = re.compile(r"[a-z]+[A-Z]|[A-Z]+[a-z0-9]+[A-Z]|[A-Z]{2,}[a-z]{2}")


def extract_entities(text: str) -> tuple[ExtractedEntity, ...]:
    """Return the first 64 distinct entities that the text names, in their order.

    URLs; paths and file names with an extension that is known; symbols, which are names such as
    `HttpClient`, `get_user`, `os.path.join` and `run()`, the last without its brackets; quoted
    phrases, unless such a phrase is itself one of the former. Reads the first 4,000 and the last
    2,000 characters of a longer text.
    """
    text = head_and_tail(text)
    urls = URL.finditer(text)
    entities: list[_Located] = [(url.start(), "url", _url(url.group())) for url in urls]
    unlinked = URL.sub(lambda match: " " * len(match.group()), text)
    entities += _quoted(unlinked)
    entities += _named(unlinked)
    entities.sort()
    distinct = dict.fromkeys((kind, name) for _, kind, name in entities)
    return tuple(
        ExtractedEntity(kind=kind, text=name) for kind, name in islice(distinct, MAX_ENTITIES)
    )


def head_and_tail(text: str) -> str:
    """Return the text, or the beginning and the end of a long one, around pasted text."""
    if len(text) <= _HEAD_CHARS + _TAIL_CHARS:
        return text
    return f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"


def _url(text: str) -> str:
    url = text.rstrip(".,;:!?")
    while url.endswith(")") and url.count(")") > url.count("("):
        url = url[:-1].rstrip(".,;:!?")
    return url


def _quoted(text: str) -> Iterator[_Located]:
    for match in QUOTED.finditer(text):
        phrase = match.group()[1:-1].strip()
        if phrase and phrase.removesuffix("()") not in {name for _, _, name in _named(phrase)}:
            yield match.start(), "quoted", phrase


def _named(text: str) -> Iterator[_Located]:
    for match in _TOKEN.finditer(text):
        name = match.group().removesuffix("(").lstrip("@+$-").rstrip(_TRAILING)
        kind = _kind(name, called=match["call"] is not None)
        if kind:
            yield match.start(), kind, name


def _kind(name: str, *, called: bool) -> EntityKind | None:
    extension = name.rpartition(".")[2].lower() if "." in name[1:] else ""
    known = extension in FILE_EXTENSIONS
    if _SEPARATORS.search(name):
        return "path" if known or _leads_somewhere(name) else None
    if called and (_IDENTIFIER.fullmatch(name) or _DOTTED.fullmatch(name)):
        return "symbol"
    if _INITIALS.fullmatch(name):
        return None
    if known or name in _FILE_NAMES or _HIDDEN_FILE.fullmatch(name):
        return "file"
    if _DOTTED.fullmatch(name):
        return "symbol"
    is_symbol = _IDENTIFIER.fullmatch(name) and (
        "_" in name.strip("_") or name[:2] == "__" or _CAMEL.match(name)
    )
    return "symbol" if is_symbol else None


def _leads_somewhere(path: str) -> bool:
    if _ROOTED.match(path):
        return True
    folders = [*filter(None, _SEPARATORS.split(path))]
    return len(folders) >= _MIN_FOLDERS or not _FOLDERS.isdisjoint(folders[:1])


_MAX_KEYWORDS: Final = 64
"""Most keywords of a text: each is searched for in every file, and the first say most."""

_WORD: Final = re.compile(r"\w+")


def extract_keywords(text: str) -> tuple[str, ...]:
    """Return the first 64 distinct words of a text, in lower case, without stop words.

    An identifier such as `get_user` is one word. Single ASCII characters are left out, since every
    text holds them.
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
    """Return how often each word occurs, by its stem, without English stop words."""
    return Counter(stem(word) for word in _WORD.findall(text.lower()) if word not in STOP_WORDS)


def similarity(left: Mapping[str, int], right: Mapping[str, int]) -> float:
    """Return the cosine of two `stem_counts`, within [0, 1] and symmetric. 0 when either is empty.

    A cheap measure without embeddings (Salton's vector space model, without weights of rarity).
    """
    if len(left) > len(right):
        left, right = right, left
    shared = sum(times * right.get(stem, 0) for stem, times in left.items())
    if not shared:
        return 0.0
    left_square = sum(times * times for times in left.values())
    right_square = sum(times * times for times in right.values())
    return min(1.0, shared / math.sqrt(left_square * right_square))
