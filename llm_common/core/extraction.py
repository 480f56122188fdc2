"""Extraction of the only JSON object, or of the tool calls, from a reply.

Replies are never repaired. Three rules find the object, in time linear in the reply:

1. Thinking is not the answer. Text between `<think>` and `</think>`, or between other models'
   thinking marks, is skipped. A lone closing mark discards everything before it: some models'
   prompts end with the opening mark.
2. Brackets outside strings are paired over the rest of the reply, and only an outermost pair is a
   candidate. A cut reply therefore never yields one of its inner parts. Fences, box tokens and
   prose contain no brackets and need no rule.
3. A candidate that is not JSON (`use {x}`) is prose, and so is every list (`see [1]`). Exactly one
   object must remain, which may be repeated.

Tool calls are read from notations that mark the end of the whole: a list, or a section with an end
mark. Notations that mark only the end of each call, such as `<tool_call>{...}</tool_call>`, look
whole if they were cut between two calls. They are read if the endpoint said that the reply ended,
and if every call in it is whole.
"""

# ruff: noqa: RUF001 - full-width bars are part of DeepSeek's marks

import json
import math
import re
from collections.abc import Mapping
from json import JSONDecodeError
from typing import Any, Final

from llm_common.errors import MalformedReplyError

MAX_REPLY_CHARS: Final = 1_000_000
"""Maximum length of a reply that is read."""

# Bounds on a hostile reply: the JSON decoder recurses, and int() of n digits takes n^2 steps.
_MAX_DEPTH: Final = 100
_MAX_CANDIDATES: Final = 1_000
_MAX_NUMBER_CHARS: Final = 1_000

