"""The lines of a trace: frozen models, each written as one JSON object.

`docs/trace.schema.json` is generated from them. Lines always have ids, sizes, scores and reasons.
Texts (questions, prompts, items) are None unless the trace was created with `texts=True`.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from llm_common.context.bundle import Form
from llm_common.context.request import Kind
from llm_common.core.structured import Attempt
from llm_common.history.policy import FoldedPart

FORMAT: Final = 1
"""The version of the format. Readers ignore fields that a later version adds."""

OVER_THE_CAP: Final = "over the cap"
"""The reason of a candidate that matches but exceeds the limit of the choice."""


NO_MODEL: Final = "no model"
"""Name of the model of a client that asks no model, as in `llm-common demo`."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Line(_Frozen):
    """The position of a line in its run.

    Attributes:
        seq: Number of the line, from 1.
        at: Time of recording, in UTC as ISO 8601.
        step: Number of the span that the line ends or belongs to. 0 is the run.
        parent: Number of the span around that span.
    """

    seq: int = 0
    at: str = ""
    step: int = 0
    parent: int = 0


class RunBegin(_Line):
    """The first line: the query and the version of the library."""

    kind: Literal["run_begin"] = "run_begin"
    version: int = FORMAT
    library: str = ""
    query_id: str
    query: str | None = None
    texts: bool = False


class RunEnd(_Line):
    """The last line. `lost` counts lines that did not fit or could not be encoded."""

    kind: Literal["run_end"] = "run_end"
    status: str
    seconds: float
    lost: int = 0


class Candidate(_Frozen):
    """A tool or an output that could be chosen.

    Attributes:
        id: Name of the tool, or id of the pointer.
        name: The tool that returned an output. Empty for a tool.
        size_bytes: Bytes of the output, or of the tool's definition.
        tokens: Upper bound of the tokens of a tool's signature.
        score: Score of the word ranking, if that chose.
        reason: `chosen`, `not chosen`, `over the cap`, `not shown`, or `dropped` for a tool whose
            calls cannot run.
        text: Summary of the output, or signature of the tool.
    """

    id: str
    name: str = ""
    size_bytes: int | None = None
    tokens: int | None = None
    score: float | None = None
    reason: str
    text: str | None = None


class Dropped(_Frozen):
    """An entry of the model's reply that was ignored, and why."""

    id: str
    reason: str
    problems: tuple[str, ...] = ()


class SelectionLine(_Line):
    """A choice of tools or outputs.

    Attributes:
        of: Whether tools or outputs were chosen.
        task: Id of the task in the plan.
        status: Status of the selection's result.
        used: What chose: a model or the word ranking.
        chosen: Ids of outputs, or names of the tools to call, most useful first.
        candidates: The first 200: chosen ones, then by score.
        unlisted: Number of further candidates.
        dropped: Entries of the reply that were ignored.
    """

    kind: Literal["selection"] = "selection"
    of: Literal["tools", "outputs"]
    task: str | None = None
    status: str
    used: str
    problem: str = ""
    query: str | None = None
    chosen: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    unlisted: int = 0
    dropped: tuple[Dropped, ...] = ()


class PackedItem(_Frozen):
    """An item of the pool, with the fields of its account in the bundle."""

    source: Kind
    id: str
    name: str = ""
    reason: str
    form: Form
    tokens: int
    score: float
    parts: dict[str, float] = Field(default_factory=dict)
    chars: int
    chars_shown: int


class PackingLine(_Line):
    """A packing under a budget.

    Attributes:
        allocation: Tokens of each part, before items competed.
        items: The first 200: packed items in the order of the prompt, then the rest by score.
        unlisted: Number of further items.
        not_weighed: Number of files of a folder that are not among the items, by reason. A folder
            that was not entered counts as one file.
    """

    kind: Literal["packing"] = "packing"
    budget: int
    tokens: int
    intent: str
    strategy: str
    allocation: dict[str, int]
    items: tuple[PackedItem, ...] = ()
    unlisted: int = 0
    not_weighed: dict[str, int] = Field(default_factory=dict)
    query: str | None = None
    text: str | None = None


