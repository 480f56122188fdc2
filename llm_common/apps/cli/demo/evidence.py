"""Runs the demo's questions, and looks for their evidence in the prompts and in simpler ones."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from llm_common.agents import (
    AgenticExecutor,
    Answer,
    Answering,
    FileContextPointerStore,
    LexicalToolSelector,
    OffloadPolicy,
    RunLimits,
    SelectsTools,
    Session,
    ToolContextManager,
    ToolSelectionConfig,
    ToolSelector,
)
from llm_common.apps.cli.demo.baselines import best_records, first_tokens
from llm_common.apps.cli.demo.public_data import public_tools
from llm_common.apps.cli.demo.questions import Kind, Question
from llm_common.context import ItemAccount
from llm_common.core import (
    DefaultCounter,
    LLMClient,
    LLMMessage,
    LLMResponse,
    LLMUsage,
    MessageRole,
    OpenAICompatibleClient,
    config_from_env,
)
from llm_common.errors import LLMCommonError
from llm_common.prompt import PromptBundle, TokenBudget, count_prompt_tokens
from llm_common.text import decode_json, to_json
from llm_common.tools import ToolRegistry
from llm_common.trace import Trace
from llm_common.trace.account import NO_MODEL

BUDGET = TokenBudget(max_input_tokens=4_000, max_output_tokens=500)
STORE = "context"
TRACES = "traces"
_NO_ANSWER = "Nothing answers here: no endpoint is configured."


@dataclass(frozen=True, slots=True)
class ShownOutput:
    """A stored output, with the form and the tokens that the prompt has of it."""

    pointer_id: str
    tool: str
    args: dict[str, Any]
    tokens: int
    form: str
    tokens_shown: int


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The outcome of one question.

    Attributes:
        question: Its text.
        kind: How it asks.
        outputs: The outputs of the tools, with their part in the prompt.
        tokens_returned: Tokens of all outputs.
        tokens_without: Tokens of a prompt with every output whole.
        tokens_with: Tokens of the largest prompt.
        evidence: Pieces of the data that the answer needs.
        missing: The pieces of evidence that no prompt contained.
        in_first_tokens: Whether the beginnings of the outputs contain the evidence, in as many
            tokens as the largest prompt.
        in_best_records: Whether the records that BM25 ranks first do.
        sql: The SELECT that computes the answer. "" if none was asked.
        cells: The values of its rows.
        query_tokens: Tokens of the text that a model reads for it.
        known: Values that a correct answer contains.
        answer: The model's answer. None without a model, or if it failed.
        unnamed: The `known` values that the answer lacks. None without an answer.
        problem: What failed, or an empty text.
        page: Path of its page. None until one is written.
        trace: Path of the trace. None if it could not be written.
        seconds: Wall time.
    """

    question: str
    kind: Kind = "own words"
    outputs: tuple[ShownOutput, ...] = ()
    tokens_returned: int = 0
    tokens_without: int = 0
    tokens_with: int = 0
    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    in_first_tokens: bool = False
    in_best_records: bool = False
    sql: str = ""
    cells: tuple[str, ...] = ()
    query_tokens: int = 0
    known: tuple[str, ...] = ()
    answer: str | None = None
    unnamed: tuple[str, ...] | None = None
    problem: str = ""
    page: str | None = None
    trace: str | None = None
    seconds: float = 0.0

    @property
    def found_in(self) -> Literal["prompt", "query", ""]:
        """Return where the model sees what the answer needs, or an empty text."""
        if self.problem:
            return ""
        if not self.missing:
            return "prompt"
        return "query" if self.cells and set(self.known) <= set(self.cells) else ""

    @property
    def failed(self) -> bool:
        """Return whether something failed, or the evidence was not found."""
        return not self.found_in


