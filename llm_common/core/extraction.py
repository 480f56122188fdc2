"""Extracts the one JSON object, or the tool calls, from a reply; never repairs.

An object, in time linear in the reply, by three rules:

1. Thinking is not the answer. Text between `<think>` and `</think>`, or other models' thinking
   marks, is skipped. A closing mark alone, from models whose prompt holds the opening one,
   discards everything before it.
2. Brackets are paired over the rest of the reply, outside strings, and only an outermost pair is a
   candidate: a cut reply never yields one of its inner parts. Fences, box tokens and prose hold no
   brackets and need no rule.
3. A candidate that is not JSON (`use {x}`) is prose, and so is every list (`see [1]`). Exactly one
   object must remain, however often repeated.

Tool calls are read only from notations that hold JSON and mark the end of the whole: a list, or a
section with an end mark. Others are refused (`<tool_call>{...}</tool_call>` in a row, arguments as
XML or Python): cut between two calls they would look whole, or their values would have to be
guessed.
"""

# ruff: noqa: RUF001 - full-width bars are part of DeepSeek's marks

import json
import math
import re
from json import JSONDecodeError
from typing import Any, Final

from llm_common.errors import MalformedReplyError

MAX_REPLY_CHARS: Final = 1_000_000
"""A longer reply is refused unread."""

_MAX_DEPTH: Final = 100
_MAX_CANDIDATES: Final = 1_000
_MAX_NUMBER_CHARS: Final = 1_000

_FAULTS: Final = {
    "ambiguous": "holds several different objects; ask for one alone",
    "bad_number": f"holds a number that is not finite or has over {_MAX_NUMBER_CHARS:,} "
    f"characters; ask again",
    "duplicate_keys": "repeats a key within an object, so its meaning is open; ask again",
    "empty": "is empty; ask again, or try another model",
    "no_json": "holds no JSON object; ask again, or try another model",
    "not_strict": "holds something like JSON that is not strict JSON; ask again, or try another "
    "model",
    "too_deep": f"is nested deeper than {_MAX_DEPTH} levels; ask for a flatter answer",
    "too_large": f"has over {MAX_REPLY_CHARS:,} characters; ask for less",
    "truncated": "ends in the middle of a JSON value; allow more tokens, or ask for less",
    "unclosed_thinking": "ends before its thinking does; allow more tokens, or ask for less "
    "thinking",
}

# Thinking tags, in any case, and the marks of Magistral, Kimi, Command A and Gemma 4. In OpenAI's
# harmony format every channel but the final one is thinking, and ends with its message.
_TAGS: Final = "(?i:seed:think|think(?:ing)?|thought|reasoning)"
_MARKS: Final = {
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis": "<|end|>",
    "<|channel|>commentary": "<|end|>",
}
_OPENING_MARK: Final = "|".join(map(re.escape, _MARKS))
_CLOSING_MARK: Final = "|".join(
    re.escape(mark) for mark in dict.fromkeys(_MARKS.values()) if mark != "<|end|>"
)
_ATTRIBUTES: Final = r"(?:\s[^<>]{0,200}+)?"
_OPENS: Final = rf"<(?P<tag>{_TAGS}){_ATTRIBUTES}>|(?P<mark>{_OPENING_MARK})"

# Outside a value: the begin or end of thinking, a bracket, an object that was encoded once more as
# a JSON string.
_LANDMARK: Final = re.compile(
    rf"{_OPENS}|(?P<closing></{_TAGS}{_ATTRIBUTES}>|{_CLOSING_MARK})|[{{}}\[\]]"
    r'|(?P<encoded>"(?:\\[nrt]|\ )*+\{(?:\\[nrt]|\ )*+\\")'
)
_OPENING: Final = re.compile(rf"\s*(?:{_OPENS})")
_OPENING_STARTS: Final = (
    "<seed:think",
    "<thinking",
    "<thought",
    "<reasoning",
    *(mark.lower() for mark in _MARKS),
)
_UNENDED_TAG: Final = re.compile(rf"<{_TAGS}{_ATTRIBUTES}")
_MAX_CLOSING_CHARS: Final = 64
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# Strings and plain text in one match, then a bracket; a quote instead opens a string that never
# ends.
_SPAN: Final = re.compile(rf'(?:[^"{{}}\[\]]++|{_STRING.pattern})*+([{{}}\[\]"]?)', re.DOTALL)
_CLOSER: Final = {"{": "}", "[": "]"}