class FoldLine(_Line):
    """A folded history. `parts` are the messages behind pointers."""

    kind: Literal["fold"] = "fold"
    session_id: str
    limit_tokens: int
    tokens: int
    messages_given: int
    messages_sent: int
    parts: tuple[FoldedPart, ...] = ()
    unlisted: int = 0


OffloadOutcome = Literal["whole", "preview", "identical", "changed", "not stored"]


class OffloadLine(_Line):
    """A result of a tool as the model sees it, behind any door.

    Attributes:
        outcome: `whole`, `preview`, or `not stored` if the store failed. If the call was made
            before, also `identical` for a line that names the result further up, and `changed` for
            what differs from the earlier result.
        total_chars: Characters of the result.
        shown_chars: Characters that the model sees.
    """

    kind: Literal["offload"] = "offload"
    session_id: str
    tool: str
    outcome: OffloadOutcome
    pointer_id: str | None = None
    total_chars: int
    shown_chars: int


class ToolListLine(_Line):
    """The tools that a model call shows, and those that are hidden.

    Attributes:
        shown: Names of the first 200 tools that are shown.
        hidden: Names of the first 200 tools that are not.
        unlisted: Number of further tools.
        tokens: Tokens of the shown definitions.
    """

    kind: Literal["tool_list"] = "tool_list"
    session_id: str
    shown: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    unlisted: int = 0
    tokens: int
    limit_tokens: int


class ReadBackLine(_Line):
    """A call that reads a stored result, or searches results, messages or tools.

    Attributes:
        tool: Name of the tool that searches. None for a reading.
        pointer_id: Id of the result that was read.
        parts: How a part was selected, such as `path` or `lines`.
        chars: Characters of the answer.
        failure: Class of the error.
    """

    kind: Literal["read_back"] = "read_back"
    tool: str | None = None
    pointer_id: str | None = None
    parts: tuple[str, ...] = ()
    chars: int = 0
    failure: str | None = None


class SentMessage(_Frozen):
    """A message of a prompt by its role and size."""

    role: str
    bytes: int


class SentPrompt(_Frozen):
    """The prompt of a model call.

    Attributes:
        bytes: Number of its bytes.
        messages: The first 200 messages.
        text: The messages as lines of JSON.
    """

    bytes: int
    messages: tuple[SentMessage, ...] = ()
    text: str | None = None


class ModelCallLine(_Line):
    """A call of a model."""

    kind: Literal["model_call"] = "model_call"
    attempt: Attempt
    prompt: SentPrompt
    finish_reason: str | None = None
    reply: str | None = None

    @property
    def is_without_model(self) -> bool:
        """Return whether a client was called that asks no model. See `NO_MODEL`."""
        return self.attempt.model == NO_MODEL


class ToolCallLine(_Line):
    """A call of a tool. Its output is behind the pointer. `failure` is the class of an error."""

    kind: Literal["tool_call"] = "tool_call"
    tool: str
    task: str | None = None
    args: str | None = None
    pointer_id: str | None = None
    result_bytes: int | None = None
    failure: str | None = None


class AnswerLine(_Line):
    """The answer of a run.

    Attributes:
        shown: Ids of the outputs in its prompt.
        is_without_model: Whether a client answered that asks no model. See `NO_MODEL`.
    """

    kind: Literal["answer"] = "answer"
    status: str
    problem: str = ""
    prompt_tokens: int = 0
    shown: tuple[str, ...] = ()
    is_without_model: bool = False
    text_chars: int = 0
    text: str | None = None


Line = (
    RunBegin
    | RunEnd
    | SelectionLine
    | PackingLine
    | FoldLine
    | OffloadLine
    | ToolListLine
    | ReadBackLine
    | ModelCallLine
    | ToolCallLine
    | AnswerLine
)

LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])
"""The adapter that validates a line of any kind."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a line, which `docs/trace.schema.json` publishes."""
    schema = LINE.json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of a trace",
        **schema,
    }
