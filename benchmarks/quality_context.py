"""How much of what a question needs is chosen without a model: our strategies beside the baselines, on every set.

Reads `turns/`, `talks/` and `pointers/` in the folder that LLM_COMMON_EVAL_DATA names.

Turns, Recall@1000 tokens: turns are taken in the order of their scores; one that does not fit into
what is left of 1,000 tokens (o200k_base, exact) is passed over; the mean share of the wanted turns
that are in. Turns are whole: no passages. Turns in real bundles: the same share in the bundle that
`ContextSelector.select` gives within 1,000 tokens, headings and fences included, beside the order
of the default strategy; a turn that is cut counts by the share of its characters that is shown. The
bundles of several budgets are compared too: how many items a larger one shows less of. Pointers,
Recall@6: the share of the wanted outputs, or of their groups, among the six best; questions with
more than six candidates, and the assistant's last message where a set has it. In the `mix` sets the
wanted outputs are the newest by construction, which flatters recency.

A query belongs to the half `tune` when the SHA-256 of its id is an even number, else to the half
`check`. (By its first digit all queries of these sets are in one half: the sets themselves were
divided so.) Of a talk every fourth question counts, by
its place. Every strategy scores the same pool through the same method, with its one default
configuration for all sets.
"""

import argparse
import asyncio
import gzip
import hashlib
import json
import os
import re
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from llm_common.agents.context_pointers import ContextPointer, deterministic_summary
from llm_common.context import (
    ContextBundle,
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    MeasuredStrategy,
    Scores,
    TurnEntry,
    classify_intent,
)
from llm_common.context.spec_scoring import SpecStrategy
from llm_common.core import ExactCounter
from llm_common.errors import ConfigError
from llm_common.pointers.pointer import describe_result
from llm_common.ranking import StaticVectors
from llm_common.ranking.lexical import STOP_WORDS, query_terms, split_identifiers

BUDGET_TOKENS = 1_000
GAPS = re.compile(r"\n?\[… [\d,]+ characters left out …\]\n?")
GROWING_TOKENS = (250, 500, 1_000, 2_000, 4_000)
PICKED = 6
TALK_STEP = 4  # every fourth question of a talk: there are a thousand
BUNDLE_COLUMNS = ("order", "bundle", "budget used", "shown less")
LAST_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)

Items = Sequence[tuple[str, str]]  # id and text, oldest first
Baseline = Callable[[str, Items], list[str]]
Order = Callable[[str, DataPoolSnapshot], list[str]]
TurnSet = tuple[dict[str, DataPoolSnapshot], list[dict[str, Any]]]


def last(_: str, items: Items) -> list[str]:
    return [item_id for item_id, _ in reversed(items)]


def keyword_overlap(query: str, items: Items) -> list[str]:
    wanted = _keywords(query)
    return _best_then_newest(
        {item_id: len(wanted & _keywords(text)) for item_id, text in items}, items
    )


def stemmed_bm25(query: str, items: Items) -> list[str]:
    words = " OR ".join(f'"{term}"' for term in query_terms(query))
    found = _index(tuple(items)).execute(
        "SELECT id, -bm25(texts) FROM texts WHERE texts MATCH ?", (words or '""',)
    )
    return _best_then_newest(dict(found), items)


def by_strategy(strategy: MeasuredStrategy | SpecStrategy) -> Order:
    def order(query: str, pool: DataPoolSnapshot) -> list[str]:
        request = ContextSelectionRequest(intent=classify_intent(query), token_budget=BUDGET_TOKENS)
        # asked right after the last turn
        now = max((turn.timestamp for turn in pool.session_log), default=LAST_MOMENT)
        scores: Scores = strategy.score(pool, request, now=now)
        return [item_id for _, item_id in sorted(scores, key=lambda key: (-scores[key].value, key))]

    return order


