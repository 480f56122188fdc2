"""The lines of a trace: frozen values, one JSON object each.

`docs/trace.schema.json` is made of them. Ids, digests, sizes, scores and reasons are always there.
Texts (questions, prompts, items) are None unless the trace was told to hold them. A digest is the
beginning of a SHA-256.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from llm_common.context.bundle import Form, JudgeAccount
from llm_common.context.request import Kind
from llm_common.core.structured import Attempt
from llm_common.history.folding import FoldedPart

FORMAT: Final = 1
"""The version of the format; a line of a later one may have more fields, which a reader ignores."""


OVER_THE_CAP: Final = "over the cap"
"""The reason of a candidate that fits, where others filled the limit."""


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Line(_Facts):
    """Where a line belongs.

    Attributes:
        seq: Its number in the run, from 1.
        at: When it was recorded: UTC, ISO 8601.
        step: The span that it ends or belongs to; 0 is the run.
        parent: The span around that.
    """

    seq: int = 0
    at: str = ""
    step: int = 0
    parent: int = 0


class RunBegin(_Line):
    """The first line: what the run is about."""

    kind: Literal["run_begin"] = "run_begin"
    version: int = FORMAT
    library: str = ""
    query_id: str
    query_digest: str | None = None
    query: str | None = None
    texts: bool = False


class RunEnd(_Line):
    """The last line; `lost` lines had no room, or could not be made."""

    kind: Literal["run_end"] = "run_end"
    status: str
    seconds: float
    lost: int = 0


class Candidate(_Facts):
    """A tool or an output that could have been chosen.

    Attributes:
        id: A tool's name, or a pointer's id.
        name: The tool that gave an output; of a tool nothing.
        digest: Of the output's bytes, or of the tool's definition.
        size_bytes: Bytes of the output; of a tool, of its definition.
        tokens: At most so many tokens of a tool's signature.
        score: By the lexical ranking, where that chose.
        probability: By a decision model.
        share: Likewise.
        reason: `chosen`, `not chosen`, `over the cap`, `not shown`; `dropped` for a tool whose
            calls cannot run.
        text: Its summary or signature.
    """

    id: str
    name: str = ""
    digest: str = ""
    size_bytes: int | None = None
    tokens: int | None = None
    score: float | None = None
    probability: float | None = None
    share: float | None = None
    reason: str
    text: str | None = None


class Dropped(_Facts):
    """An entry of the model's reply that does not count, and why."""

    id: str
    reason: str
    problems: tuple[str, ...] = ()


class SelectionLine(_Line):
    """A choice of tools or outputs.

    Attributes:
        of: What was chosen from.
        task: The task of the plan.
        status: As of the selection's result.
        used: What chose.
        query_digest: Of the question.
        chosen: Ids of outputs, or names of the tools to call, most useful first.
        candidates: The first 200: the chosen ones, then by score and probability.
        unlisted: How many more candidates there were.
        dropped: Entries of the reply that do not count.
        attempts: One a model call.
        limits: The settings that decide the choice.
    """

    kind: Literal["selection"] = "selection"
    of: Literal["tools", "outputs"]
    task: str | None = None
    status: str
    used: str
    problem: str = ""
    cached: bool = False
    query_digest: str | None = None
    query: str | None = None
    chosen: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    unlisted: int = 0
    dropped: tuple[Dropped, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    tokens_saved: int = 0
    limits: dict[str, float] = Field(default_factory=dict)


class PackedItem(_Facts):
    """An item of the pool, as its account in the bundle describes it."""

    source: Kind
    id: str
    name: str = ""
    rule: str
    reason: str
    form: Form
    tokens: int
    score: float
    parts: dict[str, float] = Field(default_factory=dict)
    chars: int
    chars_shown: int
    digest: str = ""


class PackingLine(_Line):
    """A packing under a budget.

    Attributes:
        allocation: Tokens for each part, as they were shared before items competed.
        items: The first 200: those that are in, in the order of the prompt, then the others by
            score.
        unlisted: How many more there were.
        counter: The class that counted tokens.
        not_weighed: Of a folder, how many files were not among the items, by reason; a folder that
            was not entered counts as one.
        text_digest: Of the rendered text.
    """

    kind: Literal["packing"] = "packing"
    budget: int
    tokens: int
    intent: str
    strategy: str
    allocation: dict[str, int]
    items: tuple[PackedItem, ...] = ()
    unlisted: int = 0
    counter: str = ""
    judge: JudgeAccount | None = None
    not_weighed: dict[str, int] = Field(default_factory=dict)
    query_digest: str | None = None
    query: str | None = None
    text_digest: str = ""
    text: str | None = None


class FoldLine(_Line):
    """A history that was folded; `parts` are behind pointers."""

    kind: Literal["fold"] = "fold"
    session_id: str
    limit_tokens: int
    tokens: int
    messages_given: int
    messages_sent: int
    parts: tuple[FoldedPart, ...] = ()
    unlisted: int = 0


class SentMessage(_Facts):
    """One message of a prompt: who speaks, its bytes, and what they are."""

    role: str
    bytes: int
    digest: str


class SentPrompt(_Facts):
    """The bytes that a model was sent.

    Attributes:
        digest: Of all bytes.
        bytes: How many.
        chunk_bytes: The distance between two prefixes.
        prefixes: The digest of the first chunk, of the first two, and so on: two prompts are the
            same up to there.
        same_bytes: How many bytes begin an earlier prompt of this process for the same model alike;
            None without one.
        same_as: The run and line of that one.
        messages: The first 200.
        text: The prompt as JSON.
    """

    digest: str
    bytes: int
    chunk_bytes: int
    prefixes: tuple[str, ...] = ()
    same_bytes: int | None = None
    same_as: str | None = None
    messages: tuple[SentMessage, ...] = ()
    text: str | None = None


class ModelCallLine(_Line):
    """A call of a model."""

    kind: Literal["model_call"] = "model_call"
    attempt: Attempt
    prompt: SentPrompt
    finish_reason: str | None = None
    reply_digest: str | None = None
    reply_chars: int = 0
    reply: str | None = None


class ToolCallLine(_Line):
    """A call of a tool; its output is behind the pointer. `failure` is the class of an error."""

    kind: Literal["tool_call"] = "tool_call"
    tool: str
    task: str | None = None
    args_digest: str = ""
    args: str | None = None
    pointer_id: str | None = None
    result_bytes: int | None = None
    result_digest: str | None = None
    failure: str | None = None
    seconds: float | None = None


class AnswerLine(_Line):
    """The answer of a run, and what it rests on."""

    kind: Literal["answer"] = "answer"
    status: str
    problem: str = ""
    prompt_tokens: int = 0
    shown: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    text_digest: str | None = None
    text_chars: int = 0
    text: str | None = None


Line = (
    RunBegin
    | RunEnd
    | SelectionLine
    | PackingLine
    | FoldLine
    | ModelCallLine
    | ToolCallLine
    | AnswerLine
)

LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])
"""Reads any line."""


def json_schema() -> dict[str, Any]:
    """The published schema of a line."""
    schema = LINE.json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of a trace",
        **schema,
    }
