"""Bounds of what SQLite does within one step, or before its first row, when nothing can stop it.

Its own `instr`, `replace`, `trim`, `LIKE` and `GLOB` compare each character of a text with each of
a pattern in one step, which takes hours for two long texts. `add_text_functions` puts others in
their place, which take milliseconds, or a second at most.

SQLite copies a SELECT wherever a query names it, and an expression wherever another one names its
column. So 22 steps of `WITH b AS (SELECT * FROM a UNION ALL SELECT * FROM a)` take 8 GB.
`compiled_size` tells how large a query becomes.
"""

import math
import re
import sqlite3
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache, partial
from typing import Any, Final

_MAX_PATTERN_CHARS: Final = 1_000
_MAX_TRIMMED: Final = 100  # different characters that one call of `trim` removes
# Between two looks at the clock. SQLite looks itself between calls for shorter texts.
_LONG_CHARS: Final = 10_000
# Python's own expressions cannot be stopped. They match a shorter text in a tenth of the time.
_SHORT_CHARS: Final = 1_000
_MATCH_S: Final = 1.0  # of one match with a longer text, which does not hold Python's lock
_WHOLE: Final = re.compile(r"^-?\d+(?=e|$)")  # digits without a point
_WILDCARDS: Final = {"%": "*", "_": "?"}
_SET: Final = re.compile(r"\[(\^?)(\]?[^\]]*)\]")


def add_text_functions(
    connection: sqlite3.Connection, must_stop: Callable[[], bool], *, max_chars: int
) -> None:
    """Put functions that stop together with a query in place of those of SQLite.

    Args:
        connection: The database.
        must_stop: Returns whether the query has to stop.
        max_chars: Maximum characters of a text that a function makes.
    """

    def call(function: Callable[..., Any], *values: object) -> Any:
        if None in values:
            return None
        texts = [_text_of(value) for value in values]
        if max(map(len, texts)) > _LONG_CHARS and must_stop():
            raise TimeoutError
        return function(*texts)

    for name, count, function in (
        ("instr", 2, lambda text, part: text.find(part) + 1),
        ("replace", 3, partial(_replaced, max_chars)),
        ("trim", 2, partial(_trimmed, str.strip)),
        ("ltrim", 2, partial(_trimmed, str.lstrip)),
        ("rtrim", 2, partial(_trimmed, str.rstrip)),
        ("like", 2, _is_like),
        ("like", 3, _is_like),
        ("glob", 2, _is_glob),
    ):
        connection.create_function(name, count, partial(call, function), deterministic=True)


def _replaced(max_chars: int, text: str, old: str, new: str) -> str:
    if not old:
        return text
    if len(text) + text.count(old) * (len(new) - len(old)) > max_chars:
        raise OverflowError  # SQLite's "string or blob too big"
    return text.replace(old, new)


def _trimmed(trim: Callable[[str, str], str], text: str, characters: str) -> str:
    distinct = "".join(set(characters))
    if len(distinct) > _MAX_TRIMMED:
        raise ValueError(f"over {_MAX_TRIMMED} different characters")
    return trim(text, distinct)


def _is_like(pattern: str, text: str, escape: str = "") -> bool:
    return _matches(_glob_of(pattern, escape), _in_lower_case(text))


def _is_glob(pattern: str, text: str) -> bool:
    if "[" in _SET.sub("", pattern):
        return False  # SQLite matches nothing with a set that has no end
    return _matches(_SET.sub(_set_of, pattern), text)


def _set_of(match: re.Match[str]) -> str:
    """Return a set of GLOB as one of `fnmatch`, which begins with "!" to negate."""
    members = match[2].lstrip("!")
    if members != match[2]:
        members += "!"
    if match[1]:
        return f"[!{members}]"
    return "!" if members == "!" else f"[{members}]"


def _matches(pattern: str, text: str) -> bool:
    if len(text) <= _SHORT_CHARS:
        return _short_pattern(pattern).fullmatch(text) is not None
    return _long_pattern(pattern).fullmatch(text, timeout=_MATCH_S, concurrent=True) is not None


@lru_cache(maxsize=64)
def _short_pattern(pattern: str) -> re.Pattern[str]:
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise OverflowError
    # Has atomic groups, which find the first place of each part, so none is looked for twice.
    return re.compile(translate(pattern))


@lru_cache(maxsize=64)
def _long_pattern(pattern: str) -> Any:
    import regex  # noqa: PLC0415 - takes 30 ms to import

    # Without its end, which has another spelling in each version of Python.
    return regex.compile(_short_pattern(pattern).pattern[:-2])