def extract_json(text: str) -> dict[str, object]:
    """The JSON object that a reply holds.

    Skips code fences, prose, thinking blocks and box tokens, reads a repeated object once, whatever
    its key order, and undoes one level of string encoding. Takes only strict JSON (RFC 8259, unique
    keys, finite numbers): never returns a proper prefix or a part of an object.

    Raises:
        MalformedReplyError: No object, or no certain one. `.reason` is one of `ambiguous`,
            `bad_number`, `duplicate_keys`, `empty`, `no_json`, `not_strict`, `too_deep` (over 100
            levels), `too_large` (over 1,000,000 characters), `truncated`, `unclosed_thinking`.
    """
    try:
        return _only_object(text)
    except MalformedReplyError as exc:
        exc.reply = text
        raise


def _only_object(text: str) -> dict[str, object]:
    if len(text) > MAX_REPLY_CHARS:
        raise _fault("too_large")
    if not text.strip("\ufeff \t\r\n"):
        raise _fault("empty")
    answers: dict[str, dict[str, object]] = {}
    candidates = _candidates(text)
    for candidate in candidates:
        try:
            answer = _DECODER.decode(candidate)
            if isinstance(answer, str):  # an object that was encoded once more
                _end_of_value(answer, 0)
                answer = _DECODER.decode(answer)
        except JSONDecodeError:
            continue
        # Compared as text, since 1, 1.0 and True are equal in Python.
        answers[json.dumps(answer, sort_keys=True)] = answer
    if not answers:
        raise _fault("not_strict" if candidates else "no_json")
    if len(answers) > 1:
        raise _fault("ambiguous")
    return next(iter(answers.values()))


def without_thinking(text: str) -> str:
    """The text of a reply without the thinking at its beginning, if any.

    Raises:
        MalformedReplyError: Nothing is left (`empty`), or the thinking has no end
            (`unclosed_thinking`).
    """
    opening = _OPENING.match(text)
    position = _end_of_thinking(text, opening) if opening else 0
    answer = text[position:].strip()
    if not answer:
        raise _fault("empty")
    return answer


class AnswerFilter:
    """Takes the thinking at the beginning out of a text that arrives in pieces.

    What `feed` and then `end` return, joined, is what `without_thinking` makes of the whole. The
    beginning is held back while it may open thinking, and white space while it may be the end.
    """

    def __init__(self) -> None:
        # while it may be thinking: its beginning, then the end that may begin a closing mark
        self._held = ""
        self._opening: re.Match[str] | None = None
        self._may_think = True
        self._has_begun = False
        # a list, because a text that grows with each piece takes quadratic time
        self._spaces: list[str] = []

    def feed(self, piece: str) -> str:
        """What can be shown now; "" if nothing can."""
        if not self._may_think:
            return self._shown(piece)
        self._held += piece
        if self._opening is None:
            self._held = self._held.lstrip()
            self._opening = _OPENING.match(self._held)
            if self._opening is None:
                self._may_think = _may_open(self._held)
            else:
                self._held = self._held[self._opening.end() :]
        if self._opening:
            closing = _closing(self._opening).search(self._held)
            if closing is None:
                self._held = self._held[-_MAX_CLOSING_CHARS:]
            else:
                self._held = self._held[closing.end() :]
                self._opening = None
                self._may_think = False
        return "" if self._may_think else self._shown(self._held)

    def end(self) -> str:
        """What was held back as a possible mark of thinking, and was none."""
        return self._shown(self._held) if self._may_think and self._opening is None else ""

    def _shown(self, text: str) -> str:
        """The text up to the white space at its end, after that which was held back."""
        text = text if self._has_begun else text.lstrip()
        shown = text.rstrip()
        if not shown:
            self._spaces.append(text)
            return ""
        self._has_begun = True
        whole = "".join((*self._spaces, shown))
        self._spaces = [text[len(shown) :]]
        return whole


