"""`llm-common demo`: an agent answers five questions, and its prompts are compared.

`ask_questions` runs the agent and records its prompts. `show_questions` prints the comparison.
"""

import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from llm_common.agents.answering import Answer, Answering
from llm_common.agents.context_pointers import FileContextPointerStore
from llm_common.agents.executor import AgenticExecutor
from llm_common.agents.offloading import OffloadPolicy
from llm_common.agents.runs import RunLimits
from llm_common.agents.tool_context import ToolContextManager
from llm_common.apps.cli.demo.public_data import Question, public_tools
from llm_common.apps.cli.terminal import safe_text
from llm_common.apps.inspector import render_html
from llm_common.context.bundle import ItemAccount
from llm_common.core.client import LLMClient
from llm_common.core.http.openai_compatible import OpenAICompatibleClient
from llm_common.core.http.providers import config_from_env
from llm_common.core.models import LLMMessage, LLMResponse, LLMUsage, MessageRole
from llm_common.core.tokens import DefaultCounter, counter_label
from llm_common.errors import LLMCommonError, StoreError
from llm_common.folders.tree_index import ProgressCallback
from llm_common.prompt import PromptBundle, TokenBudget
from llm_common.prompt.prompt_bundle import count_prompt_tokens
from llm_common.selection.lexical_tools import LexicalToolSelector
from llm_common.selection.results import SelectsTools, ToolSelectionConfig
from llm_common.selection.tools import ToolSelector
from llm_common.text.canonical import decode_json
from llm_common.text.display import one_line, to_json
from llm_common.tools.registry import ToolRegistry
from llm_common.trace import Trace, read_trace

BUDGET = TokenBudget(max_input_tokens=4_000, max_output_tokens=500)
_WINDOW = 128_000  # the context window of many models
_EVIDENCE_COLUMNS = 18
_MIN_COLUMNS = 120  # if stdout is not a terminal, for which rich assumes 80
_MAX_ANSWER_CHARS = 600
_FORMS = {
    "whole": "whole",
    "passages": "in passages",
    "excerpt": "in part",
    "pointer": "named",
    "summary": "as a summary",
    "left_out": "left out",
}
_NO_MODEL = "no model"
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
        outputs: The outputs of the tools, with their part in the prompt.
        tokens_returned: Tokens of all outputs.
        tokens_without: Tokens of a prompt with every output whole.
        tokens_with: Tokens of the largest prompt.
        evidence: Pieces of the data that the answer needs.
        missing: The pieces of evidence that no prompt contained.
        known: Values that a correct answer contains.
        answer: The model's answer. None without a model, or if it failed.
        unnamed: The `known` values that the answer lacks. None without an answer.
        problem: What failed, or an empty text.
        page: Path of the page. None if it could not be written.
        trace: Path of the trace. None if it could not be written.
        seconds: Wall time.
    """

    question: str
    outputs: tuple[ShownOutput, ...] = ()
    tokens_returned: int = 0
    tokens_without: int = 0
    tokens_with: int = 0
    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    answer: str | None = None
    unnamed: tuple[str, ...] | None = None
    problem: str = ""
    page: str | None = None
    trace: str | None = None
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Return whether something failed, or evidence did not reach a prompt."""
        return bool(self.problem or self.missing)


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
            model=_NO_MODEL,
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
    work_dir: Path,
    progress: ProgressCallback,
    registry: ToolRegistry | None = None,
) -> list[QuestionResult]:
    """Ask each question in a separate session. The rest continue if a question fails.

    Args:
        questions: The questions.
        agent: The agent.
        folder: Folder for pages and traces, which are named by the number of the question.
        work_dir: Folder for stored outputs.
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
            result = await _ask(
                question,
                agent,
                registry,
                # Its own folder, so that no question gets the outputs of another.
                work_dir=work_dir / str(number),
                name=folder / str(number),
            )
        except (LLMCommonError, OSError) as exc:  # the endpoint, the disk, or the data
            result = QuestionResult(
                question.text,
                evidence=question.evidence,
                missing=question.evidence,
                known=question.known,
                problem=str(exc),
            )
        results.append(replace(result, seconds=round(time.perf_counter() - started, 3)))
    return results


async def _ask(
    question: Question, agent: Agent, registry: ToolRegistry, *, work_dir: Path, name: Path
) -> QuestionResult:
    client, answering = PromptRecorder(agent.client), Answering(budget=BUDGET)
    manager = ToolContextManager(pointer_store=FileContextPointerStore(work_dir / "context"))
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
    trace = Trace(work_dir / "traces", texts=True)
    with trace.run(manager.hash_query(question.text), query=question.text) as run:
        answer = await executor.run(question.text, plan=question.plan, answering=answering)
    trace.flush()  # the page is rendered from the file
    page, trace_copy = _write_page(run.path, name)
    outputs = _outputs(manager, answer)
    returned = sum(output.tokens for output in outputs)
    # The prompt of an agent that shows every output whole.
    bare = PromptBundle(system=answering.system, instructions=question.text)
    # Without a model the text is only `_NO_ANSWER`.
    text = answer.text if agent.client else None
    return QuestionResult(
        question.text,
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
        page=page,
        trace=trace_copy,
    )


def _outputs(manager: ToolContextManager, answer: Answer) -> tuple[ShownOutput, ...]:
    """Return the session's outputs in the order of their calls."""
    accounts: dict[str, ItemAccount] = {}
    if answer.context:
        for account in (*answer.context.kept, *answer.context.dropped):
            accounts[account.id] = account
    counter, outputs = DefaultCounter(), []
    for pointer in manager.get_all_pointers():
        value = decode_json(manager.load_payload(pointer.pointer_id)[1])
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


