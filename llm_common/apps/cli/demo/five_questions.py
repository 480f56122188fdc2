"""`ask_questions`: an agent answers questions, with a record of what its model is shown."""

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
_WINDOW = 128_000  # of many models in use
_EVIDENCE_COLUMNS = 18
_MIN_COLUMNS = 120  # where stdout is no terminal
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
    """One stored output, and how much of it the prompt showed.

    `form` is as in a `ContextBundle`.
    """

    pointer_id: str
    tool: str
    args: dict[str, Any]
    tokens: int
    form: str
    tokens_shown: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of one question.

    Attributes:
        question: Its text.
        outputs: What the tools returned, and what of it the prompt showed.
        tokens_returned: Tokens of all outputs.
        tokens_without: Tokens of a prompt with every output whole.
        tokens_with: Tokens of the largest prompt that was made.
        evidence: Pieces of the data that the answer rests on.
        missing: Those that no prompt held.
        known: What a right answer says.
        answer: What the model answered; None without a model, and if it failed.
        unnamed: What of it the answer does not say; None without an answer.
        problem: What failed; "" if nothing did.
        page: The page of the run's trace; None if there is none.
        trace: The trace; None if there is none.
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
        """Whether something failed, or evidence did not reach a prompt."""
        return bool(self.problem or self.missing)


class PromptKeeper(LLMClient):
    """A client that keeps the prompts it is given, without what the model itself said in them.

    Without a model behind it, it answers that there is none.

    Args:
        client: The model; None for none.
    """

    def __init__(self, client: LLMClient | None) -> None:
        self.prompts: list[str] = []
        self._client = client
        if client is not None:
            self.default_model, self.provider, self.host = (
                client.default_model,
                client.provider,
                client.host,
            )

    async def chat_completion(
        self,
        messages: list[LLMMessage],
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        **options: Any,
    ) -> LLMResponse:
        """The model's answer; see `LLMClient`."""
        others = [message for message in messages if message.role != MessageRole.ASSISTANT]
        self.prompts.append("\n".join(str(message.content) for message in others))
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
            cost_usd=0.0,
        )


@dataclass(frozen=True, slots=True)
class Agent:
    """What chooses and answers; `client` is None without an endpoint."""

    selector: SelectsTools
    client: LLMClient | None
    label: str


@asynccontextmanager
async def agent_from_env() -> AsyncIterator[Agent]:
    """An agent that asks the endpoint of the environment.

    Without one, words choose and nothing answers.

    Raises:
        ConfigError: A setting cannot be used.
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
) -> list[Asked]:
    """What became of each question; one that fails does not end the others.

    Args:
        questions: What to ask, each in a session of its own.
        agent: What chooses and answers.
        folder: Where the pages and the traces go, named by the number of the question.
        work_dir: Where outputs are kept.
        progress: Called before each question.
        registry: The tools; None takes those of the package's data.
    """
    registry = registry or public_tools()
    asked: list[Asked] = []
    for number, question in enumerate(questions, start=1):
        progress(f"Question {number}", number - 1, len(questions))
        started = time.perf_counter()
        try:
            done = await _ask(
                question,
                agent,
                registry,
                work_dir=work_dir / str(number),
                name=folder / str(number),
            )
        except (LLMCommonError, OSError) as exc:
            evidence = question.evidence
            done = Asked(
                question.text,
                evidence=evidence,
                missing=evidence,
                known=question.known,
                problem=str(exc),
            )
        asked.append(replace(done, seconds=round(time.perf_counter() - started, 3)))
    return asked


async def _ask(
    question: Question, agent: Agent, registry: ToolRegistry, *, work_dir: Path, name: Path
) -> Asked:
    client, answering = PromptKeeper(agent.client), Answering(budget=BUDGET)
    manager = ToolContextManager(pointer_store=FileContextPointerStore(work_dir / "context"))
    executor = AgenticExecutor(
        client,
        registry,
        manager,
        selector=agent.selector,
        limits=RunLimits(max_parallel=1),  # a later output ranks higher: every run shows the same
        offload=OffloadPolicy(),
        read_back=True,
    )
    trace = Trace(work_dir / "traces", texts=True)
    with trace.run(manager.hash_query(question.text), query=question.text) as run:
        answer = await executor.run(question.text, plan=question.plan, answering=answering)
    trace.flush()
    page, kept_trace = _kept(run.path, name)
    outputs = _outputs(manager, answer)
    returned = sum(output.tokens for output in outputs)
    bare = PromptBundle(system=answering.system, instructions=question.text)
    text = answer.text if agent.client else None
    return Asked(
        question.text,
        outputs=outputs,
        tokens_returned=returned,
        tokens_without=returned + count_prompt_tokens(bare),
        tokens_with=answer.prompt_tokens,
        evidence=question.evidence,
        missing=question.missing_from("\n".join(client.prompts)),
        known=question.known,
        answer=text,
        unnamed=None if text is None else question.unnamed_in(text),
        problem=answer.problem or "; ".join(answer.failures),
        page=page,
        trace=kept_trace,
    )


def _outputs(manager: ToolContextManager, answer: Answer) -> tuple[ShownOutput, ...]:
    """The session's outputs in the order of their calls."""
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
            form="left_out",
            tokens_shown=0,
        )
        shown = accounts.get(pointer.pointer_id)
        if shown is not None:
            output = replace(output, form=shown.form, tokens_shown=shown.tokens)
        outputs.append(output)
    return tuple(outputs)