_FAULTS: Final = {
    "ambiguous": "contains several different objects; ask for one alone",
    "bad_number": f"contains a number that is not finite or has over {_MAX_NUMBER_CHARS:,} "
    f"characters; ask again",
    "duplicate_keys": "repeats a key within an object, so its meaning is open; ask again",
    "empty": "is empty; ask again, or try another model",
    "no_json": "contains no JSON object; ask again, or try another model",
    "not_strict": "contains something like JSON that is not strict JSON; ask again, or try another "
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
# A lone `<|end|>` means nothing: it also ends messages that are not thinking.
_CLOSING_MARK: Final = "|".join(
    re.escape(mark) for mark in dict.fromkeys(_MARKS.values()) if mark != "<|end|>"
)
# Bounded and possessive, as are the patterns below, so that a hostile reply takes linear time.
_ATTRIBUTES: Final = r"(?:\s[^<>]{0,200}+)?"
_OPENS: Final = rf"<(?P<tag>{_TAGS}){_ATTRIBUTES}>|(?P<mark>{_OPENING_MARK})"

# Outside a value: the beginning or end of thinking, a bracket, or an object that the model encoded
# once more as a JSON string.
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
_MAX_CLOSING_CHARS: Final = 64  # a closing mark can be split between pieces of a stream
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# Strings and plain text in one match, then a bracket, or the quote of a string without an end.
_SPAN: Final = re.compile(rf'(?:[^"{{}}\[\]]++|{_STRING.pattern})*+([{{}}\[\]"]?)', re.DOTALL)
_CLOSER: Final = {"{": "}", "[": "]"}


def extract_json(text: str) -> dict[str, object]:
    """Return the only JSON object of a reply.

    Code fences, prose, thinking blocks and box tokens are skipped. A repeated object is read once,
    in any key order. One level of string encoding is undone. Only strict JSON is accepted
    (RFC 8259, unique keys, finite numbers), and never a part of an object.

    Args:
        text: The whole reply of a model.

    Returns:
        The object as a dict.

    Raises:
        MalformedReplyError: If there is no object, or several. `.reason` is one of `ambiguous`,
            `bad_number`, `duplicate_keys`, `empty`, `no_json`, `not_strict`, `too_deep` (over 100
            levels), `too_large` (over 1,000,000 characters), `truncated` and `unclosed_thinking`.
    """
    try:
        return _only_object(text)
    except MalformedReplyError as exc:
        exc.reply = text
        raise


def _only_object(text: str) -> dict[str, object]:
    if len(text) > MAX_REPLY_CHARS:
        raise _fault("too_large")
    # `strip()` alone would keep a byte order mark.
    if not text.strip("\ufeff \t\r\n"):
        raise _fault("empty")
    answers: dict[str, dict[str, object]] = {}
    candidates = _candidates(text)
    for candidate in candidates:
        try:
            answer = _DECODER.decode(candidate)
            if isinstance(answer, str):  # an object that was encoded once more
                _end_of_value(answer, 0)  # checks the depth before the decoder recurses
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
    """Return the text of a reply without the thinking at its beginning.

    Raises:
        MalformedReplyError: `empty` if nothing remains. `unclosed_thinking` if the thinking has no
            end.
    """
    opening = _OPENING.match(text)
    position = _end_of_thinking(text, opening) if opening else 0
    answer = text[position:].strip()
    if not answer:
        raise _fault("empty")
    return answer


class AnswerFilter:
    """A filter that removes the thinking at the beginning of a text that arrives in pieces.

    The results of `feed` and `end`, joined, are the result of `without_thinking` for the whole
    text. The beginning is buffered while it may open thinking, and white space while it may be the
    end.
    """

    def __init__(self) -> None:
        # The beginning of the text, or in thinking the last characters, which may begin the end
        # mark.
        self._buffer = ""
        self._opening: re.Match[str] | None = None
        self._may_think = True
        self._has_begun = False
        # A list, since a str that grows with each piece takes quadratic time.
        self._spaces: list[str] = []

    def feed(self, piece: str) -> str:
        """Return the text that is certainly not thinking so far, or ""."""
        if not self._may_think:
            return self._without_trailing_space(piece)
        self._buffer += piece
        if self._opening is None:
            self._buffer = self._buffer.lstrip()
            self._opening = _OPENING.match(self._buffer)
            if self._opening is None:
                # More text could still complete the opening mark.
                start = self._buffer.lower()
                self._may_think = bool(_UNENDED_TAG.fullmatch(self._buffer)) or any(
                    mark.startswith(start) for mark in _OPENING_STARTS
                )
            else:
                self._buffer = self._buffer[self._opening.end() :]
        if self._opening:
            closing = _closing(self._opening).search(self._buffer)
            if closing is None:
                self._buffer = self._buffer[-_MAX_CLOSING_CHARS:]
            else:
                self._buffer = self._buffer[closing.end() :]
                self._opening = None
                self._may_think = False
        return "" if self._may_think else self._without_trailing_space(self._buffer)

    def end(self) -> str:
        """Return the buffered text if it was not the beginning of thinking."""
        if self._may_think and self._opening is None:
            return self._without_trailing_space(self._buffer)
        return ""

    def _without_trailing_space(self, text: str) -> str:
        """Return the text after the buffered spaces, and buffer those at its end."""
        text = text if self._has_begun else text.lstrip()
        stripped = text.rstrip()
        if not stripped:
            self._spaces.append(text)
            return ""
        self._has_begun = True
        whole = "".join((*self._spaces, stripped))
        self._spaces = [text[len(stripped) :]]
        return whole


def parse_whole(text: str) -> object:
    """Parse a text that is a JSON object or list as a whole, as strictly as `extract_json`.

    Raises:
        MalformedReplyError: If it is anything else. `.reason` is as for `extract_json`.
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
    """Return the outermost objects and the strings with one, outside thinking and lists."""
    candidates: list[str] = []
    position = 0
    while landmark := _LANDMARK.search(text, position):
        start = landmark.start()
        if landmark["closing"]:
            candidates.clear()  # all of it was thinking
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
                candidates.append(text[start:position])
        if len(candidates) > _MAX_CANDIDATES:
            raise _fault("ambiguous")
    return candidates


def _end_of_thinking(text: str, opening: re.Match[str]) -> int:
    closing = _closing(opening).search(text, opening.end())
    if closing is None:
        raise _fault("unclosed_thinking")
    return closing.end()


def _closing(opening: re.Match[str]) -> re.Pattern[str]:
    ends = rf"</{opening['tag']}\s*>" if opening["tag"] else re.escape(_MARKS[opening["mark"]])
    return re.compile(ends, re.IGNORECASE)


def _end_of_value(text: str, start: int) -> int:
    """Return the position after the bracket that closes the one at `start`."""
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
    """Return a finite float. The decoder also calls this for NaN, Infinity and 1e999."""
    value = float(literal)
    if len(literal) > _MAX_NUMBER_CHARS or not math.isfinite(value):
        raise _fault("bad_number")
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_real, parse_constant=_real
)


def _fault(reason: str) -> MalformedReplyError:
    return MalformedReplyError(f"The reply {_FAULTS[reason]}", reason=reason)


# Mistral up to v7, then Granite 3 and Phi-4-mini, then Command R7B and Command A. Only special
# tokens may follow the list.
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
# A call as JSON: between the tags of Qwen and Hermes, or after the mark of Mistral from v11 on.
_CALL_OPENS: Final = re.compile(
    r"\s*(?:<tool_call>|\[TOOL_CALLS\]\s*(?P<name>[^\s\[\]{}<>]+)(?:\[CALL_ID\][^\s\[\]{}<>]*)?"
    r"\s*\[ARGS\])\s*(?=\{)"
)
_END_TOKENS: Final = r"\s*+(?:(?:<\|[^<>|\s]{1,40}\|>|</s>)\s*+)*+"
_TAG_END: Final = rf"\s*</tool_call>{_END_TOKENS}"
# A call of GLM, or of Qwen3-Coder. Its values have no quotes, so no value may contain a tag.
_VALUE: Final = r"(?:[^<]++|<(?!/?(?:tool_call|arg_key|arg_value|function|parameter)\b))*+"
_UNQUOTED_CALL: Final = re.compile(
    rf"\s*<tool_call>\s*(?:(?P<name>[^\s<>{{}}\[\]]++)\s*+(?P<arguments>(?:<arg_key>[^<>]++</arg_key>"
    rf"\s*<arg_value>{_VALUE}</arg_value>\s*+)*+)|<function=(?P<function>[^\s<>]++)>\s*+"
    rf"(?P<parameters>(?:<parameter=[^<>]++>{_VALUE}</parameter>\s*+)*+)</function>){_TAG_END}"
)
_ARGUMENT: Final = re.compile(
    r"<(?:arg_key>([^<>]+)</arg_key>\s*<arg_value>|parameter=([^<>]+)>\n?)"
    r"(.*?)(?:</arg_value>|\n?</parameter>)",
    re.DOTALL,
)
_BEGINS: Final = re.compile(
    r"\[TOOL_CALLS\]|<\|tool_call\|>|<\|START_ACTION\|>|<｜tool▁calls▁begin｜>|<\|tool_calls_section_begin\|>"
)
_BEGINS_OPEN: Final = re.compile(rf"{_BEGINS.pattern}|<tool_call>")
_CALL_KEYS: Final = frozenset({"tool", "name", "args", "arguments", "parameters"})
_MORE_CALL_KEYS: Final = frozenset({"id", "type", "reasoning"})


def read_text_calls(text: str, *, has_ended: bool = False) -> list[dict[str, Any]] | None:
    """Return the tool calls that a model wrote as text, or None if the text is another answer.

    Thinking at the beginning is skipped. Prose without brackets may come before the calls, and only
    special tokens after them. All or nothing: a mark inside a call's text could have cut it in two.

    Args:
        text: The whole reply of a model.
        has_ended: Whether the endpoint said that the model ended its reply. Notations without a
            mark for the end of all calls are read only then.

    Returns:
        The calls as `{"name", "arguments"}`, in the order of the text. Arguments that the notation
        has without quotes are texts.

    Raises:
        MalformedReplyError: If the notation begins, but no whole list of calls follows.
    """
    begins = _BEGINS_OPEN if has_ended else _BEGINS
    if len(text) > MAX_REPLY_CHARS or not begins.search(text):
        return None
    answer = without_thinking(text)
    begin = begins.search(answer)
    # A bracket before the mark may belong to an object that is the answer.
    if begin is None or any(bracket in answer[: begin.start()] for bracket in "{["):
        return None
    section = answer[begin.start() :]
    calls: list[dict[str, Any]] = []
    if match := _LIST.fullmatch(section):
        entries = parse_whole(match["list"])
        calls += map(as_call, entries if isinstance(entries, list) else [entries])
    elif match := _DEEPSEEK.fullmatch(section):
        for call in _adjacent(_DEEPSEEK_CALL, match["calls"]):
            calls.append(_call(call["v3"] or call["v31"], call["fenced"] or call["plain"]))
    elif match := _KIMI.fullmatch(section):
        for call in _adjacent(_KIMI_CALL, match["calls"]):
            calls.append(_call(call["name"], call["arguments"]))
    elif has_ended:
        return _series(section)
    else:
        raise _cut_off_call()
    return calls


def as_call(entry: object) -> dict[str, Any]:
    """Return a call as `{"name", "arguments"}`, each None if it is missing."""
    fields = entry if isinstance(entry, dict) else {}
    # The other names are those of our prompts, of Llama and of Cohere's Command models.
    name = fields.get("name", fields.get("tool", fields.get("tool_name")))
    arguments = fields.get("arguments", fields.get("args", fields.get("parameters")))
    return {"name": name, "arguments": arguments}


def is_call(value: Mapping[str, object]) -> bool:
    """Return whether an object is one tool call, with a name and arguments, and nothing else."""
    call = as_call(value)
    is_whole = isinstance(call["name"], str) and isinstance(call["arguments"], dict | str)
    return is_whole and value.keys() <= _CALL_KEYS | _MORE_CALL_KEYS


def _series(section: str) -> list[dict[str, Any]] | None:
    """Return calls that each have an end, or None if the tags contain another answer."""
    calls: list[dict[str, Any]] = []
    position = 0
    while position < len(section):
        if call := _UNQUOTED_CALL.match(section, position):
            texts = _ARGUMENT.findall(call["arguments"] or call["parameters"] or "")
            arguments = _unique(
                [((key or name).strip(), _value(text)) for key, name, text in texts]
            )
            calls.append({"name": call["name"] or call["function"], "arguments": arguments})
            position = call.end()
            continue
        opening = _CALL_OPENS.match(section, position)
        if opening is None:
            raise _cut_off_call()
        end = _end_of_value(section, opening.end())
        value = parse_whole(section[opening.end() : end])
        closing = re.compile(_END_TOKENS if opening["name"] else _TAG_END).match(section, end)
        if closing is None:
            raise _cut_off_call()
        if opening["name"]:
            calls.append({"name": opening["name"], "arguments": value})
        elif isinstance(value, dict) and is_call(value):
            calls.append(as_call(value))
        else:
            return None
        position = closing.end()
    return calls


def _value(text: str) -> object:
    """Return a list or an object that was written without quotes, else the text."""
    try:
        return parse_whole(text)
    except MalformedReplyError:
        return text  # by a tool's schema it may be a number or a flag


def _adjacent(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """Return the matches of a pattern, which must cover the whole text."""
    matches: list[re.Match[str]] = []
    position = 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise _cut_off_call()
        matches.append(match)
        position = match.end()
    return matches


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"name": name.strip(), "arguments": parse_whole(arguments.strip())}


def _cut_off_call() -> MalformedReplyError:
    return MalformedReplyError(
        "The reply contains tool calls that are cut off; ask again, or try another model",
        reason="truncated",
    )
