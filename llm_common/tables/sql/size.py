"""`compiled_size`: how large SQLite makes a query before its first row, when nothing can stop it.

SQLite copies a SELECT wherever a query names it, and an expression wherever another one names its
column. So 22 steps of `WITH b AS (SELECT * FROM a UNION ALL SELECT * FROM a)` take 8 GB.
"""

import math
import re
from typing import Final

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
        return copies[index] * _most_names(selects[index])

    for _ in range(_MAX_DEPTH):
        plain, count = _BRACKETS.subn(fold, plain)
        if not count or len(selects) > _MAX_SELECTS:
            break
    if count:
        return math.inf
    selects.append(plain)
    copies_in(len(selects) - 1)
    return max(len(_NAME.findall(selects[index])) * copies[index] for index in copies)


def _most_names(select: str) -> int:
    """Return the most names in one column of a SELECT, or 1."""
    columns = ",".join(_COLUMNS.findall(select)).split(",")
    return max(1, *(len(_NAME.findall(column)) for column in columns))