def _may_open(text: str) -> bool:
    """Whether more text could make this the opening of thinking."""
    start = text.lower()
    return bool(_UNENDED_TAG.fullmatch(text)) or any(
        mark.startswith(start) for mark in _OPENING_STARTS
    )


def parse_whole(text: str) -> object:
    """The JSON object or list that is the whole text, as strict as `extract_json`.

    Raises:
        MalformedReplyError: Anything else; `.reason` as for `extract_json`.
    """
    if not text.startswith(("{", "[")):
        raise _fault("no_json")
    if _end_of_value(text, 0) != len(text):
        raise _fault("not_strict")
    try:
        return _DECODER.decode(text)
    except JSONDecodeError as exc:
        raise _fault("not_strict") from exc


def _candidates(text: str) -> list[str]:
    """Return the outermost objects and the strings that hold one, outside thinking and lists."""
    found: list[str] = []
    position = 0
    while landmark := _LANDMARK.search(text, position):
        start = landmark.start()
        if landmark["closing"]:
            found.clear()
            position = landmark.end()
        elif landmark["tag"] or landmark["mark"]:
            position = _end_of_thinking(text, landmark)
        else:
            if not landmark["encoded"]:
                position = _end_of_value(text, start)
            elif string := _STRING.match(text, start):
                position = string.end()
            else:
                raise _fault("truncated")
            if text[start] != "[":
                found.append(text[start:position])
        if len(found) > _MAX_CANDIDATES:
            raise _fault("ambiguous")
    return found


def _end_of_thinking(text: str, opening: re.Match[str]) -> int:
    closing = _closing(opening).search(text, opening.end())
    if closing is None:
        raise _fault("unclosed_thinking")
    return closing.end()


def _closing(opening: re.Match[str]) -> re.Pattern[str]:
    ends = rf"</{opening['tag']}\s*>" if opening["tag"] else re.escape(_MARKS[opening["mark"]])
    return re.compile(ends, re.IGNORECASE)


def _end_of_value(text: str, start: int) -> int:
    """Where the bracket at `start` is closed; bounds the depth, since JSON parsers recurse."""
    open_brackets: list[str] = []
    for span in _SPAN.finditer(text, start):
        bracket = span[1]
        if bracket in _CLOSER:
            open_brackets.append(bracket)
            if len(open_brackets) > _MAX_DEPTH:
                raise _fault("too_deep")
        elif bracket in {"", '"'}:
            break
        elif not open_brackets or bracket != _CLOSER[open_brackets.pop()]:
            raise _fault("not_strict")
        elif not open_brackets:
            return span.end()
    raise _fault("truncated")


def _unique(members: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(members)
    if len(result) != len(members):
        raise _fault("duplicate_keys")
    return result


def _integer(literal: str) -> int:
    if len(literal) > _MAX_NUMBER_CHARS:
        raise _fault("bad_number")
    return int(literal)


def _real(literal: str) -> float:
    """A finite float; the decoder also passes NaN, Infinity and numbers such as 1e999."""
    number = float(literal)
    if len(literal) > _MAX_NUMBER_CHARS or not math.isfinite(number):
        raise _fault("bad_number")
    return number


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_real, parse_constant=_real
)


def _fault(reason: str) -> MalformedReplyError:
    return MalformedReplyError(f"The reply {_FAULTS[reason]}", reason=reason)


