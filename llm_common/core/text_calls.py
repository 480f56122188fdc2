"""Tool calls that a model wrote as text, in the notation that it was trained on, where no server translated them.

Only notations are read that carry JSON and say where the whole ends: a list, or a section with an end mark. A reply in
one of the others (`<tool_call>{...}</tool_call>` after one another, arguments as XML or Python) is refused: cut between
two calls it would pass for a whole one, or its values would have to be guessed.
"""

# ruff: noqa: RUF001 - full-width bars are part of DeepSeek's marks

import re
from typing import Any, Final

from llm_common.core.extraction import MAX_REPLY_CHARS, parse_whole, without_thinking
from llm_common.errors import MalformedReplyError

__all__ = ["read_text_calls"]

# Mistral up to v7; Granite 3 and Phi-4-mini; Command R7B and Command A. What follows the list is special tokens alone.
_LIST: Final = re.compile(
    r"(?:\[TOOL_CALLS\]|<\|tool_call\|>|<\|START_ACTION\|>)\s*(?P<list>\[.*\])\s*(?:<[^<>\s]{1,40}>\s*)*", re.DOTALL
)
# DeepSeek V3 (type, separator, name, fenced arguments) and V3.1 (name, separator, arguments).
_DEEPSEEK: Final = re.compile(
    r"<｜tool▁calls▁begin｜>(?P<calls>.*)<｜tool▁calls▁end｜>\s*+(?:<｜end▁of▁sentence｜>\s*)?", re.DOTALL
)
_DEEPSEEK_CALL: Final = re.compile(
    r"\s*<｜tool▁call▁begin｜>\s*(?:function<｜tool▁sep｜>(?P<v3>[^\n<>]+)\n```json\n(?P<fenced>.*?)\n```"
    r"|(?P<v31>[^\n<>]+)<｜tool▁sep｜>(?P<plain>.*?))<｜tool▁call▁end｜>\s*",
    re.DOTALL,
)
_KIMI: Final = re.compile(
    r"<\|tool_calls_section_begin\|>(?P<calls>.*)<\|tool_calls_section_end\|>\s*+(?:<\|im_end\|>\s*)?", re.DOTALL
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
    """The calls in the API's own form, or None for a reply that holds no such notation.

    Prose may stand before the calls, but no bracket, and nothing but special tokens after them. All or nothing: one
    call that is not whole JSON refuses the reply, since a mark within its text could have cut it in two.

    Args:
        text: The reply as the model wrote it; thinking at its beginning is skipped.

    Raises:
        MalformedReplyError: The notation is begun, but what follows is not a whole list of calls.
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
        return [_call(call["name"], call["arguments"]) for call in _each(_KIMI_CALL, found["calls"])]
    raise _fault()


def _listed(entries: object) -> list[dict[str, Any]]:
    calls = []
    for entry in entries if isinstance(entries, list) else [entries]:
        facts = entry if isinstance(entry, dict) else {}
        name = facts.get("name", facts.get("tool_name"))
        calls.append({"name": name, "arguments": facts.get("arguments", facts.get("parameters"))})
    return calls


def _each(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """The calls that a section consists of, without a gap."""
    found: list[re.Match[str]] = []
    position = 0
    while position < len(text):
        call = pattern.match(text, position)
        if call is None:
            raise _fault()
        found.append(call)
        position = call.end()
    return found


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"name": name.strip(), "arguments": parse_whole(arguments.strip())}


def _fault() -> MalformedReplyError:
    return MalformedReplyError(
        "The reply holds tool calls in a notation that is not whole; ask again, or try another model",
        reason="truncated",
    )
