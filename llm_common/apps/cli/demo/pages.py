"""Writes a page for each question of the demo, and a page that lists them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from llm_common.apps.cli.demo.evidence import QuestionResult
from llm_common.apps.inspector import IndexEntry, Neighbours, render_html, render_index
from llm_common.errors import StoreError
from llm_common.trace import read_trace

INDEX = "index.html"


def write_pages(results: Sequence[QuestionResult], folder: Path) -> list[QuestionResult]:
    """Write the pages, and return the results with their paths.

    A result without a trace has no page, and neither has one whose page cannot be written.

    Args:
        results: The results, in the order of their numbers.
        folder: The folder of the pages.
    """
    numbers = [number for number, result in enumerate(results, start=1) if result.trace]
    written = list(results)
    entries: list[IndexEntry] = []
    for place, number in enumerate(numbers):
        result, page = results[number - 1], _name(number)
        neighbours = Neighbours(
            previous=_name(numbers[place - 1]) if place else None,
            next=_name(numbers[place + 1]) if place + 1 < len(numbers) else None,
            index=INDEX,
        )
        with suppress(OSError, StoreError):
            entry = _write_page(result, folder / page, neighbours)
            entries.append(entry)
            written[number - 1] = replace(result, page=str(folder / page))
    with suppress(OSError):
        index = render_index(entries, title="The questions of the demo")
        (folder / INDEX).write_text(index, encoding="utf-8")
    return written


def _name(number: int) -> str:
    return f"{number}.html"


def _write_page(result: QuestionResult, page: Path, neighbours: Neighbours) -> IndexEntry:
    run = read_trace(result.trace or "")
    returned_tokens = {output.pointer_id: output.tokens for output in result.outputs}
    evidence = [value for piece in result.evidence for value in piece.split(" | ")]
    text = render_html(
        run, evidence=evidence, neighbours=neighbours, returned_tokens=returned_tokens
    )
    page.write_text(text, encoding="utf-8")
    return IndexEntry(page.name, run, returned_tokens)
