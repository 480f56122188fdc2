"""The JSON document of `llm-common demo`, and its text for people."""

import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from llm_common.apps.cli.demo.conversation import ReRun, RuleCheck
from llm_common.apps.cli.demo.evidence import BUDGET, STORE, TRACES, QuestionResult
from llm_common.apps.cli.demo.pages import INDEX
from llm_common.apps.cli.terminal import safe_text
from llm_common.core import counter_label
from llm_common.text import one_line

_WINDOW = 128_000  # the context window of many models
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
class DemoDocument:
    """The JSON document of `demo`.

    Attributes:
        model: Description of what chose and answered.
        counter: Name of the token counter.
        budget_tokens: Maximum tokens of a prompt.
        questions: The results.
        tokens_without: Tokens of the prompts with every output whole.
        tokens_with: Tokens of the actual prompts.
        evidence: Number of questions whose evidence the model sees, in a prompt or by one query.
        evidence_first_tokens: The same number for the beginnings of the outputs.
        evidence_best_records: The same number for the records that BM25 ranks first.
        rule: A rule of the first message after a long conversation. None if it failed.
        re_run: A call that is made again. None if it failed.
        folder: Folder of the pages, the store and the traces.
        store: Folder of the stored outputs.
        traces: Folder of the traces.
        seconds: Wall time of all questions.
    """

    model: str
    counter: str
    budget_tokens: int
    questions: tuple[QuestionResult, ...]
    tokens_without: int
    tokens_with: int
    evidence: int
    evidence_first_tokens: int
    evidence_best_records: int
    rule: RuleCheck | None
    re_run: ReRun | None
    folder: str
    store: str
    traces: str
    seconds: float


def demo_document(
    results: Sequence[QuestionResult],
    *,
    model: str,
    folder: Path,
    rule: RuleCheck | None = None,
    re_run: ReRun | None = None,
) -> DemoDocument:
    """Return the document of the command.

    Args:
        results: The results of the questions.
        model: Description of what chose and answered.
        folder: Folder of the pages, the store and the traces.
        rule: The check of the rule.
        re_run: The check of the repeated call.
    """
    return DemoDocument(
        model=model,
        counter=counter_label(),
        budget_tokens=BUDGET.max_input_tokens,
        questions=tuple(results),
        tokens_without=sum(result.tokens_without for result in results),
        tokens_with=sum(result.tokens_with for result in results),
        evidence=sum(bool(result.found_in) for result in results),
        evidence_first_tokens=sum(result.in_first_tokens for result in results),
        evidence_best_records=sum(result.in_best_records for result in results),
        rule=rule,
        re_run=re_run,
        folder=str(folder),
        store=str(folder / STORE),
        traces=str(folder / TRACES),
        seconds=round(sum(result.seconds for result in results), 3),
    )


def show_demo(document: DemoDocument, console: Console) -> None:
    """Print a table of the questions, then answers, the other checks, and what to try next.

    Args:
        document: The document.
        console: Where to print.
    """
    head = f"An agent gathers data for {len(document.questions)} questions."
    about = (
        f"Each prompt may take {document.budget_tokens:,} tokens. Chosen by {document.model}. "
        "The three columns on the right say whether the data that the answer needs is there, in "
        "as many tokens each: the beginnings of the outputs, their best records by BM25, and "
        "the prompt of llm-common."
    )
    console.print(Text(f"{head}\n", style="bold") + safe_text(about, style="not bold"))
    console.print(_questions_table(document, box=console.is_terminal))
    for number, result in enumerate(document.questions, start=1):
        _show_query(console, number, result)
        _show_answer(console, number, result)
    _show_sum(console, document)
    if document.rule:
        _show_rule(console, document.rule)
    if document.re_run:
        _show_re_run(console, document.re_run)
    _show_next_steps(console, document)


def _questions_table(document: DemoDocument, *, box: bool) -> Table:
    table = Table(
        box=SIMPLE_HEAD if box else None,
        header_style="bold",
        show_footer=True,
        footer_style="bold",
        pad_edge=False,
    )
    count = len(document.questions)
    returned = sum(result.tokens_returned for result in document.questions)
    table.add_column("Question", footer=f"All in {document.seconds:.1f} s", ratio=1)
    table.add_column("Tokens\nreturned", footer=f"{returned:,}", justify="right", no_wrap=True)
    table.add_column("First\ntokens", footer=f"{document.evidence_first_tokens} of {count}")
    table.add_column("BM25", footer=f"{document.evidence_best_records} of {count}")
    table.add_column("llm-common", footer=f"{document.evidence} of {count}", no_wrap=True)
    for number, result in enumerate(document.questions, start=1):
        question = safe_text(f"{number}. {result.question}\n")
        about = f"{result.kind.capitalize()}. {_describe_calls(result)}\n"
        table.add_row(
            question + safe_text(about, style="dim"),
            f"{result.tokens_returned:,}",
            _mark(result.in_first_tokens),
            _mark(result.in_best_records),
            _own_mark(result),
        )
    return table


