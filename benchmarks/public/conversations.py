"""LoCoMo: the sessions and turns that memory finds, and the turns that fit into a bundle."""

import asyncio
import io
import json
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.public.bm25 import BM25, words
from benchmarks.public.inputs import Inputs
from benchmarks.public.tables import Row, Section, Share, Table, reported_rows, share_of
from benchmarks.quality_context import (
    BUDGET_TOKENS,
    as_talk,
    by_strategy,
    share_in_budget,
    share_in_bundle,
    stemmed_bm25,
)
from benchmarks.quality_memory import ADVERSARIAL, HITS, MULTI_HOP
from benchmarks.talks import Outcome, Question, Turn, outcome_of, questions_of, turns_of
from llm_common.context import (
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    MeasuredStrategy,
    classify_intent,
)
from llm_common.core import ExactCounter
from llm_common.memory import Event, MemoryFilters, SqliteMemory
from llm_common.ranking.embeddings import installed_vectors

__all__ = ["bundles", "sessions"]

# Constants were chosen on these talks. The other five were never looked at for choosing.
TUNED: Final = frozenset({"26", "41", "43", "47", "49"})
COLUMNS: Final = ("any@1", "any@5", "any@10", "all@5", "all@10", "turns R@10")
OURS: Final = "llm-common, SqliteMemory, words only"

Rank = Callable[[str], list[str]]


