"""The values that a text names: quoted strings, URLs, paths, emails, dates, numbers and proper names."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from llm_common.ranking.stop_words import STOP_WORDS

__all__ = ["TextValues", "informative_words", "read_values"]

_MAX_CHARS = 10_000
_QUOTED = re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|\u201c([^\u201c\u201d\n]+)\u201d|(?<!\w)'((?:[^'\n]|\b'\b)+)'(?!\w)")
_QUOTES = re.compile("[\"`\u201c\u201d]|(?<!\\w)'|'(?!\\w)")
_URL = re.compile(r"https?://[^\s<>()\[\]{}]+")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")
_DATE = re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?Z?)?(?![\w-])")
_NUMBER = re.compile(r"(?<![\w.,-])-?\d{1,15}(?:,\d{3})*(?:\.\d{1,15})?(?![\w-]|[.,]\d)")
_EXTENSION = re.compile(r"(?:\w\w|/\w)\.[A-Za-z][A-Za-z0-9]{0,7}$")
_WORD = re.compile(r"[^\W_](?:[\w.&'/-]*[^\W_])?")
_AROUND = "()[]{}<>,;:!?."
_ENDS = (".", "!", "?")
_PAUSES = (*_ENDS, ",", ";", ":")


@dataclass(frozen=True, slots=True)
class TextValues:
    """A text and the values that it names, each kind in the order of the text, without repeats.

    What belongs together counts once: digits of a date or a path are no numbers, capitals of a URL no names. What
    stands in quotes is a quoted string and may be a URL, an email, a date or a path as well.
    """

    text: str
    quoted: tuple[str, ...]
    urls: tuple[str, ...]
    emails: tuple[str, ...]
    dates: tuple[str, ...]
    paths: tuple[str, ...]
    numbers: tuple[int | float, ...]
    proper_names: tuple[str, ...]


def read_values(text: str) -> TextValues:
    """The values that the first 10,000 characters of the text name; takes time in proportion to them."""
    text = text[:_MAX_CHARS]
    quoted = ("".join(filter(None, match.groups())) for match in _QUOTED.finditer(text))
    unquoted, bare = _QUOTES.sub(" ", text), _QUOTED.sub(" . ", text)
    found: list[tuple[str, ...]] = []
    for pattern in (_URL, _EMAIL, _DATE):
        found.append(_distinct(match.group().rstrip(_AROUND) for match in pattern.finditer(unquoted)))
        unquoted, bare = pattern.sub(" ", unquoted), pattern.sub(" ", bare)
    paths = _distinct(filter(_is_path, _tokens(unquoted)))
    words = " ".join(token for token in bare.split() if not _is_path(_trimmed(token)))
    numbers = dict.fromkeys(_number(match.group()) for match in _NUMBER.finditer(words))
    return TextValues(
        text=text,
        quoted=_distinct(quoted),
        urls=found[0],
        emails=found[1],
        dates=found[2],
        paths=paths,
        numbers=tuple(numbers),
        proper_names=_distinct(_proper_names(words)),
    )


def informative_words(text: str, *, without: Collection[str]) -> str:
    """The words of the text that say what it is about: neither English stop words nor one of `without` (lower case)."""
    words = _WORD.findall(text[:_MAX_CHARS])
    return " ".join(word for word in words if word.lower() not in STOP_WORDS and word.lower() not in without)


def _proper_names(text: str) -> Iterator[str]:
    """Runs of capitalised words, the first word of a sentence only where it is all capitals."""
    run: list[str] = []
    starts = True
    for token in text.split():
        trimmed = _trimmed(token)
        word = trimmed.removesuffix("'s")
        if len(word) > 1 and word[0].isupper() and (not starts or word.isupper()):
            run.append(word)
        elif run:
            yield " ".join(run)
            run = []
        if run and (token.endswith(_PAUSES) or word != trimmed):
            yield " ".join(run)
            run = []
        starts = token.endswith(_ENDS)
    if run:
        yield " ".join(run)


def _is_path(token: str) -> bool:
    if token.startswith(("/", "./", "../", "~/")) or (token.endswith("/") and token[0].isalnum()):
        return len(token) > 1
    return _EXTENSION.search(token) is not None


def _tokens(text: str) -> Iterator[str]:
    return filter(None, map(_trimmed, text.split()))


def _trimmed(token: str) -> str:
    return token.lstrip("([{<,;:!?").rstrip(_AROUND)


def _number(text: str) -> int | float:
    plain = text.replace(",", "")
    return float(plain) if "." in plain else int(plain)


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in map(str.strip, values) if value))
