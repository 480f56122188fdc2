"""What a recorded session cost, and what its compactions dropped. No text in it has a secret."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from pydantic import BaseModel

from llm_common.agents import Redactor
from llm_common.apps.audit.transcripts import Stretch, Transcript
from llm_common.core import TokenCounter
from llm_common.history import HistoryMessage, Losses, called_outputs, losses, texts_of
from llm_common.text import stable_json

_CALL_CHARS: Final = 200
_REDACTOR: Final = Redactor()


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
