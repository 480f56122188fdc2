"""The same session behind llm-common: its outputs offloaded, its prompts folded."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from pydantic import BaseModel

from llm_common.agents import InMemoryContextPointerStore, Session, SessionConfig
from llm_common.apps.audit.findings import tokens_of
from llm_common.apps.audit.transcripts import Transcript
from llm_common.core import TokenCounter
from llm_common.history import (
    HistoryMessage,
    Message,
    called_outputs,
    contains_value,
    read_messages,
    text_of,
    values_needed,
)

MAX_CALLS: Final = 1_000
"""Calls of a session that are replayed, from its beginning on."""
MAX_TURNS: Final = 40
"""Calls among them whose prompts are measured, at equal distances. Each takes a fold."""


class Prompt(BaseModel):
    """A prompt of a call to the model.

    Attributes:
        tokens: Its tokens.
        values: How many of the values that the call needs it has.
    """

    tokens: int
    values: int


class Turn(BaseModel):
    """A call to the model, and its prompt.

    Attributes:
        needed: How many earlier values the model needs for the calls of tools that it returns.
        recorded: The prompt as it was.
        folded: The prompt behind llm-common.
    """

    needed: int
    recorded: Prompt
    folded: Prompt


async def replay(transcript: Transcript, config: SessionConfig) -> list[Turn]:
    """Offload and fold a session as an agent would have.

    Args:
        transcript: The session.
        config: The limits.
    """
    # With a name, so that ids and token counts are those of each run.
    session = Session(InMemoryContextPointerStore(), session_id="audit", config=config)
    messages = [message for stretch in transcript.stretches for message in stretch.messages]
    called = called_outputs(messages)
    count = min(sum(len(stretch.calls) for stretch in transcript.stretches), MAX_CALLS)
    step = -(-count // MAX_TURNS)
    turns: list[Turn] = []
    earlier: list[HistoryMessage] = []
    prompt: list[Message] = []
    calls = 0
    for stretch in transcript.stretches:
        for index, message in enumerate(stretch.messages, len(stretch.kept)):
            if index in stretch.calls:
                calls += 1
                if calls % step == 0:
                    prompt = await session.fold(prompt)
                    reply = takewhile(lambda part: part.role == "assistant", stretch.prompt[index:])
                    needed = values_needed([*reply], text_of(earlier))
                    turns.append(
                        Turn(
                            needed=len(needed),
                            recorded=_prompt(stretch.prompt[:index], needed, config.counter),
                            folded=_prompt(read_messages(prompt), needed, config.counter),
                        )
                    )
                if calls == count:
                    return turns
            shown = message
            for number, output in enumerate(message.outputs):
                call = next(called).call
                offloaded = await session.offload(
                    output.value, tool=call.name, args=call.arguments, messages=prompt
                )
                shown = shown.with_output(number, str(offloaded))
            prompt.append(shown.raw)
            earlier.append(message)
    return turns


def _prompt(
    messages: Sequence[HistoryMessage], needed: Sequence[str], counter: TokenCounter
) -> Prompt:
    text = text_of(messages)
    values = sum(contains_value(text, value) for value in needed)
    return Prompt(tokens=tokens_of(messages, counter), values=values)
