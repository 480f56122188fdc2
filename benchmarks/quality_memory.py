"""How much of the evidence for a question `SqliteMemory` finds in long talks, without a model.

Reads `talks/locomo*.json` in the folder that LLM_COMMON_EVAL_DATA names. Each turn of a talk is one
event, with the date of its session, the speaker and the caption of its image. A question counts if
it names evidence. Measured are the sessions among the first five distinct ones of the hits (any of
the evidence, and all of it), and the share of the wanted turns among the first ten hits. "multi-hop"
are the questions of category 1, whose evidence lies in several sessions. Run:

    LLM_COMMON_EVAL_DATA=… python benchmarks/quality_memory.py
"""

import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from llm_common.memory import Event, MemoryFilters, SqliteMemory

HITS = 50
SESSIONS = 5
TURNS = 10
MULTI_HOP = 1
ADVERSARIAL = 5


class Outcome(NamedTuple):
    category: int
    any_session: bool
    all_sessions: bool
    turns: float


async def outcomes_of(talk: dict[str, Any], file: Path) -> list[Outcome]:
    """Store a talk, and retrieve each of its questions."""
    outcomes = []
    async with SqliteMemory(file) as memory:
        for name in (key for key in talk if re.fullmatch(r"session_\d+", key)):
            for row in talk[name]:
                caption = f" [image: {row['blip_caption']}]" if row.get("blip_caption") else ""
                text = f"{talk[f'{name}_date_time']} {row['speaker']}: {row['text']}{caption}"
                event = Event(text=text, metadata={"turn": row["dia_id"]})
                await memory.append_event("talk", event)
        for question in talk["qa"]:
            gold = set(re.findall(r"D\d+:\d+", " ".join(question["evidence"])))
            if not gold:
                continue
            filters = MemoryFilters(session_id="talk")
            hits = await memory.retrieve(question["question"], HITS, filters)
            turns = [str(hit.event.metadata["turn"]) for hit in hits]
            first = set([*dict.fromkeys(map(session_of, turns))][:SESSIONS])
            wanted = set(map(session_of, gold))
            outcomes.append(
                Outcome(
                    question["category"],
                    bool(wanted & first),
                    wanted <= first,
                    len(gold & set(turns[:TURNS])) / len(gold),
                )
            )
    return outcomes


def session_of(turn_id: str) -> str:
    return turn_id.partition(":")[0]


def print_row(label: str, outcomes: list[Outcome]) -> None:
    columns = [*zip(*outcomes, strict=True)][1:]
    values = "".join(f"{statistics.fmean(column):14.3f}" for column in columns)
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
    titles = ("any session@5", "all sessions@5", "turns R@10")
    print(" " * 28 + "".join(f"{title:>14}" for title in titles))
    print_row("all questions", outcomes)
    print_row("multi-hop", [row for row in outcomes if row.category == MULTI_HOP])
    print_row("without adversarial", [row for row in outcomes if row.category != ADVERSARIAL])
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