def _talks(inputs: Inputs) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the talks with their names, such as `26`."""
    with zipfile.ZipFile(io.BytesIO(inputs.read("locomo"))) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".json"):
                yield Path(name).stem, json.loads(archive.read(name))


def _is_unseen(talk_name: str) -> bool:
    return talk_name not in TUNED


# --- sessions and turns by memory


async def _ranked_by_memory(
    turns: Sequence[Turn], questions: Sequence[Question], file: Path
) -> list[list[str]]:
    rankings = []
    filters = MemoryFilters(session_id="talk")
    async with SqliteMemory(file) as memory:
        for turn in turns:
            await memory.append_event("talk", Event(text=turn.text, metadata={"turn": turn.id}))
        for question in questions:
            hits = await memory.retrieve(question.text, HITS, filters)
            rankings.append([str(hit.event.metadata["turn"]) for hit in hits])
    return rankings


def _baselines(turns: Sequence[Turn]) -> dict[str, Rank]:
    ids = [turn.id for turn in turns]
    bm25 = BM25.of_texts(turn.text for turn in turns)
    return {
        "FTS5 of SQLite, Porter stems": lambda query: stemmed_bm25(query, turns),
        "BM25": lambda query: [ids[index] for index in bm25.ranked(words(query))],
        "newest turns": lambda _: ids[::-1],
    }


def sessions(inputs: Inputs, limit: int | None) -> Section:
    """Measure which sessions and turns memory finds."""
    outcomes: dict[str, list[tuple[Outcome, bool]]] = defaultdict(list)
    for name, talk in _talks(inputs):
        turns = turns_of(talk)
        questions = [*questions_of(talk)][:limit]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "memory.sqlite"
            rankings = {OURS: asyncio.run(_ranked_by_memory(turns, questions, file))}
        for label, rank in _baselines(turns).items():
            rankings[label] = [rank(question.text)[:HITS] for question in questions]
        for label, ranked in rankings.items():
            for question, order in zip(questions, ranked, strict=True):
                outcomes[label].append((outcome_of(question, order), _is_unseen(name)))
    answerable = {
        label: [row for row in rows if row[0].category != ADVERSARIAL]
        for label, rows in outcomes.items()
    }
    return Section(
        title="Long conversations: the sessions and turns with the evidence",
        about=ABOUT_SESSIONS,
        tables=(
            _session_table("locomo_all", "all questions", outcomes),
            _session_table("locomo_1_to_4", "categories 1 to 4", answerable),
        ),
    )


def _session_table(name: str, title: str, outcomes: dict[str, list[tuple[Outcome, bool]]]) -> Table:
    columns = (*COLUMNS, "multi-hop all@5")
    rows = []
    for label, measured in outcomes.items():
        cells = [
            share_of((outcome[place], unseen) for outcome, unseen in measured)
            for place in range(1, len(COLUMNS) + 1)
        ]
        multi_hop = [row for row in measured if row[0].category == MULTI_HOP]
        cells.append(share_of((row.all_sessions_at_5, unseen) for row, unseen in multi_hop))
        rows.append(Row(label, tuple(cells), "ours" if label == OURS else "baseline"))
    count = len(outcomes[OURS])
    return Table(f"LoCoMo, {title} ({count:,})", columns, (*rows, *reported_rows(name, columns)))


# --- turns in a bundle of 1,000 tokens


def _selectors() -> dict[str, ContextSelector]:
    selectors = {"llm-common, bundle, words only": ContextSelector()}
    if vectors := installed_vectors():
        strategies = {"measured": MeasuredStrategy(embedder=vectors)}
        selectors["llm-common, bundle, words and static vectors"] = ContextSelector(
            strategies=strategies
        )
    return selectors


def bundles(inputs: Inputs, limit: int | None) -> Section:
    """Measure which turns are in a bundle."""
    counter = ExactCounter()
    selectors = _selectors()
    by_order = by_strategy(MeasuredStrategy())
    shares: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for name, talk in _talks(inputs):
        pool = as_talk(talk)
        sizes = {turn.id: counter.count(turn.content) for turn in pool.session_log}
        baselines = _baselines([Turn(turn.id, turn.content) for turn in pool.session_log])
        for question in [*questions_of(talk)][:limit]:
            gold = sorted(question.gold & sizes.keys())
            if not gold:
                continue
            for label, selector in selectors.items():
                share = _share_in_bundle(selector, question.text, pool, gold, counter)
                shares[label].append((share, _is_unseen(name)))
            orders = {"our ranking, whole turns without the packing": by_order(question.text, pool)}
            orders |= {label: rank(question.text) for label, rank in baselines.items()}
            for label, order in orders.items():
                shares[label].append((share_in_budget(order, sizes, gold), _is_unseen(name)))
    rows = []
    for label, values in shares.items():
        cells: tuple[Share, ...] = (share_of(values),)
        rows.append(Row(label, cells, "ours" if label in selectors else "baseline"))
    count = len(next(iter(shares.values())))
    return Section(
        title="Long conversations: the turns within 1,000 tokens",
        about=ABOUT_BUNDLES,
        tables=(Table(f"LoCoMo ({count:,} questions)", ("turns shown",), tuple(rows)),),
    )


def _share_in_bundle(
    selector: ContextSelector,
    query: str,
    pool: DataPoolSnapshot,
    gold: Sequence[str],
    counter: ExactCounter,
) -> float:
    request = ContextSelectionRequest(
        intent=classify_intent(query),
        token_budget=BUDGET_TOKENS,
        counter=counter,
        now=max(turn.timestamp for turn in pool.session_log),
    )
    return share_in_bundle(asyncio.run(selector.select(request, pool)), pool, gold)


ABOUT_SESSIONS: Final = """\
Ten talks of LoCoMo with 369 to 689 turns. Each turn is stored with the date of its session, its
speaker and the caption of its image, and each question with evidence is asked as it is. "any" and
"all" say whether one or all sessions with evidence are among the first distinct sessions of the
hits, "turns R@10" which share of the turns with evidence is among the first ten hits. Multi-hop
questions have evidence in several sessions. No model reads the hits, so this is not the accuracy of
answers. Some 6 % of the answer key is reported to be wrong.

The talks 26, 41, 43, 47 and 49 were tuned on. In parentheses are the questions of the other five.
The figures of others are as they report them, on all ten talks. Engram retrieves chunks of some six
turns, and counts a chunk with evidence. LoCoMo's licence is CC BY-NC, so nothing of it is shown."""

ABOUT_BUNDLES: Final = f"""\
The same questions. Each cell is the share of the turns with evidence that a prompt of
{BUDGET_TOKENS:,} tokens shows. The bundle is the text that a model would get, with its headings and
fences within the budget, and a turn that is cut counts by its characters. The other rows take whole
turns in their order and skip those that no longer fit. Only the bare turns count against their
budget, which favours them. The same five talks
were tuned on. Others do not report this measure."""
