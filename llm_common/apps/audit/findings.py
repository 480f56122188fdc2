"""What a recorded session cost, what its compactions dropped, and what it costs behind llm-common.

No text of a finding has a secret. `report` prints the findings on one screen, or all of them.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from statistics import median
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel

from llm_common.agents import InMemoryContextPointerStore, Redactor, Session, SessionConfig
from llm_common.apps.audit.transcripts import Stretch, Transcript
from llm_common.core import TokenCounter, counter_label
from llm_common.errors import TokenBudgetError
from llm_common.history import (
    HistoryMessage,
    Losses,
    Message,
    called_outputs,
    contains_value,
    losses,
    read_messages,
    text_of,
    texts_of,
    values_needed,
)
from llm_common.text import one_line, stable_json

_CALL_CHARS: Final = 200
_REDACTOR: Final = Redactor()
_FEW: Final = 3
_LINE_CHARS: Final = 76  # behind four spaces
MAX_CALLS: Final = 1_000
"""Calls of a session that are replayed, from its beginning on."""
MAX_TURNS: Final = 40
"""Calls among them whose prompts are measured, at equal distances. Each takes a fold."""


class Output(BaseModel):
    """A tool output.

    Attributes:
        call: Its call.
        tokens: Its tokens.
        prompts: How many prompts had it, until a compaction.
        is_repeated: Whether the same call had returned the same before.
        was_dropped: Whether a compaction had dropped that output.
    """

    call: str
    tokens: int
    prompts: int
    is_repeated: bool
    was_dropped: bool


class Compaction(BaseModel):
    """What one compaction did.

    Attributes:
        after_calls: The number of calls to the model before it.
        tokens_before: The tokens of the prompt before it.
        tokens_after: The tokens of the next prompt.
        losses: What it left out, or None if its summary is encrypted or missing.
    """

    after_calls: int
    tokens_before: int
    tokens_after: int
    losses: Losses | None


class Findings(BaseModel):
    """What an audit says of one session.

    Attributes:
        name: Its file.
        host: Who recorded it.
        other_records: How many records are no messages, by kind.
        tokens: The tokens of all messages by role, each counted once.
        tool_tokens: The tokens of outputs by tool.
        prompt_tokens: The tokens of the prompt of each call to the model.
        outputs: The outputs, those that cost most first.
        compactions: What each compaction did.
    """

    name: str
    host: str
    other_records: Counter[str]
    tokens: Counter[str] = Counter()
    tool_tokens: Counter[str] = Counter()
    prompt_tokens: list[int] = []
    outputs: list[Output] = []
    compactions: list[Compaction] = []

    @property
    def losses(self) -> Counter[str]:
        """Return how many sentences the compactions dropped ("said"), and values ("needed")."""
        losses = [compaction.losses for compaction in self.compactions if compaction.losses]
        return +Counter(
            said=sum(len(lost.said) for lost in losses),
            needed=sum(len(lost.values) for lost in losses),
        )


def findings_of(transcript: Transcript, counter: TokenCounter) -> Findings:
    """Return what there is to say of a session."""
    findings = Findings(
        name=transcript.name, host=transcript.host, other_records=transcript.other_records
    )
    seen: dict[tuple[str, str], Stretch] = {}
    before = Stretch()
    tokens = 0  # of the prompt
    for stretch in transcript.stretches:
        if before.messages:
            findings.compactions.append(
                Compaction(
                    after_calls=len(findings.prompt_tokens),
                    tokens_before=tokens,
                    tokens_after=tokens_of(stretch.first_prompt, counter),
                    losses=_losses(before, stretch) if stretch.is_readable else None,
                )
            )
        before = stretch
        tokens = tokens_of(stretch.kept, counter)
        for index, message in enumerate(stretch.messages, len(stretch.kept)):
            if index in stretch.calls:
                findings.prompt_tokens.append(tokens)
            size = tokens_of([message], counter)
            findings.tokens["tool" if message.outputs else message.role] += size
            tokens += size
        findings.outputs += _outputs(stretch, seen, findings.tool_tokens, counter)
    findings.outputs.sort(key=lambda output: -output.tokens * output.prompts)
    return findings


def tokens_of(messages: Iterable[HistoryMessage], counter: TokenCounter) -> int:
    """Return the tokens of what a model reads of messages, without marks around them."""
    tokens = 0
    for message in messages:
        tokens += counter.count("\n".join(texts_of(message)))
        tokens += sum(output.tokens(counter) for output in message.outputs)
        if not message.outputs:
            tokens += message.media_tokens
    return tokens


def _outputs(
    stretch: Stretch,
    seen: dict[tuple[str, str], Stretch],
    tool_tokens: Counter[str],
    counter: TokenCounter,
) -> Iterator[Output]:
    """Yield the outputs of a stretch, and note in which stretch each was in view."""
    for index, _, output, call, _ in called_outputs(stretch.prompt):
        call_text = f"{call.name} {stable_json(call.arguments or call.args)}"
        seen_in = seen.get((call_text, output.text))
        seen[call_text, output.text] = stretch
        if index < len(stretch.kept):
            continue
        tokens = output.tokens(counter)
        tool_tokens[call.name] += tokens
        yield Output(
            call=_REDACTOR.beginning(call_text, max_chars=_CALL_CHARS),
            tokens=tokens,
            prompts=len(stretch.calls) - bisect_right(stretch.calls, index),
            is_repeated=seen_in is not None,
            was_dropped=seen_in not in (None, stretch),
        )


def _losses(before: Stretch, stretch: Stretch) -> Losses:
    """Return what a compaction left out, without secrets."""
    lost = losses(before.prompt, stretch.first_prompt, stretch.messages)
    said, values = map(_REDACTOR.text, lost.said), map(_REDACTOR.text, lost.values)
    return replace(lost, said=[*said], values=[*values])


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


def report(
    audited: Sequence[tuple[Findings, Sequence[Turn]]],
    config: SessionConfig,
    *,
    show_all: bool,
    other_files: int,
) -> str:
    """Return what to print about sessions: all together, then the one that lost most.

    Args:
        audited: The sessions.
        config: The limits of the comparison.
        show_all: Whether to list all sessions and all of each, and not what matters most.
        other_files: How many files have no session.
    """
    environment = Environment(  # noqa: S701 - text, not HTML
        loader=PackageLoader("llm_common.apps.audit"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "line": lambda text, chars=_LINE_CHARS: one_line(text, max_chars=chars),
        "median": median,
        "number": "{:,.0f}".format,
    }
    return environment.get_template("report.jinja").render(
        audited=sorted(
            audited, key=lambda each: (-each[0].losses.total(), -sum(each[0].prompt_tokens))
        ),
        compactions=sum(len(findings.compactions) for findings, _ in audited),
        config=config,
        count=None if show_all else _FEW,
        counter=counter_label(),
        dropped=sum((findings.losses for findings, _ in audited), Counter()),
        other_files=other_files,
        tokens=sum(findings.tokens.total() for findings, _ in audited),
    )