def _write_page(trace: Path | None, name: Path) -> tuple[str | None, str | None]:
    """Write the page and a copy of a trace, and return their paths, or None if that fails."""
    page, copy = name.with_suffix(".html"), name.with_suffix(".jsonl")
    with suppress(OSError, StoreError):
        if trace is not None:
            name.parent.mkdir(parents=True, exist_ok=True)
            # The folder of the original is removed at the end of the command.
            shutil.copyfile(trace, copy)
            page.write_text(render_html(read_trace(copy)), encoding="utf-8")
            return str(page), str(copy)
    return None, None


@dataclass(frozen=True, slots=True)
class QuestionsDocument:
    """The JSON document of `demo`.

    Attributes:
        model: Description of what chose and answered.
        counter: Name of the token counter.
        budget_tokens: Maximum tokens of a prompt.
        questions: The results.
        tokens_without: Tokens of the prompts with every output whole.
        tokens_with: Tokens of the actual prompts.
        evidence: Number of questions whose evidence is completely in a prompt.
        folder: Folder of the pages and traces.
        seconds: Wall time of all questions.
        store: Folder of the stored outputs. None if they were removed.
    """

    model: str
    counter: str
    budget_tokens: int
    questions: tuple[QuestionResult, ...]
    tokens_without: int
    tokens_with: int
    evidence: int
    folder: str
    seconds: float
    store: str | None


def questions_document(
    results: Sequence[QuestionResult], *, model: str, folder: Path, store: Path | None
) -> QuestionsDocument:
    """Return the document of the command.

    Args:
        results: The results of the questions.
        model: Description of what chose and answered.
        folder: Folder of the pages and traces.
        store: Folder of the stored outputs. None if they are removed.
    """
    return QuestionsDocument(
        model=model,
        counter=counter_label(),
        budget_tokens=BUDGET.max_input_tokens,
        questions=tuple(results),
        tokens_without=sum(result.tokens_without for result in results),
        tokens_with=sum(result.tokens_with for result in results),
        evidence=sum(not result.missing for result in results),
        folder=str(folder),
        seconds=round(sum(result.seconds for result in results), 3),
        store=str(store) if store else None,
    )


def show_questions(document: QuestionsDocument, console: Console) -> None:
    """Print a table of the questions, then answers, sums, and the commands to try next.

    Args:
        document: The document.
        console: Where to print. It gets at least 120 columns if it is not a terminal.
    """
    if not console.is_terminal:
        console.width = max(console.width, _MIN_COLUMNS)
    head = f"An agent gathers data for {len(document.questions)} questions."
    about = f"Each prompt may take {document.budget_tokens:,} tokens. Chosen by {document.model}."
    console.print(
        Text(f"{head}\n", style="bold").append_text(safe_text(about, style="not bold")),
        soft_wrap=False,
    )
    box = SIMPLE_HEAD if console.is_terminal else None
    console.print(_questions_table(document, box=box), soft_wrap=False)
    for number, result in enumerate(document.questions, start=1):
        _show_answer(console, number, result)
    without, used = document.tokens_without, document.tokens_with
    if 0 < used < without:
        savings = f"The prompts have {used:,} tokens instead of {without:,}: {used / without:.1%}."
        too_large = sum(result.tokens_without > _WINDOW for result in document.questions)
        if too_large:
            savings += f" {too_large} of them would not fit into a window of {_WINDOW:,} tokens."
        text = Text(savings, style="bold")
        text.append(f" Tokens are {document.counter}.\n", style="not bold")
        console.print(text, soft_wrap=False)
    _show_next_steps(console, document)