class PromptRecorder(LLMClient):
    """A client that records prompts and passes them on.

    A recorded prompt lacks the model's own messages, which may repeat evidence of other prompts.

    Args:
        client: The model. None answers every call with a fixed text.
    """

    def __init__(self, client: LLMClient | None) -> None:
        self.prompts: list[str] = []
        self._client = client
        if client is not None:
            self.default_model = client.default_model
            self.provider = client.provider
            self.host = client.host

    async def chat_completion(
        self,
        messages: list[LLMMessage],
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        **options: Any,
    ) -> LLMResponse:
        """Record the prompt, and return the model's answer. See `LLMClient`."""
        texts = [
            str(message.content) for message in messages if message.role != MessageRole.ASSISTANT
        ]
        self.prompts.append("\n".join(texts))
        if self._client is not None:
            return await self._client.chat_completion(
                messages, model, temperature, max_tokens, **options
            )
        tokens = count_prompt_tokens(
            PromptBundle(history=messages, tools_json_schema=options.get("tools"))
        )
        return LLMResponse(
            id="none",
            model=NO_MODEL,
            content=_NO_ANSWER,
            finish_reason="stop",
            usage=LLMUsage(prompt_tokens=tokens, total_tokens=tokens),
            cost_usd=0.0,  # None would mean an unknown price
        )


@dataclass(frozen=True, slots=True)
class Agent:
    """The selector and the model of an agent. `client` is None without an endpoint."""

    selector: SelectsTools
    client: LLMClient | None
    label: str


@asynccontextmanager
async def agent_from_env() -> AsyncIterator[Agent]:
    """Yield an agent for the endpoint of the environment.

    Without an endpoint, full-text ranking chooses tools and no model answers.

    Raises:
        ConfigError: If a setting is invalid.
    """
    tool_config = ToolSelectionConfig.from_env()
    endpoint = config_from_env()
    if endpoint is None:
        yield Agent(
            LexicalToolSelector(tool_config),
            None,
            "full-text ranking on this machine (no endpoint is configured)",
        )
        return
    async with OpenAICompatibleClient(endpoint) as client:
        label = f"{endpoint.default_model} at {endpoint.base_url}"
        yield Agent(ToolSelector(client, tool_config), client, label)


async def ask_questions(
    questions: Sequence[Question],
    agent: Agent,
    *,
    folder: Path,
    progress: Callable[[str, int, int], object],
    registry: ToolRegistry | None = None,
) -> list[QuestionResult]:
    """Ask each question in a separate session. The rest continue if a question fails.

    Args:
        questions: The questions.
        agent: The agent.
        folder: Its folder `context` gets the outputs, and `traces` the traces.
        progress: Called before each question.
        registry: The tools. Defaults to those over the package's data.

    Returns:
        A result for each question, in order.
    """
    registry = registry or public_tools()
    results: list[QuestionResult] = []
    for number, question in enumerate(questions, start=1):
        progress(f"Question {number}", number - 1, len(questions))
        started = time.perf_counter()
        try:
            result = await _ask(question, agent, registry, folder=folder, number=number)
        except (LLMCommonError, OSError) as exc:  # the endpoint, the disk, or the data
            result = QuestionResult(
                question.text,
                question.kind,
                evidence=question.evidence,
                missing=question.evidence,
                known=question.known,
                problem=str(exc),
            )
        results.append(replace(result, seconds=round(time.perf_counter() - started, 3)))
    return results