@lru_cache(maxsize=64)
def _glob_of(pattern: str, escape: str) -> str:
    """Return a pattern of LIKE as one of GLOB."""
    if len(escape) > 1:
        raise ValueError("ESCAPE is one character")
    glob = ""
    characters = iter(pattern)
    for character in characters:
        is_escape = character == escape
        literal = next(characters, "") if is_escape else character
        if literal in _WILDCARDS and not is_escape:
            glob += _WILDCARDS[literal]
        else:
            glob += f"[{literal}]" if literal in "*?[" else _in_lower_case(literal)
    return glob


def _in_lower_case(text: str) -> str:
    """Return a text with its ASCII letters in lower case, the only ones that LIKE compares so."""
    return text.lower() if text.isascii() else text.encode().lower().decode()


def _text_of(value: object) -> str:
    """Return a value as the text that SQLite makes of it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return _WHOLE.sub(r"\g<0>.0", f"{value:.15g}")
    return str(value)


# --- the size of a query

_MAX_DEPTH: Final = 100  # of brackets, as in SQLite
_MAX_SELECTS: Final = 200  # more than anybody writes, and fewer than Python recurses
# Each to its end or that of the text, so that none is looked for twice.
_QUOTED: Final = re.compile(
    r"(?:--[^\n]*|/\*.*?\*/|'([^']*)'?|\"([^\"]*)\"?|`([^`]*)`?|\[([^\]]*)\]?|/\*.*)", re.DOTALL
)
_STRUCTURE: Final = frozenset({"as", "distinct", "except", "from", "intersect", "select", "union"})
# A SELECT in brackets, with the name that WITH gives it, or other brackets.
_BRACKETS: Final = re.compile(
    r"(?:(?<!\w)(?P<name>\w++)\s*+(?:[\[(][^\]()]*[\])]\s*)?\bas\b\s*(?:not\s+)?(?:materialized\s*)?)?"
    r"\((?P<body>(?P<select>\s*(?:select|values|with)\b)?[^()]*)\)"
)
# The columns of a SELECT, and of each that UNION and the like add to it.
_COLUMNS: Final = re.compile(
    r"(?:^|\b(?:select|values)\b)"
    r"((?:(?!(?:(?<!\bdistinct )\bfrom|\bselect|\bvalues|\bunion|\bexcept|\bintersect)\b).)*)"
)
# A word that SQLite may take for the name of a column or a SELECT.
_NAME: Final = re.compile(
    r"(?<!\bas )\b(?!(?:and|as|between|case|collate|distinct|else|escape|from|in|is|not|null|or"
    r"|order|select|then|when|where)\b)[a-z_]\w*+(?!\s*[\[.])"
)


def plain_sql(sql: str) -> str:
    """Return a query in lower case, without comments, with quoted names and texts as words."""
    ascii_sql = re.sub(r"[^\x00-\x7f]|\$", "_", sql.lower())
    return " ".join(_QUOTED.sub(_word_of, ascii_sql).split())


def _word_of(match: re.Match[str]) -> str:
    if match.lastindex is None:
        return " "
    word = re.sub(r"\W", "_", match[match.lastindex]) or "_"
    return f" _{word} " if word in _STRUCTURE else f" {word} "


def compiled_size(plain: str) -> float:
    """Return an upper bound of the names in a SELECT, with the copies that SQLite makes of others.

    Args:
        plain: The query, as from `plain_sql`.
    """
    selects: list[str] = []
    named: dict[str, list[int]] = {}
    copies: dict[int, float] = {}

    def fold(match: re.Match[str]) -> str:
        if not match["select"]:
            return f" [{match['body'].replace(',', ' ').replace('[', ' ').replace(']', ' ')}] "
        selects.append(match["body"])
        if not match["name"]:
            # The names in it belong to the column around it too.
            return f" #{len(selects) - 1}{' _' * len(_NAME.findall(match['body']))} "
        named.setdefault(match["name"], []).append(len(selects) - 1)
        return " "

    def copies_in(index: int) -> float:
        """Return the copies of others in one column of a SELECT."""
        if index not in copies:
            copies[index] = 1.0  # for a recursive one, which names itself once
            inner = [int(number) for number in re.findall(r"#(\d+)", selects[index])]
            for name in _NAME.findall(selects[index]):
                inner += named.get(name, ())
            copies[index] = max(sum(map(copies_in, inner)), 1.0)
        columns = ",".join(_COLUMNS.findall(selects[index])).split(",")
        most_names = max(len(_NAME.findall(column)) for column in columns)
        return copies[index] * max(most_names, 1)

    for _ in range(_MAX_DEPTH):
        plain, count = _BRACKETS.subn(fold, plain)
        if not count or len(selects) > _MAX_SELECTS:
            break
    if count:
        return math.inf
    selects.append(plain)
    copies_in(len(selects) - 1)
    return max(len(_NAME.findall(selects[index])) * copies[index] for index in copies)
