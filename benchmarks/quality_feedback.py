"""What feedback is worth: Recall@6 of stored outputs with the weights that verdicts on other queries have led to.

Reads `pointers/` in the folder that LLM_COMMON_EVAL_DATA names. The queries of a set are divided in
two, ten times. In the first half the six best outputs of each get a verdict, right or wrong, after
which the weights are as `AdaptiveWeights` would have them; the second half is ranked by the
strategy alone and with the weights. The table has the means of the ten, and the worst difference of
one.
"""

import math
import os
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality_context import LAST_MOMENT, PICKED, as_outputs, print_row, read
from llm_common.context import (
    ContextBundle,
    ContextSelectionRequest,
    IntentType,
    ItemAccount,
    classify_intent,
)
from llm_common.context.bundle import BundleMetadata
from llm_common.context.feedback import bounded, pushes
from llm_common.context.scoring import STRATEGIES

DIVISIONS = 10
FIGURES = BundleMetadata(0, 1, 0.0, "", 0, 0, 0, 0, IntentType.CONVERSATIONAL, "")

Weights = Mapping[str, float]


@dataclass(frozen=True)
class Case:
    groups: list[list[str]]
    parts: dict[str, Mapping[str, float]]

    def order(self, weights: Weights) -> list[str]:
        values = {key: sum(self.weighted(key, weights).values()) for key in self.parts}
        return sorted(values, key=lambda key: (-values[key], key))

    def weighted(self, key: str, weights: Weights) -> dict[str, float]:
        return {name: value * weights.get(name, 1.0) for name, value in self.parts[key].items()}

    def recall(self, weights: Weights) -> float:
        found = self.order(weights)[:PICKED]
        return statistics.fmean(not set(group).isdisjoint(found) for group in self.groups)

    def bundle(self, weights: Weights) -> ContextBundle:
        accounts = [
            ItemAccount(
                "output", key, "ranked", "share", "whole", 1, 0.0, self.weighted(key, weights)
            )
            for key in self.order(weights)
        ]
        kept, dropped = tuple(accounts[:PICKED]), tuple(accounts[PICKED:])
        return ContextBundle((), (), (), None, (), (), "", kept, dropped, FIGURES)


def cases(path: Path, strategy: str) -> Iterator[Case]:
    pools = {
        row["pool_id"]: as_outputs(row)
        for each in path.parent.glob("*_pools.jsonl*")
        for row in read(each)
    }
    for row in read(path):
        pool = pools[row["pool_id"]] if "pool_id" in row else as_outputs(row)
        if len(pool.tool_outputs) > PICKED:
            query = "\n".join(filter(None, [row["query"], row.get("context")]))
            request = ContextSelectionRequest(intent=classify_intent(query), token_budget=1_000)
            scores = STRATEGIES[strategy].score(pool, request, now=LAST_MOMENT)
            groups = row.get("gold_groups") or [[wanted] for wanted in row["gold"]]
            yield Case(groups, {key: score.parts for (_, key), score in scores.items()})


def learned(training: Sequence[Case]) -> Weights:
    logarithms: dict[str, float] = {}
    for case in training:
        bundle = case.bundle({name: math.exp(value) for name, value in logarithms.items()})
        wanted = {key for group in case.groups for key in group}
        for account in bundle.kept:
            for name, move in pushes(bundle, account, helpful=account.id in wanted).items():
                logarithms[name] = bounded(logarithms.get(name, 0.0) + move)
    return {name: math.exp(value) for name, value in logarithms.items()}


def compared(found: list[Case]) -> dict[str, float]:
    before, after = [], []
    for seed in range(DIVISIONS):
        random.Random(seed).shuffle(found)
        training, test = found[: len(found) // 2], found[len(found) // 2 :]
        weights = learned(training)
        before.append(statistics.fmean(case.recall({}) for case in test))
        after.append(statistics.fmean(case.recall(weights) for case in test))
    worst = min(later - earlier for later, earlier in zip(after, before, strict=True))
    return {"alone": statistics.fmean(before), "learned": statistics.fmean(after), "worst": worst}


def main() -> None:
    data = os.environ.get("LLM_COMMON_EVAL_DATA")
    if not data:
        sys.exit("Set LLM_COMMON_EVAL_DATA to the folder that holds pointers/")
    for strategy in STRATEGIES:
        print(
            f"{'Recall@6, ' + strategy:26}"
            + "".join(f"{name:>11}" for name in ("alone", "learned", "worst"))
        )
        for path in sorted((Path(data) / "pointers").glob("*.jsonl*")):
            if "_pools" not in path.name and (found := list(cases(path, strategy))):
                print_row(f"{path.name.split('.')[0]} ({len(found)})", compared(found))


if __name__ == "__main__":
    main()
