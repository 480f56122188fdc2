"""Is what the next call needs still in the prompt after folding, and after one search?

The set: `history/airline.tune.json` in `LLM_COMMON_EVAL_DATA`, 100 runs of a tool-calling model
over an airline's service desk (sierra-research/tau-bench, MIT). At each tool call, a needed value
is an argument of four characters or more that an earlier message contains. Only calls count whose
history exceeds the limit, which is counted beside the system message.

Two other ways to shorten a history are measured beside `fold`: the newest messages that fit, and
the same after all outputs but the newest three were cleared.

Each statement of a note is compared with the messages, without code of the library: which messages
a part has, who said a line, which calls followed, how long an output was, whether a value occurs.
As a control, the same is asked of notes with one other number, name or speaker in each such line.

    python benchmarks/quality_provenance.py              # 1,000 and 2,000 tokens
    python benchmarks/quality_provenance.py 1000 --search  # and one search for each missing value
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from llm_common.agents import InMemoryContextPointerStore
from llm_common.core import DefaultCounter
from llm_common.history import FoldPolicy, fold, search_history

DATA: Final = os.environ.get("LLM_COMMON_EVAL_DATA")
COUNTER: Final = DefaultCounter()
MIN_VALUE_CHARS: Final = 4
KEPT_OUTPUTS: Final = 3
NOTE_BEGIN: Final = "Earlier messages are folded away"
# The share of lines of a changed note that must be found false.
MIN_FOUND: Final = 0.95
# What is put in place of a claim of a line, in the control. The first that fits.
CHANGES: Final = (
    (r"^Messages (?=\d)", "Messages 1"),
    (r"\(then called ", "(then called no_"),
    (r"\(no call followed\)$", "(then called it)"),
    (r"(?<=[:;,] )calls (?=\w+(?:$|, calls ))", "calls no_"),
    (r"(?=\d+ characters of output$)", "1"),
    (r"^(\d+) user: ", r"\1 assistant: "),
    (r"^(\d+) assistant: ", r"\1 user: "),
)
# The shares that a change may not lose, by limit.
FLOORS: Final = {1_000: 0.65, 2_000: 0.78}

Messages = list[dict[str, Any]]


def tokens_of(message: dict[str, Any]) -> int:
    return COUNTER.count(json.dumps(message))


def values_of(argument: Any) -> Iterator[str]:
    """Yield the values of an argument that are long enough to be recognised."""
    if isinstance(argument, dict):
        argument = [*argument.values()]
    if isinstance(argument, list):
        for item in argument:
            yield from values_of(item)
    elif len(str(argument)) >= MIN_VALUE_CHARS:
        yield str(argument)


def text_of(messages: Sequence[dict[str, Any]]) -> str:
    contents = [message.get("content") for message in messages]
    return json.dumps(contents, ensure_ascii=False)


def newest_that_fit(messages: Messages, limit: int) -> Messages:
    """Return the newest messages within a limit. Outputs stay with their calls."""
    kept: Messages = []
    used = 0
    end = len(messages)
    while end:
        start = end - 1
        while start and messages[start]["role"] == "tool":
            start -= 1
        used += sum(map(tokens_of, messages[start:end]))
        if used > limit:
            break
        kept = messages[start:end] + kept
        end = start
    return kept


def cleared(messages: Messages, limit: int) -> Messages:
    """Return the newest messages that fit after all outputs but the newest three were cleared."""
    outputs = [index for index, message in enumerate(messages) if message["role"] == "tool"]
    old = {*outputs[:-KEPT_OUTPUTS]}
    shortened: Messages = []
    for index, message in enumerate(messages):
        shortened.append({**message, "content": "[cleared]"} if index in old else message)
    return newest_that_fit(shortened, limit)


def needed_by(message: dict[str, Any], text: str) -> set[str]:
    """Return the values of a message's calls that stand in a text."""
    needed: set[str] = set()
    for call in message["tool_calls"]:
        for value in values_of(json.loads(call["function"]["arguments"])):
            if value in text:
                needed.add(value)
    return needed


async def found_values(values: Sequence[str], store: Any, session_id: str) -> int:
    """Return how many values one search for each finds."""
    count = 0
    for value in values:
        matches = await search_history(value, store=store, session_id=session_id)
        count += any(value in match.text for match in matches)
    return count


def false_lines(note: str, messages: Messages, parts: dict[str, list[int]]) -> Iterator[str]:
    """Yield the lines of a note that are not true of the messages.

    Args:
        note: The note.
        messages: The messages, of which the first has the number 1.
        parts: The numbers of the messages of each stored part, by its id.
    """
    section = ""
    for line in note.split("\n"):
        heading = re.fullmatch(r"Messages ([\d, -]+), [\d,]+ tokens, id (\w+)", line)
        spoken = re.fullmatch(r"(\d+) (\w+): (.*)", line)
        is_true = True
        if heading:
            numbers: list[int] = []
            for span in heading[1].split(", "):
                first, _, last = span.partition("-")
                numbers += range(int(first), int(last or first) + 1)
            is_true = parts.get(heading[2]) == numbers
        elif spoken:
            number = int(spoken[1])
            is_true = 0 < number <= len(messages) and messages[number - 1]["role"] == spoken[2]
            is_true = is_true and is_said(spoken[3], messages, number, section)
        elif line.startswith("Values: "):
            text = text_of(messages) + json.dumps(messages, ensure_ascii=False)
            values = re.split(r"[,;] ", line.removeprefix("Values: "))
            is_true = all(value.rpartition(" ")[2] in text for value in values)
        elif line.endswith(":"):
            section = line
        if not is_true:
            yield line