# Mistral up to v7; Granite 3 and Phi-4-mini; Command R7B and Command A. What follows the list is
# special tokens alone.
_LIST: Final = re.compile(
    r"(?:\[TOOL_CALLS\]|<\|tool_call\|>|<\|START_ACTION\|>)\s*(?P<list>\[.*\])\s*(?:<[^<>\s]{1,40}>\s*)*",
    re.DOTALL,
)
# DeepSeek V3 (type, separator, name, fenced arguments) and V3.1 (name, separator, arguments).
_DEEPSEEK: Final = re.compile(
    r"<｜tool▁calls▁begin｜>(?P<calls>.*)<｜tool▁calls▁end｜>\s*+(?:<｜end▁of▁sentence｜>\s*)?",
    re.DOTALL,
)
_DEEPSEEK_CALL: Final = re.compile(
    r"\s*<｜tool▁call▁begin｜>\s*(?:function<｜tool▁sep｜>(?P<v3>[^\n<>]+)\n```json\n(?P<fenced>.*?)\n```"
    r"|(?P<v31>[^\n<>]+)<｜tool▁sep｜>(?P<plain>.*?))<｜tool▁call▁end｜>\s*",
    re.DOTALL,
)
_KIMI: Final = re.compile(
    r"<\|tool_calls_section_begin\|>(?P<calls>.*)<\|tool_calls_section_end\|>\s*+(?:<\|im_end\|>\s*)?",
    re.DOTALL,
)
_KIMI_CALL: Final = re.compile(
    r"\s*<\|tool_call_begin\|>\s*(?:functions\.)?(?P<name>[^\s<>:]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>"
    r"(?P<arguments>.*?)<\|tool_call_end\|>\s*",
    re.DOTALL,
)
_BEGINS: Final = re.compile(
    r"\[TOOL_CALLS\]|<\|tool_call\|>|<\|START_ACTION\|>|<｜tool▁calls▁begin｜>|<\|tool_calls_section_begin\|>"
)


def read_text_calls(text: str) -> list[dict[str, Any]] | None:
    """The tool calls that a reply holds as text, in the API's form; None without.

    Skips thinking at the beginning. Allows prose without brackets before the calls, and only
    special tokens after them. All or nothing: a mark inside a call's text could have cut it in two.

    Raises:
        MalformedReplyError: The notation begins, but no whole list of calls follows.
    """
    if len(text) > MAX_REPLY_CHARS or not _BEGINS.search(text):
        return None
    answer = without_thinking(text)
    begin = _BEGINS.search(answer)
    if begin is None or any(bracket in answer[: begin.start()] for bracket in "{["):
        return None
    calls = answer[begin.start() :]
    if found := _LIST.fullmatch(calls):
        return _listed(parse_whole(found["list"]))
    if found := _DEEPSEEK.fullmatch(calls):
        each = _each(_DEEPSEEK_CALL, found["calls"])
        return [_call(call["v3"] or call["v31"], call["fenced"] or call["plain"]) for call in each]
    if found := _KIMI.fullmatch(calls):
        return [
            _call(call["name"], call["arguments"]) for call in _each(_KIMI_CALL, found["calls"])
        ]
    raise _cut_off_call()


def _listed(entries: object) -> list[dict[str, Any]]:
    calls = []
    for entry in entries if isinstance(entries, list) else [entries]:
        facts = entry if isinstance(entry, dict) else {}
        name = facts.get("name", facts.get("tool_name"))
        calls.append({"name": name, "arguments": facts.get("arguments", facts.get("parameters"))})
    return calls


def _each(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """The adjacent calls of a section."""
    found: list[re.Match[str]] = []
    position = 0
    while position < len(text):
        call = pattern.match(text, position)
        if call is None:
            raise _cut_off_call()
        found.append(call)
        position = call.end()
    return found


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"name": name.strip(), "arguments": parse_whole(arguments.strip())}


def _cut_off_call() -> MalformedReplyError:
    return MalformedReplyError(
        "The reply holds tool calls in a notation that is not whole; ask again, or try another "
        "model",
        reason="truncated",
    )
