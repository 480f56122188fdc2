"""Answered questions for people and for programs: the same facts as one table and as one document."""

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
    """Prints what was asked, what the tools returned and what a model would see, then where the pages are.

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
    for number, each in enumerate(document.questions, start=1):
        _show_answer(console, number, each)
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
        footer=_tokens(document, "tokens_returned"),
        justify="right",
        no_wrap=True,
    )
    table.add_column(
        "Prompt\nwithout", footer=_tokens(document, "tokens_without"), justify="right", no_wrap=True
    )
    table.add_column(
        "Prompt\nwith", footer=_tokens(document, "tokens_with"), justify="right", no_wrap=True
    )
    table.add_column(
        "Evidence\nin it", footer=f"{document.evidence} of {count}", max_width=_EVIDENCE_COLUMNS
    )
    for number, each in enumerate(document.questions, start=1):
        evidence = (
            Text("not found", "red")
            if each.missing
            else Text("found: ", "green") + safe_text(_known(each))
        )
        table.add_row(
            Text.assemble(
                safe_text(f"{number}. {each.question}\n"),
                safe_text(f"{_calls(each)}\n", style="dim"),
            ),
            f"{each.tokens_returned:,}",
            Text(f"{each.tokens_without:,}", style="red"),
            Text(f"{each.tokens_with:,}", style="green"),
            evidence,
        )
    return table


def _tokens(document: QuestionsDocument, field: str) -> str:
    return f"{sum(getattr(each, field) for each in document.questions):,}"


def _known(asked: Asked) -> str:
    return ", ".join(asked.known)


def _calls(asked: Asked) -> str:
    """What was called, and what of it the prompt shows."""
    calls = Counter(output.tool for output in asked.outputs)
    forms = Counter(output.form for output in asked.outputs)
    called = ", ".join(
        f"{count} calls of {tool}" if count > 1 else tool for tool, count in calls.items()
    )
    shown = ", ".join(f"{forms[form]} {words}" for form, words in _FORMS.items() if forms[form])
    return f"{called}: {shown}" if calls else "nothing called"


def _show_sum(console: Console, document: QuestionsDocument) -> None:
    without, used = document.tokens_without, document.tokens_with
    too_large = sum(each.tokens_without > _WINDOW for each in document.questions)
    if 0 < used < without:
        saved = f"The prompts take {used:,} tokens instead of {without:,}: {used / without:.1%}."
        rest = (
            f" Else {too_large} of them would not fit a window of {_WINDOW:,} tokens."
            if too_large
            else ""
        )
        text = Text(f"{saved}{rest}", style="bold").append(
            f" Tokens are {document.counter}.\n", style="not bold"
        )
        console.print(text, soft_wrap=False)


def _show_answer(console: Console, number: int, asked: Asked) -> None:
    if asked.answer is not None:
        names = (
            f"does not name {', '.join(asked.unnamed)}"
            if asked.unnamed
            else f"names {_known(asked)}"
        )
        head = Text(f"Answer {number}, which {names}: ", style="red" if asked.unnamed else "green")
        console.print(head + safe_text(one_line(asked.answer, max_chars=_MAX_ANSWER_CHARS)))
    if asked.problem:
        console.print(safe_text(f"Question {number}: {asked.problem}", style="red"))
    for piece in () if asked.problem else asked.missing:
        console.print(
            safe_text(f"Question {number}: the prompt does not hold {piece}", style="red")
        )


def _show_next(console: Console, document: QuestionsDocument) -> None:
    pages = [each.page for each in document.questions if each.page]
    traces = [each.trace for each in document.questions if each.trace]
    program, python = _commands()
    others = (
        f", and likewise {Path(pages[1]).name} to {Path(pages[-1]).name}" if len(pages) > 1 else ""
    )
    lines = {
        "Why does each prompt hold what it holds?": f"Open {pages[0]} in a browser{others}"
        if pages
        else "No page could be written; name another folder with --output",
        "In the terminal": f"{program} trace show {shlex.quote(traces[0])}" if traces else "",
        "A folder of yours": f'{program} pack "how are strings escaped" PATH',
        "A program of yours": f"save the first one of README.md as first.py, then {python} first.py",
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