def _mark(is_there: bool) -> Text:
    return Text("yes", "green") if is_there else Text("no", "red")


def _own_mark(result: QuestionResult) -> Text:
    mark = _mark(bool(result.found_in))
    tokens = f"\n{result.tokens_with:,} tokens"
    if result.found_in == "query":
        mark = Text("by a query", "green")
        tokens = f"\n{result.query_tokens:,} tokens"
    return mark + Text(tokens, "dim")


def _describe_calls(result: QuestionResult) -> str:
    """Return which tools were called, and the forms of their outputs in the prompt."""
    if not result.outputs:
        return "Nothing called"
    calls = []
    for tool, count in Counter(output.tool for output in result.outputs).items():
        calls.append(tool if count == 1 else f"{count} calls of {tool}")
    counts = Counter(output.form for output in result.outputs)
    forms = [f"{counts[form]} {words}" for form, words in _FORMS.items() if counts[form]]
    return f"{', '.join(calls)}: {', '.join(forms)}"


def _show_query(console: Console, number: int, result: QuestionResult) -> None:
    if result.cells:
        head = Text(f"Query {number}, as a model would write it: ", style="bold")
        text = f"{result.sql} → {' | '.join(result.cells)} ({result.query_tokens:,} tokens)"
        console.print(head + safe_text(text, style="not bold"))


def _show_answer(console: Console, number: int, result: QuestionResult) -> None:
    if result.answer is not None:
        head = Text(f"Answer {number}, which names {', '.join(result.known)}: ", style="green")
        if result.unnamed:
            missing = ", ".join(result.unnamed)
            head = Text(f"Answer {number}, which does not name {missing}: ", style="red")
        console.print(head + safe_text(one_line(result.answer, max_chars=_MAX_ANSWER_CHARS)))
    if result.problem:
        console.print(safe_text(f"Question {number}: {result.problem}", style="red"))
    elif not result.found_in:
        text = f"Question {number}: the prompt does not contain {'; '.join(result.missing)}"
        console.print(safe_text(text, style="red"))


def _show_sum(console: Console, document: DemoDocument) -> None:
    without, used = document.tokens_without, document.tokens_with
    if not 0 < used < without:
        return
    text = (
        f"\nThe prompts have {used:,} tokens. With every output whole they would have "
        f"{without:,}, so this is {used / without:.1%}."
    )
    too_large = sum(result.tokens_without > _WINDOW for result in document.questions)
    if too_large:
        text += (
            f" With every output whole, {too_large} of the {len(document.questions)} prompts would "
            f"not fit into a window of {_WINDOW:,} tokens."
        )
    said = Text(text, style="bold")
    console.print(said.append(f" Tokens are {document.counter}.\n", style="not bold"))


def _show_rule(console: Console, rule: RuleCheck) -> None:
    head = Text(f"A rule, {rule.turns} turns later: ", style="bold")
    newest = "still there" if rule.in_newest else "gone"
    folded = "there, word for word" if rule.in_folded else "gone"
    text = (
        f'"{rule.rule}" was said first. The conversation has {rule.tokens:,} tokens, and a prompt '
        f"at most {rule.max_tokens:,}. In the newest messages that fit it is {newest}. In the "
        f"prompt that llm-common folds it is {folded}, and {rule.tokens_folded:,} tokens are used."
    )
    console.print(head + safe_text(text, style="not bold"))


def _show_re_run(console: Console, re_run: ReRun) -> None:
    head = Text("The same call again: ", style="bold")
    change = "named" if re_run.names_the_change else "not named"
    text = (
        f"{re_run.call} returns {re_run.tokens:,} tokens, of which the model sees "
        f"{re_run.first_tokens:,}. The second time it sees {re_run.same_tokens:,}. After one "
        f"figure was revised it sees {re_run.changed_tokens:,}, in which the change is {change}.\n"
    )
    console.print(head + safe_text(text, style="not bold"))


def _show_next_steps(console: Console, document: DemoDocument) -> None:
    pages = [result.page for result in document.questions if result.page]
    program, python = "llm-common", "python"
    if Path(sys.argv[0]).name == "llm-common" and not shutil.which("llm-common"):
        # run by its path, as `make demo` does without activating the environment
        program = shlex.quote(sys.argv[0])
        python = shlex.quote(str(Path(sys.argv[0]).with_name("python")))
    folders = f"--store {shlex.quote(document.store)} --traces {shlex.quote(document.traces)}"
    browser = "No page could be written. Name another folder with --output"
    if pages:
        browser = f"Open {Path(pages[0]).with_name(INDEX)} in a browser"
    can_inspect = find_spec("starlette") and find_spec("uvicorn")
    steps = {
        "What is in each prompt, and why?": browser,
        "All outputs and runs:": f"{program} inspect {folders}" if can_inspect else "",
        "Your own folder:": f'{program} pack "how are strings escaped" PATH',
        "Your own program:": f"save the first of README.md as first.py, then {python} first.py",
    }
    for name, value in steps.items():
        if value:
            console.print(Text.assemble((name, "bold"), " ", safe_text(value)))
