"""Does what the user asked for once stay in view, word for word, when the conversation is folded?

The set: 244 rules, limits, wishes and standing facts in twelve languages (`binding_rules.toml`),
written for this benchmark. Each is said once, in one of four places: alone in the first turn,
inside a longer first message, in a middle turn, or there as the correction of an earlier rule. The
rest is talk about weeks and stock with outputs of tools, or what users said to an agent
(`turns/bfcl_memory` in `LLM_COMMON_EVAL_DATA`). A rule is held if its words stand in the prompt.

The finder was written with the rules at even places of each list, `tune`. The others are `check`.

False rules are counted in the talks of `turns/bfcl_memory` and `turns/qmsum`, each folded at 8,000
tokens with all turns as the user's: people who talk with each other give an agent no rules.

    python benchmarks/quality_rules.py                      # 20, 200 and 1,000 turns
    python benchmarks/quality_rules.py 20 --limits 2000
"""

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llm_common.agents import InMemoryContextPointerStore
from llm_common.history import FoldPolicy, Message, fold

DATA: Final = os.environ.get("LLM_COMMON_EVAL_DATA")
RULES: Final = Path(__file__).with_name("binding_rules.toml")
PLACES: Final = ("alone", "inside", "middle", "correction")
TOPICS: Final = ["stock", "rail freight", "the tender", "printing", "the annex", "cables", "rota"]
ASKED: Final = [
    "Check {topic} for week {week} and tell me what changed.",
    "How did {topic} do in week {week}?",
    "Compare {topic} in weeks {week} and {other}.",
    "Show me the three largest items of {topic}, week {week}.",
]
BACKGROUND: Final = (
    "Some background first: the depot moved in spring, and the canteen is on the third floor. ",
    "The team is small and works on two sites, and the new printer is slower than the old one. ",
)
MIN_HELD: Final = 0.95
MAX_FALSE_RULES: Final = 0.2
# Long conversations take up to a second to fold, so every fifth rule is tried there.
MANY_TURNS: Final = 100
EVERY: Final = 5


@dataclass(frozen=True)
class Rule:
    """A rule, an earlier one of its language that it corrects, and the words that say so."""

    language: str
    text: str
    earlier: str
    correction: str
    half: str


def rules() -> Iterator[Rule]:
    """Yield the rules of the file."""
    for language, section in tomllib.loads(RULES.read_text(encoding="utf-8")).items():
        texts = section["rules"]
        for index, text in enumerate(texts):
            half = "check" if index % 2 else "tune"
            yield Rule(language, text, texts[index - 1], section["correction"], half)


def office_turn(turn: int, rng: random.Random) -> list[dict[str, Any]]:
    """Return a question, a call with its output, and an answer."""
    asked = rng.choice(ASKED).format(
        topic=rng.choice(TOPICS), week=rng.randrange(1, 53), other=rng.randrange(1, 53)
    )
    call = {"name": "lookup", "arguments": json.dumps({"week": turn})}
    records = []
    for _ in range(20):
        item = {
            "id": rng.randrange(10**6),
            "amount": rng.randrange(9_999),
            "name": rng.choice(TOPICS),
        }
        records.append(item)
    calls = [{"id": f"c{turn}", "type": "function", "function": call}]
    return [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"c{turn}", "content": json.dumps(records)},
        {"role": "assistant", "content": f"The largest amount is {rng.randrange(9_999)}."},
    ]


def talk_turns(folder: Path) -> list[str]:
    """Return what users said to an agent."""
    texts: list[str] = []
    for line in (folder / "turns" / "bfcl_memory" / "conversations.jsonl").open(encoding="utf-8"):
        texts += [turn["text"] for turn in json.loads(line)["turns"]]
    return texts