def _kept(trace: Path | None, name: Path) -> tuple[str | None, str | None]:
    """The page of a trace and a copy of the trace, as files of that name.

    None for what cannot be read or written.
    """
    page, copy = name.with_suffix(".html"), name.with_suffix(".jsonl")
    with suppress(OSError, StoreError):
        if trace is not None:
            name.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(trace, copy)
            page.write_text(render_html(read_trace(copy)), encoding="utf-8")
            return str(page), str(copy)
    return None, None


@dataclass(frozen=True, slots=True)
class QuestionsDocument:
    """`demo`: what became of the questions over the package's data.

    Attributes:
        model: What chose and answered, in words.
        counter: What counted the tokens.
        budget_tokens: Most tokens of a prompt.
        questions: The questions, with what the tools returned, what a prompt holds, and the
            evidence in it.
        tokens_without: Tokens of the prompts with every output whole.
        tokens_with: Tokens of the prompts that were made.
        evidence: Questions whose evidence is in a prompt, all of it.
        folder: Where the pages and traces are.
        seconds: Wall time of the questions.
        store: Folder of the stored outputs if they are kept, else None.
    """

    model: str
    counter: str
    budget_tokens: int
    questions: tuple[Asked, ...]
    tokens_without: int
    tokens_with: int
    evidence: int
    folder: str
    seconds: float
    store: str | None


def questions_document(
    asked: Sequence[Asked], *, model: str, folder: Path, store: Path | None
) -> QuestionsDocument:
    """The document of the command.

    Args:
        asked: What became of the questions.
        model: What chose and answered, in words.
        folder: Where the pages and traces are.
        store: Folder of the stored outputs when they are kept.
    """
    return QuestionsDocument(
        model=model,
        counter=counter_label(),
        budget_tokens=BUDGET.max_input_tokens,
        questions=tuple(asked),
        tokens_without=sum(each.tokens_without for each in asked),
        tokens_with=sum(each.tokens_with for each in asked),
        evidence=sum(not each.missing for each in asked),
        folder=str(folder),
        seconds=round(sum(each.seconds for each in asked), 3),
        store=str(store) if store else None,
    )


def show_questions(document: QuestionsDocument, console: Console) -> None:
    """Print the questions, what the tools returned, what a model would see, and the pages.

    Args:
        document: What to show.
        console: Where to; at least 120 columns wide where that is no terminal.
    """
    if not console.is_terminal:
        console.width = max(console.width, _MIN_COLUMNS)
    head = f"An agent gathers data for {len(document.questions)} questions."
    about = f"Each prompt may take {document.budget_tokens:,} tokens. Chosen by {document.model}."
    console.print(
        Text(f"{head}\n", style="bold").append_text(safe_text(about, style="not bold")),
        soft_wrap=False,
    )
    console.print(
        _table(document, box=SIMPLE_HEAD if console.is_terminal else None), soft_wrap=False
    )
    for number, asked in enumerate(document.questions, start=1):
        _show_answer(console, number, asked)
    _show_sum(console, document)
    _show_next(console, document)


