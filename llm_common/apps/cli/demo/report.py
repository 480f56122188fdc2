"""The table and the pages of `llm-common demo`, and what to try next."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from llm_common.apps.cli.demo.agent import BUDGET, STORE, TRACES, QuestionResult
from llm_common.apps.cli.terminal import safe_text
from llm_common.apps.inspector import IndexEntry, render_html, render_index
from llm_common.core import counter_label
from llm_common.trace import read_trace

_INDEX = "index.html"
_YES_OR_NO = {True: "yes", False: "no"}


def show_demo(results: Sequence[QuestionResult], folder: Path, console: Console) -> None:
    """Print what each question gathered and what a model would see, then what to try next."""
    of_all = f"of {len(results)}"
    console.print(
        safe_text(
            f"An agent gathers data for {len(results)} questions. A prompt takes up to "
            f"{BUDGET.max_input_tokens:,} tokens. Is what the answer needs in it, and is it in as "
            "many tokens of the outputs' beginnings, or of their best records by BM25?\n"
        )
    )
    table = Table(box=None, pad_edge=False, header_style="bold", show_footer=True)
    table.add_column("Question, and the records of its answer", ratio=1)
    table.add_column(
        "Returned", f"{sum(result.tokens_returned for result in results):,}", justify="right"
    )
    table.add_column(
        "Prompt", f"{sum(result.tokens_in_prompt for result in results):,}", justify="right"
    )
    table.add_column(
        "First\ntokens", f"{sum(result.in_first_tokens for result in results)} {of_all}"
    )
    table.add_column("BM25", f"{sum(result.in_best_records for result in results)} {of_all}")
    table.add_column(
        "llm-common", f"{sum(result.in_prompt for result in results)} {of_all}", no_wrap=True
    )
    for number, result in enumerate(results, start=1):
        evidence = "\n".join(result.question.evidence)
        table.add_row(
            safe_text(f"{number}. {result.question.text}\n")
            + safe_text(f"{evidence}\n", style="dim"),
            f"{result.tokens_returned:,}",
            f"{result.tokens_in_prompt:,}",
            _YES_OR_NO[result.in_first_tokens],
            _YES_OR_NO[result.in_best_records],
            _YES_OR_NO[result.in_prompt],
        )
    console.print(table)
    for number, result in enumerate(results, start=1):
        if result.problem:
            console.print(safe_text(f"Question {number}: {result.problem}", style="red"))
        elif not result.in_prompt:
            lacks = f"lacks {len(result.missing)} of {len(result.question.evidence)} records"
            text = f"Question {number}: the prompt {lacks}, such as {result.missing[0]}"
            console.print(safe_text(text, style="red"))
    folders = (
        f"--store {shlex.quote(str(folder / STORE))} --traces {shlex.quote(str(folder / TRACES))}"
    )
    console.print(
        safe_text(
            f"\nTokens are {counter_label()}.\n"
            f"What is in each prompt, and why: open {folder / _INDEX} in a browser.\n"
            f"All outputs and runs: llm-common inspect {folders}\n"
            'Your own folder: llm-common pack "how are strings escaped" PATH'
        )
    )


def write_pages(results: Sequence[QuestionResult], folder: Path) -> None:
    """Write the page of each run, and an index of them with the result of the demo.

    Raises:
        OSError: If a page cannot be written.
        StoreError: If a trace cannot be read.
    """
    entries = []
    for number, result in enumerate(results, start=1):
        if result.trace is None:
            continue
        run, name = read_trace(result.trace), f"{number}.html"
        page = render_html(
            run,
            evidence=result.question.values,
            index=_INDEX,
            returned_tokens=result.output_tokens,
        )
        (folder / name).write_text(page, encoding="utf-8")
        entries.append(IndexEntry(name, run, result.output_tokens, result.question.values))
    in_prompt = sum(result.in_prompt for result in results)
    in_first = sum(result.in_first_tokens for result in results)
    in_best = sum(result.in_best_records for result in results)
    lead = (
        f"{in_prompt} of {len(results)} prompts have all records of the answer. As many tokens of "
        f"the outputs' beginnings have them for {in_first}, and of their best records by BM25 for "
        f"{in_best}."
    )
    (folder / _INDEX).write_text(
        render_index(entries, title="Eight questions over public data", lead=lead), encoding="utf-8"
    )