def _questions_table(document: QuestionsDocument, *, box: Box | None) -> Table:
    table = Table(
        box=box, header_style="bold", show_footer=True, footer_style="bold", pad_edge=False
    )
    count = len(document.questions)
    returned = sum(result.tokens_returned for result in document.questions)
    table.add_column(
        "Question, tools called and outputs shown",
        footer=f"All in {document.seconds:.1f} s",
        ratio=1,
    )
    table.add_column("Tokens\nreturned", footer=f"{returned:,}", justify="right", no_wrap=True)
    table.add_column(
        "Prompt\nwithout", footer=f"{document.tokens_without:,}", justify="right", no_wrap=True
    )
    table.add_column(
        "Prompt\nwith", footer=f"{document.tokens_with:,}", justify="right", no_wrap=True
    )
    table.add_column(
        "Evidence\nin it", footer=f"{document.evidence} of {count}", max_width=_EVIDENCE_COLUMNS
    )
    for number, result in enumerate(document.questions, start=1):
        evidence = Text("not found", "red")
        if not result.missing:
            evidence = Text("found: ", "green") + safe_text(", ".join(result.known))
        question = safe_text(f"{number}. {result.question}\n")
        table.add_row(
            question + safe_text(f"{_describe_calls(result)}\n", style="dim"),
            f"{result.tokens_returned:,}",
            Text(f"{result.tokens_without:,}", style="red"),
            Text(f"{result.tokens_with:,}", style="green"),
            evidence,
        )
    return table


def _describe_calls(result: QuestionResult) -> str:
    """Return which tools were called, and the forms of their outputs in the prompt."""
    if not result.outputs:
        return "nothing called"
    calls = []
    for tool, count in Counter(output.tool for output in result.outputs).items():
        calls.append(tool if count == 1 else f"{count} calls of {tool}")
    counts = Counter(output.form for output in result.outputs)
    forms = [f"{counts[form]} {words}" for form, words in _FORMS.items() if counts[form]]
    return f"{', '.join(calls)}: {', '.join(forms)}"


def _show_answer(console: Console, number: int, result: QuestionResult) -> None:
    if result.answer is not None:
        head = Text(f"Answer {number}, which names {', '.join(result.known)}: ", style="green")
        if result.unnamed:
            missing = ", ".join(result.unnamed)
            head = Text(f"Answer {number}, which does not name {missing}: ", style="red")
        console.print(head + safe_text(one_line(result.answer, max_chars=_MAX_ANSWER_CHARS)))
    if result.problem:
        console.print(safe_text(f"Question {number}: {result.problem}", style="red"))
        return
    for piece in result.missing:
        text = f"Question {number}: the prompt does not contain {piece}"
        console.print(safe_text(text, style="red"))


def _show_next_steps(console: Console, document: QuestionsDocument) -> None:
    pages = [result.page for result in document.questions if result.page]
    traces = [result.trace for result in document.questions if result.trace]
    program, python = "llm-common", "python"
    if Path(sys.argv[0]).name == "llm-common" and not shutil.which("llm-common"):
        # run by its path, as `make demo` does without activating the environment
        program = shlex.quote(sys.argv[0])
        python = shlex.quote(str(Path(sys.argv[0]).with_name("python")))
    browser = "No page could be written. Name another folder with --output"
    if pages:
        browser = f"Open {pages[0]} in a browser"
    if len(pages) > 1:
        browser += f", or {Path(pages[1]).name} to {Path(pages[-1]).name}"
    steps = {
        "What is in each prompt, and why?": browser,
        "In the terminal:": f"{program} trace show {shlex.quote(traces[0])}" if traces else "",
        "Your own folder:": f'{program} pack "how are strings escaped" PATH',
        "Your own program:": f"save the first of README.md as first.py, then {python} first.py",
        "Stored outputs:": document.store or "",
    }
    for name, value in steps.items():
        if value:
            console.print(Text.assemble((name, "bold"), " ", safe_text(value)))
