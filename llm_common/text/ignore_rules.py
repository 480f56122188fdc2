"""Match paths with the rules of a `.gitignore` file in linear time: `IgnoreRules`.

The rules are untrusted text. As a plain regular expression, the rule `*a*a*a*a*a*a*b` would take
hours to fail on one long name. Here, the text between two stars matches at its first occurrence and
is never tried again (an atomic group). This loses no match: a later occurrence leaves less of the
name for the rest of the rule. The same holds for the folders between two `**`.

The package `pathspec` could replace this module, but its regular expressions backtrack: version
1.1.1 takes 12 s for that rule and a name of 80 letters.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_MAX_RULE_CHARS: Final = 4096  # Linux allows no longer path
_TOKEN: Final = re.compile(
    r"(?P<slash>\\?/)|\\(?P<escaped>.)|(?P<stars>\*+)|(?P<any>\?)"
    r"|\[(?P<negation>[!^]?)(?P<members>\]?+(?:\\.|\[:\w*:\]|[^\]\\])*+)\]|(?P<literal>[^\[\\])",
    re.DOTALL,
)
# One member of a class such as `[[:digit:]a-f_]`: a named class, a character or a range.
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
# Tokens that are not regular expressions: any text in one component, and any number of components.
_STAR: Final = "*"
_ANY_DEPTH: Final = "**"


class IgnoreRules:
    """The rules of one `.gitignore` file, as git reads them. Invalid lines match nothing.

    Args:
        text: The content of the file.
    """

    def __init__(self, text: str) -> None:
        lines = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").split("\n")
        # The last matching rule decides, so the last one is tried first.
        self._rules: list[_Rule] = []
        for line in dict.fromkeys(reversed(lines)):
            rule = _rule(line.removesuffix("\r"))
            if rule is not None:
                self._rules.append(rule)

    def verdict(self, path: str) -> bool | None:
        """Return whether a path is ignored, or None if no rule matches.

        Args:
            path: Relative to the folder of the file, with forward slashes. The path of a folder
                ends with a slash.
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
    """Return the rule of a line, or None for a comment, a blank line or an invalid rule."""
    if line.startswith("#") or len(line) > _MAX_RULE_CHARS:
        return None
    glob = line.rstrip(" ")
    # An odd number of backslashes at the end escapes the first of the trailing spaces.
    glob = line[: len(glob) + (len(glob) - len(glob.rstrip("\\"))) % 2]
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
    """Yield the tokens of each component of a glob: stars, and patterns of one character.

    Raises:
        ValueError: If the glob is empty or invalid.
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
        raise ValueError("the glob is empty or invalid")
    yield tokens


def _class_pattern(members: str, *, negated: bool) -> str:
    """Return the regular expression of a class such as `[a-z_]`, which never matches a slash.

    Raises:
        ValueError: If it names a class that does not exist.
    """
    parts: list[str] = []
    for match in _MEMBER.finditer(members):
        if (name := match["name"]) is not None:
            if name not in _POSIX:
                raise ValueError("unknown character class")
            parts.append(_POSIX[name])
            continue
        first = match["first"][-1]
        # In git, a range that runs backwards matches its first character only.
        last = max(first, (match["last"] or first)[-1])
        parts.append(f"{re.escape(first)}-{re.escape(last)}")
    return f"(?!/)[{'^' * negated}{''.join(parts)}]"


def _segment_pattern(tokens: Iterable[str]) -> str:
    """Return the regular expression of one component of a path."""
    first, *parts = map("".join, _split(tokens, {_STAR, _ANY_DEPTH}))
    if not parts:
        return first
    *middle, last = parts
    inner = [f"(?>[^/]*?{part})" for part in middle]
    return f"{first}{''.join(inner)}[^/]*{last}"


def _path_pattern(segments: Iterable[list[str]]) -> str:
    """Return the regular expression of a path relative to the folder of the file."""
    patterns: list[str] = []
    for tokens in segments:
        if tokens == [_ANY_DEPTH]:
            patterns.append(_ANY_DEPTH)
        else:
            patterns.append(_segment_pattern(tokens))
    # A part between two `**` has no components. A part of `a//b` has an empty one, which is kept.
    first, *parts = _split(patterns, {_ANY_DEPTH})
    if not parts:
        return "/".join(first)
    begin = [f"{pattern}/" for pattern in first]
    *middle, last = parts
    inner = [f"(?>(?:[^/]+/)*?{'/'.join(part)}/)" for part in middle if part]
    end = ".+"  # `folder/**` matches everything inside the folder
    if last:
        end = f"(?:[^/]+/)*?{'/'.join(last)}"
    return "".join([*begin, *inner, end])


def _split(items: Iterable[str], separators: set[str]) -> list[list[str]]:
    """Return the items between separators, including empty parts."""
    parts: list[list[str]] = [[]]
    for item in items:
        if item in separators:
            parts.append([])
        else:
            parts[-1].append(item)
    return parts
