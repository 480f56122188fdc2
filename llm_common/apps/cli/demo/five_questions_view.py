"""Shows answered questions to people as a table, and to programs as one document."""

import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from llm_common.apps.cli.demo.five_questions import BUDGET, Asked
from llm_common.apps.cli.terminal import safe_text
from llm_common.core.tokens import counter_label
from llm_common.text.display import one_line

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
