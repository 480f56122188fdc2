"""How much of the evidence for a question `SqliteMemory` finds in long talks, without a model.

Reads `talks/locomo*.json` in the folder that LLM_COMMON_EVAL_DATA names. Each turn of a talk is one
event, with the date of its session, the speaker and the caption of its image. A question counts if
it names evidence. Measured are the sessions among the first five and ten distinct ones of the hits
(any of the evidence, and all of it), and the share of the wanted turns among the first ten hits.
"multi-hop" are the questions of category 1, whose evidence lies in several sessions. Run:

    LLM_COMMON_EVAL_DATA=… python benchmarks/quality_memory.py
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.talks import Outcome, outcome_of, questions_of, turns_of
from llm_common.memory import Event, MemoryFilters, SqliteMemory

HITS = 50
MULTI_HOP = 1
ADVERSARIAL = 5
TITLES = ("any@1", "any@5", "any@10", "all@5", "all@10", "turns R@10")


async def outcomes_of(talk: dict[str, Any], file: Path) -> list[Outcome]:
    """Store a talk, and retrieve each of its questions."""
    outcomes = []
    filters = MemoryFilters(session_id="talk")
    async with SqliteMemory(file) as memory:
        for turn in turns_of(talk):
            await memory.append_event("talk", Event(text=turn.text, metadata={"turn": turn.id}))
        for question in questions_of(talk):
            hits = await memory.retrieve(question.text, HITS, filters)
            ranked = [str(hit.event.metadata["turn"]) for hit in hits]
            outcomes.append(outcome_of(question, ranked))
    return outcomes


def print_row(label: str, outcomes: list[Outcome]) -> None:
    columns = [*zip(*outcomes, strict=True)][1:]
    values = "".join(f"{statistics.fmean(column):11.3f}" for column in columns)
    print(f"{label} ({len(outcomes)})".ljust(28) + values)


def main() -> None:
    data = os.environ.get("LLM_COMMON_EVAL_DATA")
    if not data:
        sys.exit("Set LLM_COMMON_EVAL_DATA to the folder that holds talks/")
    outcomes: list[Outcome] = []
    started = time.perf_counter()
    for path in sorted((Path(data) / "talks").glob("*.json")):
        for talk in json.loads(path.read_text(encoding="utf-8")):
            with tempfile.TemporaryDirectory() as folder:
                outcomes += asyncio.run(outcomes_of(talk, Path(folder) / "memory.sqlite"))
    print("sessions" + " " * 20 + "".join(f"{title:>11}" for title in TITLES))
    print_row("all questions", outcomes)
    print_row("multi-hop", [row for row in outcomes if row.category == MULTI_HOP])
    print_row("without adversarial", [row for row in outcomes if row.category != ADVERSARIAL])
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
