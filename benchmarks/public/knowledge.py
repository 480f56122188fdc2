"""tau-Knowledge: whether the documents that a case needs are found, and are in a prompt."""

import asyncio
import hashlib
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.public.bm25 import BM25, words
from benchmarks.public.inputs import Inputs
from benchmarks.public.tables import Row, Section, Table, share_of
from benchmarks.quality_context import stemmed_bm25
from benchmarks.talks import Turn
from llm_common.core import DefaultCounter
from llm_common.folders import pack_folder
from llm_common.memory import Event, MemoryFilters, SqliteMemory

__all__ = ["Case", "knowledge"]

BUDGET: Final = 8_000
FIRST: Final = (10, 20)
HITS: Final = 200
SHOWN: Final = f"shown, {BUDGET:,}"
COLUMNS: Final = (*(f"R@{count}" for count in FIRST), SHOWN)
PACK: Final = "llm-common, pack_folder"
MEMORY: Final = "llm-common, SqliteMemory, whole documents"
COUNTER: Final = DefaultCounter()

Documents = Mapping[str, str]
"""The texts of documents by id."""


@dataclass(frozen=True)
class Case:
    """What a simulated customer wants, and the ids of the documents that the case needs."""

    name: str
    text: str
    needed: frozenset[str]

    @property
    def is_unseen(self) -> bool:
        """Whether it was held back from tuning."""
        return hashlib.sha256(self.name.encode()).hexdigest()[0] >= "8"


@dataclass(frozen=True)
class Found:
    """The ids of the found documents, best first, and of those in the prompt."""

    ranked: Sequence[str]
    shown: frozenset[str]


def knowledge(inputs: Inputs, limit: int | None) -> Section:
    """Measure which of the documents that a case needs are found and shown."""
    documents: dict[str, str] = {}
    for data in inputs.files("knowledge_documents").values():
        document = json.loads(data)
        documents[document["id"]] = f"{document['title']}\n{document['content']}"
    cases = []
    for data in inputs.files("knowledge_tasks").values():
        task = json.loads(data)
        text = task["user_scenario"]["instructions"]
        cases.append(Case(task["id"], text, frozenset(task["required_documents"])))
    cases = cases[:limit]
    with tempfile.TemporaryDirectory() as work:
        by_method = {
            PACK: _by_pack(documents, cases, Path(work)),
            MEMORY: asyncio.run(_by_memory(documents, cases, Path(work) / "memory.sqlite")),
            "FTS5 of SQLite, Porter stems": _by_fts5(documents, cases),
            "BM25": _by_bm25(documents, cases),
        }
    rows = []
    for label, answers in by_method.items():
        rows.append(_row(label, cases, answers))
    unseen = sum(case.is_unseen for case in cases)
    title = f"tau-Knowledge ({len(cases)} cases, {unseen} of them held back)"
    table = Table(title, COLUMNS, tuple(rows))
    return Section("Documents: those that a customer's case needs", ABOUT, (table,))


def _row(label: str, cases: Sequence[Case], answers: Sequence[Found]) -> Row:
    values: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
    for case, found in zip(cases, answers, strict=True):
        for count in FIRST:
            share = len(case.needed & {*found.ranked[:count]}) / len(case.needed)
            values[f"R@{count}"].append((share, case.is_unseen))
        share = len(case.needed & found.shown) / len(case.needed)
        values[SHOWN].append((share, case.is_unseen))
    cells = tuple(share_of(values[column]) for column in COLUMNS)
    return Row(label, cells, "ours" if label in (PACK, MEMORY) else "baseline")


def _by_pack(documents: Documents, cases: Sequence[Case], work: Path) -> list[Found]:
    folder = work / "documents"
    folder.mkdir()
    # Ids have characters that not every system allows in the name of a file.
    ids = {re.sub(r"\W+", "-", name) + ".md": name for name in documents}
    for path, name in ids.items():
        (folder / path).write_text(f"# {documents[name]}", encoding="utf-8")
    answers = []
    for case in cases:
        pack = pack_folder(case.text, folder, budget_tokens=BUDGET, cache_dir=work / "indexes")
        ranked = [ids[file.path] for file in (*pack.files, *pack.dropped)]
        shown = frozenset(ids[block.id] for block in pack.bundle.blocks)
        answers.append(Found(ranked, shown))
    return answers


async def _by_memory(documents: Documents, cases: Sequence[Case], file: Path) -> list[Found]:
    answers = []
    filters = MemoryFilters(session_id="knowledge")
    async with SqliteMemory(file) as memory:
        for name, text in documents.items():
            await memory.append_event("knowledge", Event(text=text, metadata={"id": name}))
        for case in cases:
            hits = await memory.retrieve(case.text, HITS, filters)
            ranked = [str(hit.event.metadata["id"]) for hit in hits]
            answers.append(_whole_documents(documents, ranked))
    return answers


def _by_fts5(documents: Documents, cases: Sequence[Case]) -> list[Found]:
    turns = tuple(Turn(name, text) for name, text in documents.items())
    return [_whole_documents(documents, stemmed_bm25(case.text, turns)) for case in cases]


def _by_bm25(documents: Documents, cases: Sequence[Case]) -> list[Found]:
    ids = [*documents]
    index = BM25.of_texts(documents.values())
    answers = []
    for case in cases:
        ranked = [ids[place] for place in index.ranked(words(case.text))]
        answers.append(_whole_documents(documents, ranked))
    return answers


def _whole_documents(documents: Documents, ranked: Sequence[str]) -> Found:
    """Return what is shown if documents are taken in their order, without those too large."""
    shown = set()
    left = BUDGET
    for name in ranked:
        tokens = COUNTER.count(documents[name])
        if tokens <= left:
            shown.add(name)
            left -= tokens
    return Found(ranked, frozenset(shown))


ABOUT: Final = """\
97 cases of a bank's customer service with 698 documents (tau-Knowledge of sierra-research/tau2-bench).
A case needs some ten documents of several steps. The whole instructions of the simulated customer
are one question. "R@k" is the share of the needed documents among the first k, and "shown" their
share in a prompt of 8,000 tokens. A pack shows passages of documents, and counts if it shows any of
one. The other rows take whole documents in their order, without those that no longer fit. Only
these documents count against their budget, which favours them. No model reads the prompt, so this is
not the share of cases that would be solved. We know of no other figures without a model.

Cases whose SHA-256 of the name begins with a hexadecimal digit below 8 are one half, and those in
parentheses the other. The rule that searches for each sentence of a long question by itself was
chosen on all cases, so no figure of `pack_folder` here is blind. The other rows were not tuned on
them."""
