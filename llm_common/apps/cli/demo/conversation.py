"""Two more promises, each computed on the demo's data: a rule stays in view, and a re-run is short.

A rule is said in the first message of a long conversation. A tool returns the same again, and then
with one figure revised.
"""

from dataclasses import dataclass
from typing import Any, Final

from llm_common.agents import FileContextPointerStore, OffloadPolicy, Session, SessionConfig
from llm_common.apps.cli.demo.public_data import get_unemployment
from llm_common.core import DefaultCounter, message_tokens
from llm_common.history import FoldPolicy
from llm_common.text import to_json

RULE: Final = "Never give me a rate without the number of persons behind it."
_SYSTEM: Final = "You answer questions about unemployment in the United States."
_LAST: Final = "And in agriculture, in 2009-12?"
_INDUSTRIES: Final = ("Construction", "Manufacturing", "Finance", "Agriculture", "Information")
_TURNS: Final = 200
_MAX_TOKENS: Final = 8_000
_REVISED_MONTH: Final = "2010-02"
_OLD: Final = 27.1
_NEW: Final = 26.9

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """A rule of the first message, in the prompts that follow a long conversation.

    Attributes:
        rule: The rule.
        turns: Number of turns after it.
        tokens: Tokens of the conversation.
        max_tokens: Maximum tokens of a prompt.
        tokens_newest: Tokens of the prompt with the newest messages that fit.
        in_newest: Whether that prompt has the rule.
        tokens_folded: Tokens of the prompt that `fold` made.
        in_folded: Whether that prompt has the rule, word for word.
    """

    rule: str
    turns: int
    tokens: int
    max_tokens: int
    tokens_newest: int
    in_newest: bool
    tokens_folded: int
    in_folded: bool


@dataclass(frozen=True, slots=True)
class ReRun:
    """What the model sees of a call that it makes again.

    Attributes:
        call: The call, as the model wrote it.
        tokens: Tokens of the whole result.
        first_tokens: Tokens that the model saw of it the first time.
        same: What it sees if the result is the same.
        same_tokens: The tokens of that.
        changed: What it sees if one figure was revised.
        changed_tokens: The tokens of that.
    """

    call: str
    tokens: int
    first_tokens: int
    same: str
    same_tokens: int
    changed: str
    changed_tokens: int

    @property
    def names_the_change(self) -> bool:
        """Return whether the model sees the old and the new figure."""
        return f"{_OLD} → {_NEW}" in self.changed


async def check_rule(store: FileContextPointerStore) -> RuleCheck:
    """Fold a conversation of 200 turns, and look for the rule of its first message.

    Raises:
        StoreError: If the folded messages could not be stored.
    """
    session = Session(
        store,
        session_id="demo:rule",
        config=SessionConfig(fold=FoldPolicy(max_tokens=_MAX_TOKENS)),
    )
    await session.clear()  # of an earlier demo in this folder
    messages = _conversation()
    folded = [dict(message) for message in await session.fold(messages)]
    newest = _newest_that_fit(messages)
    return RuleCheck(
        rule=RULE,
        turns=_TURNS,
        tokens=_tokens(messages),
        max_tokens=_MAX_TOKENS,
        tokens_newest=_tokens(newest),
        in_newest=_contains(newest, RULE),
        tokens_folded=_tokens(folded),
        in_folded=_contains(folded, RULE),
    )


async def run_again(store: FileContextPointerStore) -> ReRun:
    """Make a call three times: the result is the same, and then has one revised figure.

    Raises:
        StoreError: If the store cannot be read.
    """
    args = {"industry": "Construction"}
    session = Session(store, session_id="demo:again", config=SessionConfig(offload=OffloadPolicy()))
    await session.clear()  # of an earlier demo in this folder
    question = "How did unemployment in construction develop?"
    messages: list[Message] = [{"role": "user", "content": question}]
    rows = get_unemployment(**args)
    texts = []
    for number, result in enumerate([rows, rows, _revised(rows)]):
        call = _call(f"call_{number}", args)
        asked = [*messages, {"role": "assistant", "content": None, "tool_calls": [call]}]
        shown = await session.offload(result, tool="get_unemployment", args=args, messages=asked)
        answer = {"role": "tool", "tool_call_id": call["id"], "content": str(shown)}
        messages = [*asked, answer]
        texts.append(str(shown))
    first, same, changed = texts
    counter = DefaultCounter()
    return ReRun(
        call='get_unemployment(industry="Construction")',
        tokens=counter.count(to_json(rows)),
        first_tokens=counter.count(first),
        same=same,
        same_tokens=counter.count(same),
        changed=changed,
        changed_tokens=counter.count(changed),
    )


def _revised(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    revised = []
    for row in rows:
        is_it = row["month"] == _REVISED_MONTH
        revised.append({**row, "rate": _NEW} if is_it else row)
    return revised


def _conversation() -> list[Message]:
    """Return 200 turns over real figures, the first of which begins with the rule."""
    messages: list[Message] = [{"role": "system", "content": _SYSTEM}]
    tables = {industry: get_unemployment(industry) for industry in _INDUSTRIES}
    for turn in range(_TURNS):
        industry = _INDUSTRIES[turn % len(_INDUSTRIES)]
        rows = tables[industry]
        row = rows[turn % len(rows)]
        asked = f"What was the rate in {industry.lower()} in {row['month']}?"
        call = _call(f"turn_{turn}", {"industry": industry})
        messages += [
            {"role": "user", "content": f"{RULE} {asked}" if turn == 0 else asked},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": to_json(rows[-24:])},
            {
                "role": "assistant",
                "content": f"{row['rate']} %, which is {row['count']} thousand persons.",
            },
        ]
    return [*messages, {"role": "user", "content": _LAST}]


def _call(call_id: str, args: dict[str, Any]) -> Message:
    function = {"name": "get_unemployment", "arguments": to_json(args)}
    return {"id": call_id, "type": "function", "function": function}


def _newest_that_fit(messages: list[Message]) -> list[Message]:
    """Return the system message and the newest messages within the limit."""
    kept: list[Message] = []
    room = _MAX_TOKENS - _tokens(messages[:1])
    for message in reversed(messages[1:]):
        room -= _tokens([message])
        if room < 0:
            break
        kept.append(message)
    return [messages[0], *reversed(kept)]


def _tokens(messages: list[Message]) -> int:
    count = DefaultCounter().count
    return sum(message_tokens(message, count) for message in messages)


def _contains(messages: list[Message], text: str) -> bool:
    return any(text in str(message.get("content")) for message in messages)
