"""The same session behind llm-common: its outputs offloaded, its prompts folded."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from pydantic import BaseModel

from llm_common.agents import InMemoryContextPointerStore, Session, SessionConfig
from llm_common.apps.audit.findings import tokens_of
from llm_common.apps.audit.transcripts import Transcript
from llm_common.errors import TokenBudgetError
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


class Turn(BaseModel):
    """A call to the model, and its prompt.

    Attributes:
        needed: How many earlier values the model needs for the calls of tools that it returns.
        recorded_tokens: The tokens of the prompt as it was.
        recorded_values: How many of these values it had.
        tokens: The tokens of the prompt behind llm-common.
        values: How many of these values it has.
    """

    needed: int
    recorded_tokens: int
    recorded_values: int
    tokens: int
    values: int


async def replay(
    transcript: Transcript, prompt_tokens: Sequence[int], config: SessionConfig
) -> list[Turn]:
    """Offload and fold a session as an agent would have.

    Args:
        transcript: The session.
        prompt_tokens: The tokens of the recorded prompt of each call.
        config: The limits.
    """
    # With a name, so that ids and token counts are those of each run.
    session = Session(InMemoryContextPointerStore(), session_id="audit", config=config)
    messages = [message for stretch in transcript.stretches for message in stretch.messages]
    called = called_outputs(messages)
    count = min(len(prompt_tokens), MAX_CALLS)
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
                    try:
                        prompt = await session.fold(prompt)
                    except TokenBudgetError:
                        return turns  # the system messages are longer than the limit
                    reply = [
                        *takewhile(lambda part: part.role == "assistant", stretch.prompt[index:])
                    ]
                    needed = values_needed(reply, text_of(earlier))
                    folded = read_messages(prompt)
                    turns.append(
                        Turn(
                            needed=len(needed),
                            recorded_tokens=prompt_tokens[calls - 1],
                            recorded_values=_values_in(stretch.prompt[:index], needed),
                            tokens=tokens_of(folded, config.counter),
                            values=_values_in(folded, needed),
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


def _values_in(messages: Sequence[HistoryMessage], values: Sequence[str]) -> int:
    """Return how many values messages have."""
    text = text_of(messages)
    return sum(contains_value(text, value) for value in values)
