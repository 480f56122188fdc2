"""`IgnoreRules`: the rules of a `.gitignore` file, which match a path in linear time.

The rules are third-party text. As a plain regular expression, the rule `*a*a*a*a*a*a*b` would take
hours to fail on one long name. Here the text between two stars takes the first place where it fits,
and never tries another: no later place could make a match that the first one prevents. The same
holds for the folders between two `**`.

`pathspec` would take the place of this module. It is not used, since its regular expressions do
backtrack: version 1.1.1 takes 12 s for that rule and a name of 80 letters.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_MAX_RULE_CHARS: Final = 4096  # no path is longer
_TOKEN: Final = re.compile(
    r"(?P<slash>\\?/)|\\(?P<escaped>.)|(?P<stars>\*+)|(?P<any>\?)"
    r"|\[(?P<negation>[!^]?)(?P<members>\]?+(?:\\.|\[:\w*:\]|[^\]\\])*+)\]|(?P<literal>[^\[\\])",
    re.DOTALL,
)
_MEMBER: Final = re.compile(r"\[:(?P<name>\w*):\]|(?P<first>\\?.)(?:-(?P<last>\\?.))?", re.DOTALL)
_POSIX: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \t",
    "cntrl": "\0-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": "\t-\r ",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_STAR: Final = "*"
_ANY_DEPTH: Final = "**"


class IgnoreRules:
    """The rules of one `.gitignore` file, as git reads them; lines that are no rule match nothing.

    Args:
        text: The file.
    """

    def __init__(self, text: str) -> None:
        lines = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").split("\n")
        self._rules: list[_Rule] = []  # the last one first
        for line in dict.fromkeys(reversed(lines)):
            rule = _rule(line.removesuffix("\r"))
            if rule is not None:
                self._rules.append(rule)

    def verdict(self, path: str) -> bool | None:
        """Return whether a path is ignored, or None where no rule matches.

        The last rule that matches decides.

        Args:
            path: Relative to the folder of the file, with forward slashes; a folder ends with one.
        """
        name, is_folder = path.removesuffix("/"), path.endswith("/")
        for rule in self._rules:
            if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(name):
                return rule.ignores
        return None


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    ignores: bool
    folders_only: bool


def _rule(line: str) -> _Rule | None:
    """Return the rule of a line, or None for a comment, a blank line and a broken rule."""
    if line.startswith("#") or len(line) > _MAX_RULE_CHARS:
        return None
    glob = line.rstrip(" ")
    glob = line[: len(glob) + (len(glob) - len(glob.rstrip("\\"))) % 2]  # an escaped space stays
    ignores, glob = not glob.startswith("!"), glob.removeprefix("!")
    folders_only, glob = glob.endswith("/"), glob.removesuffix("/")
    is_rooted, glob = "/" in glob, glob.removeprefix("/")
    try:
        segments = list(_segments(glob))
    except ValueError:
        return None
    pattern = f"(?>.*/)?{_segment_pattern(segments[0])}"
    if is_rooted:
        pattern = _path_pattern(segments)
    return _Rule(re.compile(pattern, re.DOTALL), ignores, folders_only)


def _segments(glob: str) -> Iterator[list[str]]:
    """Yield the tokens of each component of a glob: stars, and expressions of one character.

    Raises:
        ValueError: The glob is empty or broken.
    """
    tokens: list[str] = []
    end = 0
    while match := _TOKEN.match(glob, end):
        end = match.end()
        if match["slash"]:
            yield tokens
            tokens = []
        elif stars := match["stars"]:
            tokens.append(_STAR if stars == _STAR else _ANY_DEPTH)
        elif (members := match["members"]) is not None:
            tokens.append(_class_pattern(members, negated=bool(match["negation"])))
        elif match["any"]:
            tokens.append("[^/]")
        else:
            tokens.append(re.escape(match["escaped"] or match["literal"]))
    if not glob or end != len(glob):
        raise ValueError("no rule")
    yield tokens


def _class_pattern(members: str, *, negated: bool) -> str:
    """Return the regular expression of a class such as `[a-z_]`, which never matches a slash.

    Raises:
        ValueError: It names a class that does not exist.
    """
    parts: list[str] = []
    for match in _MEMBER.finditer(members):
        if (name := match["name"]) is not None:
            if name not in _POSIX:
                raise ValueError("no such class of characters")
            parts.append(_POSIX[name])
            continue
        first = match["first"][-1]
        # A range that runs backwards is its first character.
        last = max(first, (match["last"] or first)[-1])
        parts.append(f"{re.escape(first)}-{re.escape(last)}")
    return f"(?!/)[{'^' * negated}{''.join(parts)}]"


def _segment_pattern(tokens: Iterable[str]) -> str:
    """Return the regular expression of one component of a path."""
    first, *rest = map("".join, _split(tokens, {_STAR, _ANY_DEPTH}))
    if not rest:
        return first
    middle = [f"(?>[^/]*?{part})" for part in rest[:-1]]
    return f"{first}{''.join(middle)}[^/]*{rest[-1]}"


def _path_pattern(segments: Iterable[list[str]]) -> str:
    """Return the regular expression of a path, from the folder of the file on."""
    patterns: list[str] = []
    for tokens in segments:
        is_any_depth = tokens == [_ANY_DEPTH]
        patterns.append(_ANY_DEPTH if is_any_depth else _segment_pattern(tokens))
    # A part of `**` alone has no components, another one may have an empty one.
    first, *rest = _split(patterns, {_ANY_DEPTH})
    if not rest:
        return "/".join(first)
    begin = [f"{pattern}/" for pattern in first]
    middle = [f"(?>(?:[^/]+/)*?{'/'.join(part)}/)" for part in rest[:-1] if part]
    end = f"(?:[^/]+/)*?{'/'.join(rest[-1])}" if rest[-1] else ".+"
    return "".join([*begin, *middle, end])


def _split(items: Iterable[str], separators: set[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for item in items:
        if item in separators:
            parts.append([])
        else:
            parts[-1].append(item)
    return parts