def is_said(claim: str, messages: Messages, number: int, section: str) -> bool:
    """Return whether a line of a note is true of the message with its number."""
    message = messages[number - 1]
    text = " ".join((message.get("content") or "").split())
    calls = called_by(message)
    if section == "Done:":
        said, _, then = claim.rpartition(" (")
        names: dict[str, None] = {}
        for later in messages[number:]:
            if later["role"] == "user":
                break
            names |= dict.fromkeys(called_by(later))
        expected = f"then called {', '.join(names)})" if names else "no call followed)"
        return said.partition("…")[0] in text and then == expected
    if section.startswith("Data"):
        if message["role"] == "tool":
            return claim == f"{len(message['content']):,} characters of output"
        if calls:
            return claim.endswith(", ".join(f"calls {name}" for name in calls))
    return claim.partition("…")[0].strip() in text


def called_by(message: dict[str, Any]) -> list[str]:
    return [call["function"]["name"] for call in message.get("tool_calls") or ()]


def changed(note: str) -> str:
    """Return a note that is false in each line with a number: in one claim of it."""
    lines = []
    for line in note.split("\n"):
        for pattern, other in CHANGES:
            false_line, count = re.subn(pattern, other, line, count=1)
            if count:
                break
        lines.append(false_line)
    return "\n".join(lines)


async def measure_notes(runs: Sequence[dict[str, Any]], limit: int) -> bool:
    """Print how many lines of notes are false, and return whether none is."""
    count = false = changed_count = found = 0
    for run in runs:
        messages = run["messages"][1:]
        store = InMemoryContextPointerStore()
        policy = FoldPolicy(max_tokens=limit)
        folded = await fold(messages, store=store, session_id="r", policy=policy)
        parts = {}
        for part in folded.parts:
            if part.kind == "messages":
                stored = json.loads(store.load_payload(part.pointer_id, query_id="r")[1])
                parts[part.pointer_id] = [*map(int, stored)]
        note = str(dict(folded.messages[0])["content"])
        if not note.startswith(NOTE_BEGIN):
            continue
        count += note.count("\n")
        for line in false_lines(note, messages, parts):
            print(f"  false: {line}")
            false += 1
        changed_count += len(re.findall(r"^(?:Messages |\d+ \w+: )", note, re.MULTILINE))
        found += len([*false_lines(changed(note), messages, parts)])
    print(f"{limit:,} tokens: {count:,} lines of notes, {false} false")
    print(f"  of {changed_count:,} changed lines {found / changed_count:.3f} are found")
    return not false and found >= MIN_FOUND * changed_count


@dataclass
class Provenance:
    """How many needed values are in each kind of prompt.

    Attributes:
        calls: The number of calls that need a value of their history.
        needed: The number of these values.
        held: How many of them each kind of prompt has.
        sizes: The tokens of each prompt, by its kind.
    """

    calls: int = 0
    needed: int = 0
    held: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    sizes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def share(self, name: str) -> float:
        return self.held[name] / self.needed

    def mean_tokens(self, name: str) -> float:
        return statistics.mean(self.sizes[name])


async def measured(runs: Sequence[dict[str, Any]], limit: int, *, with_search: bool) -> Provenance:
    """Return how many needed values are in each kind of prompt."""
    found = Provenance()
    for number, run in enumerate(runs):
        system, *messages = run["messages"]
        store = InMemoryContextPointerStore()
        policy = FoldPolicy(max_tokens=limit + tokens_of(system))
        for index, message in enumerate(messages):
            before = messages[:index]
            if not message.get("tool_calls") or sum(map(tokens_of, before)) <= limit:
                continue
            needed = needed_by(message, text_of(before))
            if not needed:
                continue
            found.calls += 1
            found.needed += len(needed)
            folded = await fold(
                [system, *before], store=store, session_id=f"r{number}", policy=policy
            )
            prompts = {
                "fold": [dict(sent) for sent in folded.messages[1:]],
                "newest that fit": newest_that_fit(before, limit),
                "all outputs but 3 cleared": cleared(before, limit),
            }
            for name, prompt in prompts.items():
                prompt_text = text_of(prompt)
                found.held[name] += sum(value in prompt_text for value in needed)
                found.sizes[name].append(sum(map(tokens_of, prompt)))
            if with_search:
                prompt_text = text_of(prompts["fold"])
                missing = [value for value in needed if value not in prompt_text]
                searched = await found_values(missing, store, f"r{number}")
                found.held["fold and one search"] += len(needed) - len(missing) + searched
    return found


async def measure(runs: Sequence[dict[str, Any]], limit: int, *, with_search: bool) -> float:
    """Print the share of needed values in each kind of prompt, and return that of `fold`."""
    found = await measured(runs, limit, with_search=with_search)
    print(f"{limit:,} tokens: {found.calls} calls need {found.needed} values")
    for name in found.held:
        size = f"{found.mean_tokens(name):,.0f} tokens" if name in found.sizes else ""
        print(f"  {name:28} {found.share(name):.3f}  {size}")
    return found.share("fold")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("limits", type=int, nargs="*", default=[*FLOORS])
    parser.add_argument("--search", action="store_true", help="search for each missing value")
    options = parser.parse_args()
    if not DATA:
        sys.exit("set LLM_COMMON_EVAL_DATA to the folder of the evaluation sets")
    runs = json.loads((Path(DATA) / "history" / "airline.tune.json").read_text())
    missed = []
    for limit in options.limits:
        share = asyncio.run(measure(runs, limit, with_search=options.search))
        is_true = asyncio.run(measure_notes(runs, limit))
        if share < FLOORS.get(limit, 0) or not is_true:
            missed.append(limit)
    if missed:
        sys.exit(f"fewer values are in view than before, or a note is false, at {missed} tokens")


if __name__ == "__main__":
    main()