def conversation(
    rule: Rule, place: str, turns: int, rng: random.Random, talk: Sequence[str]
) -> list[dict[str, Any]]:
    """Return a conversation in which the user states a rule once."""
    middle = turns // 2
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are the assistant of a small company."}
    ]
    for turn in range(turns):
        if talk:
            exchange: list[dict[str, Any]] = [
                {"role": "user", "content": rng.choice(talk)},
                {"role": "assistant", "content": "Thanks, I have noted that."},
            ]
        else:
            exchange = office_turn(turn, rng)
        said = exchange[0]["content"]
        if turn == 0 and place == "alone":
            messages.append({"role": "user", "content": rule.text})
            messages.append({"role": "assistant", "content": "Understood."})
        elif turn == 0 and place == "inside":
            said = f"{BACKGROUND[0] * 4}{rule.text} {BACKGROUND[1] * 4}{said}"
        elif turn == 0 and place == "correction":
            said = f"{rule.earlier} {said}"
        elif turn == middle and place == "middle":
            said = f"{said} {rule.text}"
        elif turn == middle and place == "correction":
            said = f"{rule.correction} {rule.text} {said}"
        messages += [{**exchange[0], "content": said}, *exchange[1:]]
    messages.append({"role": "user", "content": "Go on with the next week."})
    return messages


async def prompt_of(
    messages: Sequence[Message], limit: int, pinned: Sequence[str] = ()
) -> list[str]:
    """Return the texts of the folded prompt."""
    folded = await fold(
        messages,
        store=InMemoryContextPointerStore(),
        session_id="rules",
        policy=FoldPolicy(max_tokens=limit),
        pinned=pinned,
    )
    return [str(dict(message).get("content")) for message in folded.messages]


async def measure(turns: int, limit: int, talk: Sequence[str]) -> dict[str, float]:
    """Return the share of rules in view by half and place, and of pinned ones."""
    held: defaultdict[str, list[bool]] = defaultdict(list)
    for number, rule in enumerate(rules()):
        if turns >= MANY_TURNS and number % EVERY:
            continue
        for place in PLACES:
            messages = conversation(rule, place, turns, random.Random(number), talk)
            is_held = any(rule.text in text for text in await prompt_of(messages, limit))
            for key in (rule.half, place, "all"):
                held[key].append(is_held)
            if not is_held and options.misses:
                print(f"    {rule.language} {place}: {rule.text}")
        pinned = await prompt_of(messages, limit, [rule.text])
        held["pinned"].append(any(rule.text in text for text in pinned))
    return {key: sum(values) / len(values) for key, values in held.items()}


async def false_rules(folder: Path) -> tuple[int, int]:
    """Return how many rules the notes of talks name, and the number of talks."""
    count = talks = 0
    for name in ("bfcl_memory", "qmsum"):
        path = folder / "turns" / name / "conversations.jsonl"
        for line in path.open(encoding="utf-8"):
            talks += 1
            messages = []
            for turn in json.loads(line)["turns"]:
                messages.append({"role": "user", "content": turn["text"]})
            texts = await prompt_of(messages, 8_000)
            for said in re.findall(
                r"^The user said, for this conversation:\n((?:\d+ user: .*\n)+)",
                "\n".join(texts),
                re.MULTILINE,
            ):
                count += said.count("\n")
    return count, talks


async def run() -> None:
    failed = []
    for talk in ([], talk_turns(Path(DATA)) if DATA else []):
        if talk:
            print("among what users told an agent:")
        for turns in options.turns:
            for limit in options.limits:
                shares = await measure(turns, limit, talk)
                text = ", ".join(f"{key} {share:.3f}" for key, share in shares.items())
                print(f"  {turns:,} turns, {limit:,} tokens: {text}", flush=True)
                if not talk and (shares["all"] < MIN_HELD or shares["pinned"] < 1):
                    failed.append((turns, limit))
        if not DATA:
            break
    if DATA:
        count, talks = await false_rules(Path(DATA))
        print(f"{count} false rules in {talks} talks, {count / talks:.2f} a talk")
        if count > MAX_FALSE_RULES * talks:
            failed.append((count, talks))
    if failed:
        sys.exit(f"too few rules in view, or too many false ones: {failed}")


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("turns", type=int, nargs="*", default=[20, 200, 1_000])
parser.add_argument("--limits", type=int, nargs="+", default=[2_000, 8_000])
parser.add_argument("--misses", action="store_true", help="print the rules that are not in view")
options = parser.parse_args()

if __name__ == "__main__":
    asyncio.run(run())