def by_baseline(baseline: Baseline) -> Order:
    def order(query: str, pool: DataPoolSnapshot) -> list[str]:
        turns = [(turn.id, turn.content) for turn in pool.session_log]
        outputs = [(each.pointer_id, f"{each.summary} {each.digest}") for each in pool.tool_outputs]
        return baseline(query, outputs or turns)

    return order


def orders() -> dict[str, Order]:
    methods = {"last N": by_baseline(last), "overlap": by_baseline(keyword_overlap)}
    methods |= {"BM25": by_baseline(stemmed_bm25), "spec": by_strategy(SpecStrategy())}
    methods |= {"measured": by_strategy(MeasuredStrategy())}
    try:
        methods["+ vectors"] = by_strategy(MeasuredStrategy(embedder=StaticVectors()))
    except ConfigError as error:
        print(error, file=sys.stderr)
    return methods


def _keywords(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w{3,}", text.lower())) - STOP_WORDS


def _best_then_newest(scores: dict[str, float], items: Items) -> list[str]:
    return sorted(last("", items), key=lambda item_id: -scores.get(item_id, 0))


@cache
def _index(items: Items) -> sqlite3.Connection:
    index = sqlite3.connect(":memory:")
    index.execute(
        "CREATE VIRTUAL TABLE texts USING fts5(id UNINDEXED, words, tokenize = 'porter unicode61')"
    )
    index.executemany(
        "INSERT INTO texts VALUES (?, ?)",
        ((item_id, split_identifiers(text)) for item_id, text in items),
    )
    return index


def read(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        yield from map(json.loads, lines)


def half_of(name: str) -> str:
    return "tune" if hashlib.sha256(name.encode()).digest()[-1] % 2 == 0 else "check"


def read_half(path: Path, half: str) -> list[dict[str, Any]]:
    """Return the queries of a half (`tune` or `check`, by a hash of their ids) or of `all`."""
    return [row for row in read(path) if half in ("all", half_of(row["id"]))]


def turns_of(path: Path, half: str) -> TurnSet:
    """Return the pools of a set by the id of the conversation, and its queries of a half."""
    if path.is_dir():
        conversations = read(path / "conversations.jsonl")
        pools = {row["conv_id"]: as_turns(row["turns"]) for row in conversations}
        return pools, read_half(path / "queries.jsonl", half)
    pools, rows = {}, []
    for talk in json.loads(path.read_text(encoding="utf-8")):
        conv_id = talk["sample_id"]
        pools[conv_id] = as_talk(talk)
        ids = {turn.id for turn in pools[conv_id].session_log}
        for number, question in enumerate(talk["qa"]):
            gold = sorted(ids & set(re.findall(r"D\d+:\d+", " ".join(question["evidence"]))))
            if gold and half in ("all", half_of(f"{conv_id} {number}")):
                rows.append({"conv_id": conv_id, "query": question["question"], "gold": gold})
    return pools, rows[::TALK_STEP]


def as_talk(talk: dict[str, Any]) -> DataPoolSnapshot:
    """Return the turns of a LoCoMo talk, one a minute from the beginning of each session."""
    turns = []
    for name in (key for key, value in talk.items() if re.fullmatch(r"session_\d+", key) and value):
        moment = f"{talk[f'{name}_date_time']} +0000"
        began = datetime.strptime(moment, "%I:%M %p on %d %B, %Y %z")
        for minutes, row in enumerate(talk[name]):
            caption = f" [image: {row['blip_caption']}]" if row.get("blip_caption") else ""
            turns.append(
                TurnEntry(
                    id=row["dia_id"],
                    timestamp=began + timedelta(minutes=minutes),
                    role=row["speaker"],
                    content=row.get("text", "") + caption,
                )
            )
    return DataPoolSnapshot(session_log=tuple(turns))


def turn_sets(data: Path) -> list[Path]:
    """Return the folders of `turns/`, and the files of `talks/`."""
    folders = sorted(path for path in (data / "turns").iterdir() if path.is_dir())
    return [*folders, *sorted((data / "talks").glob("*.json"))]


def turns_in_bundles(path: Path, half: str) -> tuple[int, dict[str, float]]:
    """Return the number of queries, and the mean recall of the order alone and of bundles.

    Then what is shown less.
    """
    pools, rows = turns_of(path, half)
    by_order = turns_recall(path, {"order": by_strategy(MeasuredStrategy())}, half)[1]["order"]
    selector, counter = ContextSelector(), ExactCounter()
    recalls, used, shown_less = [], [], 0
    for row in rows:
        pool = pools[row["conv_id"]]
        before: dict[str, int] = {}
        for budget in GROWING_TOKENS:
            request = ContextSelectionRequest(
                intent=classify_intent(row["query"]),
                token_budget=budget,
                counter=counter,
                now=max(turn.timestamp for turn in pool.session_log),
            )
            bundle = asyncio.run(selector.select(request, pool))
            tokens = {account.id: account.tokens for account in bundle.kept}
            shown_less += sum(tokens.get(turn_id, 0) < size for turn_id, size in before.items())
            before = tokens
            if budget == BUDGET_TOKENS:
                recalls.append(share_in_bundle(bundle, pool, row["gold"]))
                used.append(bundle.metadata.budget_utilization)
    return len(rows), {
        "order": by_order,
        "bundle": statistics.fmean(recalls),
        "budget used": statistics.fmean(used),
        "shown less": shown_less,
    }


def share_in_bundle(bundle: ContextBundle, pool: DataPoolSnapshot, gold: Sequence[str]) -> float:
    """Return the share of the wanted turns that a bundle shows, cut ones by their characters."""
    whole = {turn.id: len(turn.content) for turn in pool.session_log}
    shown = {turn.id: len(GAPS.sub("", turn.content)) for turn in bundle.turns}
    return statistics.fmean(min(shown.get(id_, 0) / max(whole[id_], 1), 1.0) for id_ in gold)


def share_in_budget(order: Sequence[str], sizes: Mapping[str, int], gold: Sequence[str]) -> float:
    """Return the share of the wanted turns among the whole ones that fit, best first."""
    left, shown = BUDGET_TOKENS, set()
    for turn_id in order:
        if (size := sizes[turn_id]) <= left:
            left -= size
            shown.add(turn_id)
    return len(shown.intersection(gold)) / len(gold)


def turns_recall(
    path: Path, methods: dict[str, Order], half: str
) -> tuple[int, dict[str, float], dict[str, float]]:
    pools, rows = turns_of(path, half)
    counter = ExactCounter()
    sizes = {
        conv_id: {turn.id: counter.count(turn.content) for turn in pool.session_log}
        for conv_id, pool in pools.items()
    }

    def recall(row: dict[str, Any], order: list[str]) -> float:
        return share_in_budget(order, sizes[row["conv_id"]], row["gold"])

    return measured([(row, row["query"], pools[row["conv_id"]]) for row in rows], methods, recall)


def pointers_recall(
    path: Path, methods: dict[str, Order], half: str
) -> tuple[int, dict[str, float], dict[str, float]]:
    pools = {
        row["pool_id"]: as_outputs(row)
        for each in path.parent.glob("*_pools.jsonl*")
        for row in read(each)
    }
    cases = []
    for row in read_half(path, half):
        pool = pools[row["pool_id"]] if "pool_id" in row else as_outputs(row)
        if len(pool.tool_outputs) > PICKED:
            cases.append((row, "\n".join(filter(None, [row["query"], row.get("context")])), pool))

    def recall(row: dict[str, Any], order: list[str]) -> float:
        groups = row.get("gold_groups") or [[wanted] for wanted in row["gold"]]
        return statistics.fmean(not set(group).isdisjoint(order[:PICKED]) for group in groups)

    return measured(cases, methods, recall)


def measured(
    cases: list[tuple[dict[str, Any], str, DataPoolSnapshot]],
    methods: dict[str, Order],
    recall: Callable[[dict[str, Any], list[str]], float],
) -> tuple[int, dict[str, float], dict[str, float]]:
    """Return the number of cases, and the mean recall and milliseconds of each method."""
    recalls, spent_ms = {}, {}
    for name, method in methods.items():
        started = time.perf_counter()
        results = [method(query, pool) for _, query, pool in cases]
        spent_ms[name] = 1_000 * (time.perf_counter() - started) / len(cases)
        recalls[name] = statistics.fmean(
            recall(row, order) for (row, *_), order in zip(cases, results, strict=True)
        )
    return len(cases), recalls, spent_ms


def as_turns(rows: list[dict[str, Any]]) -> DataPoolSnapshot:
    turns = [
        TurnEntry(
            id=row["id"], timestamp=row["timestamp"], role=row["speaker"], content=row["text"]
        )
        for row in rows
    ]
    return DataPoolSnapshot(session_log=tuple(turns))


def as_outputs(row: dict[str, Any]) -> DataPoolSnapshot:
    pointers = [
        as_pointer(number, each)
        for number, each in enumerate(row["pointers"], start=-len(row["pointers"]))
    ]
    return DataPoolSnapshot(tool_outputs=tuple(pointers))


def as_pointer(minutes: int, row: dict[str, Any]) -> ContextPointer:
    result = row["result"]
    try:
        value = json.loads(result)
    except ValueError:
        value = result
    return ContextPointer(
        pointer_id=row["pointer_id"],
        query_id="q",
        tool_name=row["tool_name"],
        args=row["args"],
        created_at=(LAST_MOMENT + timedelta(minutes=minutes)).isoformat(timespec="microseconds"),
        summary=deterministic_summary(tool_name=row["tool_name"], args=row["args"]),
        result_path="",
        digest=describe_result(value, size_bytes=len(result.encode())),
    )


def print_row(label: str, values: dict[str, float], decimals: int = 3) -> None:
    print(
        f"{label:26}" + "".join(f"{value:11.{decimals}f}" for value in values.values()), flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--half", choices=("tune", "check", "all"), default="check", help="default check"
    )
    parser.add_argument("--only", choices=("choosing", "bundles"), help="default both")
    options = parser.parse_args()
    data = os.environ.get("LLM_COMMON_EVAL_DATA")
    if not data:
        sys.exit("Set LLM_COMMON_EVAL_DATA to the folder that holds turns/ and pointers/")
    if options.only != "choosing":
        print(f"{'turns at 1,000 tokens':26}" + "".join(f"{name:>11}" for name in BUNDLE_COLUMNS))
        for path in turn_sets(Path(data)):
            cases, found = turns_in_bundles(path, options.half)
            print_row(f"{path.name} ({cases})", found)
    if options.only != "bundles":
        print_choosing(Path(data), options.half)


def print_choosing(data: Path, half: str) -> None:
    methods = orders()
    slowest: dict[str, float] = dict.fromkeys(methods, 0.0)
    for title, paths, measure in (
        (
            "Recall@1000 tokens",
            turn_sets(data),
            turns_recall,
        ),
        ("Recall@6", sorted((data / "pointers").glob("*.jsonl*")), pointers_recall),
    ):
        print(f"{title:26}" + "".join(f"{name:>11}" for name in methods))
        table = []
        for path in paths:
            if "_pools" not in path.name:
                cases, recalls, spent_ms = measure(path, methods, half)
                print_row(f"{path.name.split('.')[0]} ({cases})", recalls)
                table.append(recalls)
                slowest = {name: max(slowest[name], spent_ms[name]) for name in methods}
        print_row("mean", {name: statistics.fmean(row[name] for row in table) for name in methods})
    print_row("ms a case, slowest set", slowest, decimals=1)


if __name__ == "__main__":
    main()