def _table(document: QuestionsDocument, *, box: Box | None) -> Table:
    table = Table(
        box=box, header_style="bold", show_footer=True, footer_style="bold", pad_edge=False
    )
    count = len(document.questions)
    table.add_column(
        "Question, tools called and outputs shown",
        footer=f"All in {document.seconds:.1f} s",
        ratio=1,
    )
    table.add_column(
        "Tokens\nreturned",
        footer=f"{sum(asked.tokens_returned for asked in document.questions):,}",
        justify="right",
        no_wrap=True,
    )
    table.add_column(
        "Prompt\nwithout", footer=f"{document.tokens_without:,}", justify="right", no_wrap=True
    )
    table.add_column(
        "Prompt\nwith", footer=f"{document.tokens_with:,}", justify="right", no_wrap=True
    )
    table.add_column(
        "Evidence\nin it", footer=f"{document.evidence} of {count}", max_width=_EVIDENCE_COLUMNS
    )
    for number, asked in enumerate(document.questions, start=1):
        evidence = Text("not found", "red")
        if not asked.missing:
            evidence = Text("found: ", "green") + safe_text(", ".join(asked.known))
        question = safe_text(f"{number}. {asked.question}\n")
        table.add_row(
            question + safe_text(f"{_calls(asked)}\n", style="dim"),
            f"{asked.tokens_returned:,}",
            Text(f"{asked.tokens_without:,}", style="red"),
            Text(f"{asked.tokens_with:,}", style="green"),
            evidence,
        )
    return table


def _calls(asked: Asked) -> str:
    """Return what was called, and what of it the prompt shows."""
    if not asked.outputs:
        return "nothing called"
    calls = []
    for tool, count in Counter(output.tool for output in asked.outputs).items():
        calls.append(tool if count == 1 else f"{count} calls of {tool}")
    forms = Counter(output.form for output in asked.outputs)
    shown = [f"{forms[form]} {words}" for form, words in _FORMS.items() if forms[form]]
    return f"{', '.join(calls)}: {', '.join(shown)}"


def _show_sum(console: Console, document: QuestionsDocument) -> None:
    without, used = document.tokens_without, document.tokens_with
    if not 0 < used < without:
        return
    saved = f"The prompts take {used:,} tokens instead of {without:,}: {used / without:.1%}."
    if too_large := sum(asked.tokens_without > _WINDOW for asked in document.questions):
        saved += f" Else {too_large} of them would not fit a window of {_WINDOW:,} tokens."
    text = Text(saved, style="bold")
    text.append(f" Tokens are {document.counter}.\n", style="not bold")
    console.print(text, soft_wrap=False)


def _show_answer(console: Console, number: int, asked: Asked) -> None:
    if asked.answer is not None:
        head = Text(f"Answer {number}, which names {', '.join(asked.known)}: ", style="green")
        if asked.unnamed:
            missing = ", ".join(asked.unnamed)
            head = Text(f"Answer {number}, which does not name {missing}: ", style="red")
        console.print(head + safe_text(one_line(asked.answer, max_chars=_MAX_ANSWER_CHARS)))
    if asked.problem:
        console.print(safe_text(f"Question {number}: {asked.problem}", style="red"))
        return
    for piece in asked.missing:
        text = f"Question {number}: the prompt does not hold {piece}"
        console.print(safe_text(text, style="red"))


def _show_next(console: Console, document: QuestionsDocument) -> None:
    pages = [asked.page for asked in document.questions if asked.page]
    traces = [asked.trace for asked in document.questions if asked.trace]
    program, python = _commands()
    browser = "No page could be written; name another folder with --output"
    if pages:
        browser = f"Open {pages[0]} in a browser"
    if len(pages) > 1:
        browser += f", and likewise {Path(pages[1]).name} to {Path(pages[-1]).name}"
    lines = {
        "Why does each prompt hold what it holds?": browser,
        "In the terminal": f"{program} trace show {shlex.quote(traces[0])}" if traces else "",
        "A folder of yours": f'{program} pack "how are strings escaped" PATH',
        "A program of yours": f"save the first of README.md as first.py, then {python} first.py",
        "Stored outputs": document.store or "",
    }
    for name, value in lines.items():
        if value:
            console.print(
                Text.assemble(
                    (name if name.endswith("?") else f"{name}:", "bold"), " ", safe_text(value)
                )
            )


def _commands() -> tuple[str, str]:
    """How this program and its Python are called from here."""
    if shutil.which("llm-common") or Path(sys.argv[0]).name != "llm-common":
        return "llm-common", "python"
    return shlex.quote(sys.argv[0]), shlex.quote(str(Path(sys.argv[0]).with_name("python")))