async def _ask(
    question: Question, agent: Agent, registry: ToolRegistry, *, folder: Path, number: int
) -> QuestionResult:
    client, answering = PromptRecorder(agent.client), Answering(budget=BUDGET)
    session = Session(FileContextPointerStore(folder / STORE), session_id=f"demo:{number}")
    await session.clear()  # of an earlier demo in this folder
    manager = await ToolContextManager.of(session)
    executor = AgenticExecutor(
        client,
        registry,
        manager,
        selector=agent.selector,
        # Later outputs rank higher, so a fixed order of calls makes every run show the same.
        limits=RunLimits(max_parallel=1),
        offload=OffloadPolicy(),
        read_back=True,
    )
    # With texts, so that the page shows each prompt. The data is public.
    trace = Trace(folder / TRACES, texts=True)
    with trace.run(manager.query_id_of(question.text), query=question.text) as run:
        answer = await executor.run(
            question.text, plan=question.plan, answering=answering, session=manager
        )
    trace.flush()  # pages are rendered from the file
    values = _values(manager)
    outputs = _outputs(manager, values, answer)
    returned = sum(output.tokens for output in outputs)
    # The prompt of an agent that shows every output whole.
    bare = PromptBundle(system=answering.system, instructions=question.text)
    # Without a model the text is only `_NO_ANSWER`.
    text = answer.text if agent.client else None
    result = QuestionResult(
        question.text,
        question.kind,
        outputs=outputs,
        tokens_returned=returned,
        tokens_without=returned + count_prompt_tokens(bare),
        tokens_with=answer.prompt_tokens,
        evidence=question.evidence,
        # In all prompts, since the model may read the evidence back in a later one.
        missing=question.missing_from("\n".join(client.prompts)),
        known=question.known,
        answer=text,
        unnamed=None if text is None else question.unnamed_in(text),
        problem=answer.problem or "; ".join(answer.failures),
        trace=str(run.path) if run.path else None,
    )
    return await _with_query(_with_baselines(result, question, values), question, session, outputs)


def _with_baselines(
    result: QuestionResult, question: Question, values: Sequence[Any]
) -> QuestionResult:
    """Return the result with what simpler ways show in the tokens of the largest prompt."""
    counter, max_tokens = DefaultCounter(), result.tokens_with
    first = first_tokens(values, max_tokens=max_tokens, counter=counter)
    best = best_records(question.text, values, max_tokens=max_tokens, counter=counter)
    return replace(
        result,
        in_first_tokens=not question.missing_from(first),
        in_best_records=not question.missing_from(best),
    )


async def _with_query(
    result: QuestionResult, question: Question, session: Session, outputs: Sequence[ShownOutput]
) -> QuestionResult:
    """Return the result with the rows of the question's SELECT, if it has one."""
    if not question.sql:
        return result
    wanted = dict(question.table_args)
    pointers = {output.pointer_id for output in outputs if output.args == wanted}
    tables = [table for table in await session.tables() if table.pointer_id in pointers]
    if not tables:
        return result
    sql = question.sql.replace("{table}", tables[0].name)
    rows = await session.query_rows(sql)
    text = await session.query(sql)
    return replace(
        result,
        sql=sql,
        cells=tuple(str(cell) for row in rows.rows for cell in row),
        query_tokens=DefaultCounter().count(text),
    )


def _outputs(
    manager: ToolContextManager, values: Sequence[Any], answer: Answer
) -> tuple[ShownOutput, ...]:
    """Return the session's outputs in the order of their calls, as `values` are."""
    accounts: dict[str, ItemAccount] = {}
    if answer.context:
        for account in (*answer.context.kept, *answer.context.dropped):
            accounts[account.id] = account
    counter, outputs = DefaultCounter(), []
    for pointer, value in zip(manager.get_all_pointers(), values, strict=True):
        output = ShownOutput(
            pointer_id=pointer.pointer_id,
            tool=pointer.tool_name,
            args=pointer.args,
            tokens=counter.count(value if isinstance(value, str) else to_json(value)),
            form="left_out",  # until an account below says otherwise
            tokens_shown=0,
        )
        packed = accounts.get(pointer.pointer_id)
        if packed is not None:
            output = replace(output, form=packed.form, tokens_shown=packed.tokens)
        outputs.append(output)
    return tuple(outputs)


def _values(manager: ToolContextManager) -> list[Any]:
    """Return the session's outputs in the order of their calls."""
    values = []
    for pointer in manager.get_all_pointers():
        values.append(decode_json(manager.load_payload(pointer.pointer_id)[1]))
    return values
