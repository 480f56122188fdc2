"""Views: the part of a stored result that a selection names, as text. Also the program that looks at it apart.

A pattern or a filter that a model wrote may run for ever, and Python's engine lets no other thread run meanwhile. So
this file is started as a process of its own that can be stopped; it imports nothing of the package, which makes that
quick.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Literal, NamedTuple

__all__ = ["Form", "View", "value_at", "view_of"]

Form = Literal["text", "json"]

_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MAX_MATCHES = 10_000
_MAX_MATCH_CHARS = 200
_MATCH_CONTEXT_CHARS = 60
_MEMORY_BYTES = 1_000_000_000
_MEMORY_PER_BYTE = 20  # of a result, as Python objects and once more as text
_CPU_S = 3  # ends an orphan whose parent was killed


class View(NamedTuple):
    """A part as text: a stored text as it is, or compact JSON of any other value."""

    text: str
    form: Form


def view_of(payload: bytes, part: Mapping[str, Any]) -> View:
    """The part of a stored result that is named by `ResultPart`'s fields, in the order in which that describes them.

    The whole of a result that is no text is its stored bytes, unchanged. A text that does not encode is given as JSON.

    Raises:
        ValueError: The part is not there, or its pattern or filter is wrong; the text repeats nothing of either.
    """
    if part.get("path") is None and part.get("filter") is None and not part.get("keys"):
        view = _whole(payload)
    else:
        value = _decoded(payload)
        if part.get("path") is not None:
            value = value_at(value, part["path"])
        if part.get("filter") is not None:
            value = _filtered(_opened(value), part["filter"])
        if part.get("keys"):
            value = _outline(_opened(value))
        view = _as_text(value)
    return _within(view, part)


def value_at(value: Any, path: str) -> Any:
    """The value at a JSON pointer (RFC 6901); on the way, a text that holds JSON counts as what it says.

    Raises:
        ValueError: Not a JSON pointer, or it leads nowhere.
    """
    if path and not path.startswith("/"):
        raise ValueError('the path must be "" or start with /, such as /items/3/name')
    for number, step in enumerate(path.split("/")[1:], start=1):
        if re.search(r"~(?![01])", step):
            raise ValueError("in a path ~ stands for itself only as ~0, and for / as ~1")
        key = step.replace("~1", "/").replace("~0", "~")
        value = _opened(value)
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            raise ValueError(
                f"the path leads nowhere at its part {number}: it meets {_shape(value)}; look at it with keys"
            )
    return value


def _whole(payload: bytes) -> View:
    value = _decoded(payload) if payload.startswith(b'"') else None
    if isinstance(value, str) and _is_utf8(value):
        return View(value, "text")
    return View(payload.decode(), "json")


def _decoded(payload: bytes) -> Any:
    return _DECODER.decode(payload.decode())


def _opened(value: Any) -> Any:
    """What a text says that holds a JSON object or list, as many tools answer; else the value itself."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            return _DECODER.decode(value)
    return value


def _filtered(value: Any, expression: str) -> Any:
    import jmespath  # type: ignore[import-untyped]  # noqa: PLC0415 - only a filter needs it, in the process apart

    try:
        return jmespath.search(expression, value)
    except jmespath.exceptions.JMESPathError as exc:
        raise ValueError(f"the filter is no JMESPath expression that fits the data ({type(exc).__name__})") from exc


def _outline(value: Any) -> Any:
    """Counts, and the shape of each member or of the first item."""
    if isinstance(value, dict):
        return {"object": len(value), "members": {key: _shape(item) for key, item in value.items()}}
    if isinstance(value, list):
        first = value[0] if value else None
        return {"list": len(value), "first": _outline(first) if isinstance(first, dict) else _shape(first)}
    if isinstance(value, str):
        return {"text": len(value), "lines": value.count("\n") + 1}
    return _shape(value)


def _shape(value: Any) -> str:
    if isinstance(value, dict):
        return f"object of {len(value):,}"
    if isinstance(value, list):
        return f"list of {len(value):,}"
    if isinstance(value, str):
        return f"text of {len(value):,} characters"
    return "null" if value is None else "boolean" if isinstance(value, bool) else "number"


def _as_text(value: Any) -> View:
    if isinstance(value, str) and _is_utf8(value):
        return View(value, "text")
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return View(text if _is_utf8(text) else json.dumps(value, separators=(",", ":")), "json")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _within(view: View, part: Mapping[str, Any]) -> View:
    """The lines of the text, the characters of these, the matches in these."""
    text, start, first = view.text, 0, 1
    if part.get("lines"):
        first, last = part["lines"]
        start, end = _line_range(text, first, last)
        text = text[start:end]
    if part.get("chars"):
        if part["chars"][0] >= len(text):
            raise ValueError(f"there are only {len(text):,} characters, counted from 0")
        skipped = text[: part["chars"][0]]
        start, first = start + len(skipped), first + skipped.count("\n")
        text = text[slice(*part["chars"])]
    if part.get("regex") is not None:
        return View(_matches(text, part["regex"], start=start, first_line=first), "text")
    return View(text, view.form)


def _line_range(text: str, first: int, last: int) -> tuple[int, int]:
    """Where the lines start and end, the end of the last one included."""
    ends = [found.end() for found in islice(re.finditer(r"\n", text), last)]
    starts = [0, *ends]
    if first > len(starts):
        raise ValueError(f"there are only {len(starts):,} lines, counted from 1")
    return starts[first - 1], ends[last - 1] if last <= len(ends) else len(text)


def _matches(text: str, pattern: str, *, start: int, first_line: int) -> str:
    try:
        compiled = re.compile(pattern, re.MULTILINE)
    except (re.error, OverflowError) as exc:
        raise ValueError("the regex is not valid in Python's syntax") from exc
    found = list(islice((match for match in compiled.finditer(text) if match[0]), _MAX_MATCHES + 1))
    count = f"over {_MAX_MATCHES:,}" if len(found) > _MAX_MATCHES else f"{len(found):,}"
    lines = _match_lines(text, found[:_MAX_MATCHES], start=start, first_line=first_line)
    return "\n".join([f"matches: {count}", *lines])


def _match_lines(text: str, found: list[re.Match[str]], *, start: int, first_line: int) -> Iterator[str]:
    line, at = first_line, 0
    for match in found:
        line += text.count("\n", at, match.start())
        at = match.start()
        end = min(match.end(), at + _MAX_MATCH_CHARS) + _MATCH_CONTEXT_CHARS
        around = _CONTROL.sub(" ", text[max(at - _MATCH_CONTEXT_CHARS, 0) : end])
        yield f"chars {start + at}-{start + match.end()} line {line}: {around}"


def _main() -> None:
    """Answers one request: a line of JSON and the payload on standard input, JSON on standard output."""
    request = json.loads(sys.stdin.buffer.readline())
    payload = sys.stdin.buffer.read()
    _bound_resources(len(payload))
    sys.path.append(request["packages"])
    try:
        view = view_of(payload, request["part"])
        start = request["start"]
        answer = {"text": view.text[start : start + request["max_chars"]], "total": len(view.text), "form": view.form}
    except (ValueError, TypeError) as exc:
        answer = {"problem": str(exc) if type(exc) is ValueError else "what the select gives is no JSON data"}
    sys.stdout.write(json.dumps(answer))


def _bound_resources(payload_bytes: int) -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on every system

        memory = _MEMORY_BYTES + _MEMORY_PER_BYTE * payload_bytes
        for kind, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, _CPU_S), (resource.RLIMIT_AS, memory)):
            resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))


if __name__ == "__main__":
    _main()
