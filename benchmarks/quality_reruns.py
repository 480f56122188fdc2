"""Is everything true that a model is told when a call is made again, and how short is it?

Makes 2,000 pairs of results of the same call, and offloads both in one session: the same again,
rows changed, added, removed or reordered, another type, lines of a text changed. The earlier output
is in the prompt, folded away, edited, dropped by the caller, in another conversation, or the caller
passes no messages.

Every claim is checked without the code that made it. "Identical" is right if the results are equal
and the prompt that is sent has the earlier output, byte for byte, before the line. Changes are
right if the earlier result, changed as the text says, is the new one. What is sent is checked again
after more messages, when the earlier output has been folded, and after folding twice.

    python benchmarks/quality_reruns.py              # 2,000 pairs, about three minutes
    python benchmarks/quality_reruns.py 200 7        # 200 pairs, another seed

Ends with 1 on a wrong claim, or if changes take over a quarter of the tokens of the result.
"""

import asyncio
import copy
import csv
import io
import json
import random
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from llm_common.agents import InMemoryContextPointerStore, OffloadPolicy, Session, SessionConfig
from llm_common.core import DefaultCounter
from llm_common.history import FoldPolicy

PAIRS: Final = 2_000
SEED: Final = 20_261
MAX_SHARE: Final = 0.25
COUNTER: Final = DefaultCounter()
CONFIG: Final = SessionConfig(
    offload=OffloadPolicy(max_whole_tokens=500),
    fold=FoldPolicy(max_tokens=2_500),
    counter=COUNTER,
)
TOOL: Final = "list_orders"
STATES: Final = (
    "in the prompt",
    "in the prompt, asked again",
    "folded away",
    "edited",
    "dropped",
    "another conversation",
    "no messages",
)
_CITIES: Final = ("Oslo", "São Paulo", "Köln", "a | b", "x; y", 'the "Hague"', "1 → 2", "### Ulm")
_ODD: Final = ("", "null", "007", "5", "true", "[1]", "(missing)", " edge ", "two\nlines", "a: b")


# --- pairs


@dataclass(frozen=True)
class Pair:
    """Two results of the same call, and how the second one came about."""

    kind: str
    shape: str
    old: Any
    new: Any


def _records(rng: random.Random) -> list[dict[str, Any]]:
    records = []
    for number in rng.sample(range(1_000, 9_000), rng.randint(60, 160)):
        record: dict[str, Any] = {
            "order_id": f"#W{number}" if rng.random() < 0.5 else number,
            "city": rng.choice(_CITIES),
            "total": round(rng.uniform(1, 900), 2),
            "open": rng.random() < 0.3,
            "note": rng.choice(_ODD) if rng.random() < 0.1 else f"note {rng.randint(1, 999)}",
            "ship": {"by": rng.choice(["air", "sea"]), "days": rng.randint(1, 30)},
        }
        if rng.random() < 0.2:
            record["tags"] = rng.sample(["new", "gift", "late"], rng.randint(0, 2))
        if rng.random() < 0.1:
            record["open"] = None
        records.append(record)
    return records


def _change_cells(rng: random.Random, records: list[dict[str, Any]]) -> None:
    for record in rng.sample(records, rng.randint(1, 3)):
        name = rng.choice(["city", "total", "open", "note", "ship"])
        if name == "ship":
            record["ship"] = {**record["ship"], "days": record["ship"]["days"] + 1}
        elif rng.random() < 0.2:
            record.pop(name)
        else:
            record[name] = rng.choice([*_ODD, "Bergen", 17, 0.5, None, False, ["x"]])


def _add(rng: random.Random, records: list[dict[str, Any]]) -> None:
    for record in _records(rng)[: rng.randint(1, 3)]:
        record["order_id"] = f"#N{rng.randint(0, 10**9)}"
        records.insert(rng.randint(0, len(records)), record)


def _remove(rng: random.Random, records: list[dict[str, Any]]) -> None:
    for _ in range(rng.randint(1, 3)):
        records.pop(rng.randrange(len(records)))


def _reorder(rng: random.Random, records: list[dict[str, Any]]) -> None:
    rng.shuffle(records)


def _change_all(rng: random.Random, records: list[dict[str, Any]]) -> None:
    for record in records:
        record["total"] = round(rng.uniform(1, 900), 2)


Edit = Callable[[random.Random, list[dict[str, Any]]], None]
EDITS: Final[dict[str, tuple[Edit, ...]]] = {
    "same": (),
    "cells changed": (_change_cells,),
    "rows added": (_add,),
    "rows removed": (_remove,),
    "reordered": (_reorder,),
    "all of these": (_change_cells, _add, _remove, _reorder),
    "every row changed": (_change_all,),
}
OTHERS: Final = ("another type", "another shape")
SHAPES: Final = ("list", "object", "JSON text", "JSON lines", "CSV", "without a key")


def _shaped(shape: str, records: list[dict[str, Any]], cursor: str) -> Any:
    if shape == "object":
        return {"status": "ok", "page": {"cursor": cursor, "size": 50}, "orders": records}
    if shape == "JSON text":
        return json.dumps(records, indent=1, ensure_ascii=False)
    if shape == "JSON lines":
        return "\n".join(json.dumps(record) for record in records)
    if shape == "CSV":
        return _csv(records)
    if shape == "without a key":
        return [{"city": record.get("city"), "open": record.get("open")} for record in records]
    return records


def _csv(records: list[dict[str, Any]]) -> str:
    names = ["order_id", "city", "total", "open", "note"]
    file = io.StringIO()
    writer = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return file.getvalue()


def _log_pair(rng: random.Random, kind: str) -> Pair:
    words = ("started", "stopped", "### failed", "retry", "- done", "+ more", "")
    old = [f"{rng.randint(0, 30)} worker {rng.choice(words)}" for _ in range(rng.randint(150, 400))]
    new = list(old)
    for _ in range(rng.randint(1, 4)):
        index = rng.randrange(len(new))
        match rng.choice(["change", "insert", "delete"]):
            case "change":
                new[index] += " changed"
            case "insert":
                new.insert(index, rng.choice(old))
            case "delete":
                del new[index]
    return Pair(kind, "text", "\n".join(old), "\n".join(new))


def make_pair(rng: random.Random) -> Pair:
    """Return a random pair."""
    kind = rng.choice([*EDITS, "same", "same", "lines changed", "lines changed", *OTHERS])
    if kind == "lines changed":
        return _log_pair(rng, kind)
    shape, old = rng.choice(SHAPES), _records(rng)
    old_value = _shaped(shape, old, "a1")
    if kind == "another type":
        text = "\n".join(f"order {record['order_id']} is late" for record in old)
        new_value: Any = {"text": text} if isinstance(old_value, str) else text
        return Pair(kind, shape, old_value, new_value)
    if kind == "another shape":
        orders = {f"o{number}": [number, record] for number, record in enumerate(old)}
        is_text = isinstance(old_value, str)
        return Pair(kind, shape, old_value, json.dumps(orders) if is_text else orders)
    new = copy.deepcopy(old)
    for edit in EDITS[kind]:
        edit(rng, new)
    cursor = "a1" if kind == "same" else rng.choice(["a1", "b2"])
    return Pair(kind, shape, old_value, _shaped(shape, new, cursor))


# --- the checks, which share no code with what they check

_CHANGED_NOTE: Final = re.compile(r"what differs from the earlier result ([0-9a-f]{12,16}) of this")
_COUNTS: Final = re.compile(
    r"^(?:(?P<path>[^\n]*?): )?(?P<before>[\d,]+) records before, (?P<now>[\d,]+) now: "
    r"(?P<same>[\d,]+) are the same, (?P<changed>[\d,]+) changed, (?P<came>[\d,]+) came, "
    r"(?P<went>[\d,]+) went\.(?P<order> The order of the others changed too\.)?$"
)
_ORDER_ONLY: Final = re.compile(
    r"^(?:(?P<path>[^\n]*?): )?(?P<same>[\d,]+) records, all the same\. Only their order changed\.$"
)
_LINE_COUNTS: Final = re.compile(r"^([\d,]+) lines before, ([\d,]+) now: ")
_LINE: Final = re.compile(r"([-+])(\d+): (.*)")


def wrong_changes(text: str, old: Any, new: Any) -> str | None:
    """Return what is wrong in changes that were printed, or None."""
    lines = text.split("\n")[4:-1]  # heading, note, fence and summary of the call
    if _LINE_COUNTS.match(lines[0]):
        return _wrong_lines(lines, old, new)
    is_csv = isinstance(old, str) and not old.startswith(("[", "{"))
    old_data, new_data = (_data(value, is_csv=is_csv) for value in (old, new))
    path = ""
    if isinstance(old_data, dict):
        old_data, new_data = copy.deepcopy(old_data), copy.deepcopy(new_data)
        if "Other fields that changed:" in lines:
            start = lines.index("Other fields that changed:")
            for line in lines[start + 1 :]:
                name, _, change = line.partition(": ")
                if name != "page.cursor" or change != "a1 → b2":
                    return f"an unknown field: {line}"
                old_data["page"]["cursor"] = "b2"
            lines = lines[:start]
        path = "orders"
        old_rows, new_rows = old_data.pop(path), new_data.pop(path)
        if old_data != new_data:
            return "the fields beside the records differ"
    else:
        old_rows, new_rows = old_data, new_data
    if not lines:
        return None if old_rows == new_rows else "the records differ"
    return _wrong_rows(lines, path, _flat(old_rows), _flat(new_rows), is_csv=is_csv)


def _data(value: Any, *, is_csv: bool) -> Any:
    if is_csv:
        return list(csv.DictReader(io.StringIO(value)))
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return [json.loads(line) for line in value.split("\n")]


def _flat(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return rows with dotted names and values as JSON, which tells 1, 1.0, true and "1" apart."""
    flat = []
    for row in rows:
        cells: dict[str, str] = {}
        for name, value in row.items():
            if isinstance(value, dict):
                cells |= {f"{name}.{key}": json.dumps(inner) for key, inner in value.items()}
            else:
                cells[name] = json.dumps(value)
        flat.append(cells)
    return flat


def _cell(text: str, *, is_csv: bool) -> str | None:
    """Return a printed cell as JSON, or None for a missing one."""
    if text == "(missing)":
        return None
    if not text.startswith('"') and is_csv:
        return json.dumps(text)
    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return json.dumps(text)


def _split(line: str, separator: str) -> list[str]:
    """Split a line outside of its quoted cells."""
    parts = re.split(rf'("(?:[^"\\]|\\.)*")|{re.escape(separator)}', line)
    cells = [""]
    for index, part in enumerate(parts[::2]):
        cells[-1] += part
        if index < len(parts[1::2]):
            quoted = parts[2 * index + 1]
            if quoted is None:
                cells.append("")
            else:
                cells[-1] += quoted
    return cells


@dataclass
class PrintedRows:
    """The changes of rows, as they were printed.

    Attributes:
        changed: The new cells by the key of their row. None for one that is missing now.
        moved: The rows that came and those that went.
        key: The name of the key.
    """

    changed: dict[str, dict[str, str | None]] = field(default_factory=dict)
    moved: dict[str, list[dict[str, str]]] = field(
        default_factory=lambda: {"Came:": [], "Went:": []}
    )
    key: str = ""


def _wrong_rows(
    lines: list[str],
    path: str,
    old: list[dict[str, str]],
    new: list[dict[str, str]],
    *,
    is_csv: bool,
) -> str | None:
    order_only = _ORDER_ONLY.match(lines[0])
    if order_only:
        rows = [sorted(str(sorted(row.items())) for row in rows) for rows in (old, new)]
        is_right = (order_only["path"] or "") == path and rows[0] == rows[1] and old != new
        return None if is_right and len(lines) == 1 else "not only the order changed"
    counts = _COUNTS.match(lines[0])
    if counts is None or (counts["path"] or "") != path:
        return f"an unknown line: {lines[0]}"
    printed, section, columns = PrintedRows(), "", list[str]()
    for line in lines[1:]:
        if line.startswith("Changed, by "):
            printed.key = line.removeprefix("Changed, by ").removesuffix(":")
            section = "Changed"
        elif line.startswith("Columns: "):
            columns = _split(line.removeprefix("Columns: "), " | ")
        elif line in printed.moved:
            section = line
        elif section == "Changed":
            wrong = _read_changed(line, old, printed, is_csv=is_csv)
            if wrong is not None:
                return wrong
        else:
            cells = [_cell(cell, is_csv=is_csv) for cell in _split(line, " | ")]
            pairs = zip(columns, cells, strict=True)
            printed.moved[section].append({name: cell for name, cell in pairs if cell is not None})
    return _wrong_result(counts, old, new, printed)


def _read_changed(
    line: str, old: list[dict[str, str]], printed: PrintedRows, *, is_csv: bool
) -> str | None:
    value, *rest = _split(line, ": ")
    key = _cell(value, is_csv=is_csv)
    [old_row] = [row for row in old if row[printed.key] == key]
    new_cells = printed.changed.setdefault(str(key), {})
    for change in _split(": ".join(rest), "; "):
        name, cells = change.split(": ", 1)
        before, after = _split(cells, " → ")
        new_cells[name] = _cell(after, is_csv=is_csv)
        if old_row.get(name) != _cell(before, is_csv=is_csv):
            return f"the old value is another one: {line}"
    return None


def _wrong_result(
    counts: re.Match[str],
    old: list[dict[str, str]],
    new: list[dict[str, str]],
    printed: PrintedRows,
) -> str | None:
    came, went = printed.moved["Came:"], list(printed.moved["Went:"])
    kept = []
    for row in old:
        if row in went:
            went.remove(row)
            continue
        changed = row | printed.changed.get(row.get(printed.key, ""), {})
        kept.append({name: cell for name, cell in changed.items() if cell is not None})
    if went:
        return "a row that went was not there"
    rest = list(new)
    for row in [*kept, *came]:
        if row not in rest:
            return f"a row is not in the new result: {row}"
        rest.remove(row)
    if rest or any(row in kept for row in came):
        return "a row of the new result is missing, or one that came was there already"
    if ([row for row in new if row in kept] != kept) != bool(counts["order"]):
        return "the order is wrong"
    right = {
        "before": len(old),
        "now": len(new),
        "same": len(kept) - len(printed.changed),
        "changed": len(printed.changed),
        "came": len(came),
        "went": len(printed.moved["Went:"]),
    }
    numbers = {name: int(counts[name].replace(",", "")) for name in right}
    return None if numbers == right else f"the counts are {numbers}, not {right}"


def _wrong_lines(lines: list[str], old: str, new: str) -> str | None:
    removed: dict[int, str] = {}
    added: dict[int, str] = {}
    for line in lines[1:]:
        match = _LINE.fullmatch(line)
        if match is None:
            return f"an unknown line: {line}"
        (removed if match[1] == "-" else added)[int(match[2])] = match[3]
    kept = []
    for number, line in enumerate(old.split("\n"), start=1):
        if number not in removed:
            kept.append(line)
        elif removed[number] != line:
            return f"line {number} was another one"
    for number, line in sorted(added.items()):
        kept.insert(number - 1, line)
    return None if "\n".join(kept) == new else "the lines do not give the new text"


# --- one pair in one prompt


@dataclass
class Outcome:
    """What a pair was shown as.

    Attributes:
        pair: The pair.
        state: Where the earlier output was.
        form: The form of the second output.
        share: Its tokens as a share of those of the result.
        wrong: The wrong claims.
    """

    pair: Pair
    state: str
    form: str
    share: float
    wrong: list[str] = field(default_factory=list)


def _call(number: int) -> dict[str, Any]:
    function = {"name": TOOL, "arguments": '{"status": "any"}'}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _output(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def _chatter(rng: random.Random, count: int) -> list[dict[str, Any]]:
    messages = []
    for number in range(count):
        words = " ".join(rng.choice(["plan", "ship", "wait", "ask", "pay"]) for _ in range(60))
        role = "assistant" if number % 2 == 0 else "user"
        messages.append({"role": role, "content": words})
    return messages


def _prepare(state: str, messages: list[dict[str, Any]], rng: random.Random) -> None:
    """Change a prompt that ends with the earlier output into another state."""
    first = messages[-1]["content"]
    match state:
        case "in the prompt, asked again":
            messages.append({"role": "assistant", "content": "Done."})
            messages.append({"role": "user", "content": "Go on"})
        case "folded away":
            messages += _chatter(rng, 40)
        case "edited":
            at = rng.randrange(len(first))
            messages[-1] = _output(0, first[:at] + "~" + first[at + 1 :])
        case "dropped":
            del messages[1:]


async def measure(pair: Pair, state: str, rng: random.Random) -> Outcome:
    """Offload both results of a pair, and check every claim about the second one."""
    session = Session(InMemoryContextPointerStore(), config=CONFIG)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Show me the list."}, _call(0)]
    args = {"status": "any"}
    first = await session.offload(pair.old, tool=TOOL, args=args, messages=messages)
    shown = str(first)
    if state == "another conversation":
        other = Session(InMemoryContextPointerStore(), config=CONFIG)
        shown = str(await other.offload(pair.old, tool=TOOL, args=args, messages=messages))
    messages.append(_output(0, shown))
    _prepare(state, messages, rng)
    messages.append(_call(1))
    given = None if state == "no messages" else messages
    second = await session.offload(pair.new, tool=TOOL, args=args, messages=given)
    messages.append(_output(1, str(second)))

    whole = pair.new if isinstance(pair.new, str) else json.dumps(pair.new, ensure_ascii=False)
    outcome = Outcome(pair, state, second.form, COUNTER.count(str(second)) / COUNTER.count(whole))
    sent: list[Any] = await session.fold(messages)
    is_in_view = state.startswith("in the prompt") and _has(sent, str(first))
    if second.form == "changed":
        await _check_changes(session, outcome, str(second), is_in_view=is_in_view)
    if second.form == "identical":
        if pair.old != pair.new or not is_in_view:
            outcome.wrong.append("identical to another result, or to one out of the prompt")
        await _check_reference(session, outcome, messages, str(first), rng)
    _check_sent(outcome, sent, str(first))
    return outcome


async def _check_reference(
    session: Session,
    outcome: Outcome,
    messages: list[dict[str, Any]],
    first: str,
    rng: random.Random,
) -> None:
    """Check what becomes of a line that refers to an output when the prompt goes on."""
    later: list[Any] = await session.fold([*messages, *_chatter(rng, 40)])
    _check_sent(outcome, later, first)
    _check_sent(outcome, await session.fold(later), first)
    # The caller dropped the earlier output, and folds what is left.
    _check_sent(outcome, await session.fold([messages[0], *messages[3:]]), first)


async def _check_changes(
    session: Session, outcome: Outcome, text: str, *, is_in_view: bool
) -> None:
    note = _CHANGED_NOTE.search(text)
    if note is None or "above" in text.lower():
        outcome.wrong.append("changes without the id of the earlier result, or with `above`")
        return
    earlier = session.results.load_result(pointer=note[1])
    if earlier != outcome.pair.old:
        outcome.wrong.append("the earlier result is another one")
    if not is_in_view and outcome.state != "no messages":
        outcome.wrong.append("changes of a result that is not in the prompt")
    wrong = wrong_changes(text, outcome.pair.old, outcome.pair.new)
    if wrong is not None:
        outcome.wrong.append(wrong)


def _has(messages: list[Any], text: str) -> bool:
    return any(message.get("content") == text for message in messages)


def _check_sent(outcome: Outcome, sent: list[Any], first: str) -> None:
    """Check that the earlier output comes before each line that refers to it."""
    for index, message in enumerate(sent):
        refers = str(message.get("content")).startswith("Identical to the result above")
        if refers and not _has(sent[:index], first):
            outcome.wrong.append("a reference whose result has left the prompt")


async def run(pairs: int, seed: int) -> list[Outcome]:
    """Return the outcomes of random pairs, whose prompts take turns."""
    outcomes = []
    for number in range(pairs):
        rng = random.Random(f"{seed} {number}")  # a pair depends on no other one
        outcomes.append(await measure(make_pair(rng), STATES[number % len(STATES)], rng))
    return outcomes


def report(outcomes: list[Outcome]) -> bool:
    """Print the outcomes, and return whether all claims were right and short."""
    forms = ("identical", "changed", "preview", "whole")
    groups: dict[str, Callable[[Outcome], str]] = {
        "kind of pair": lambda outcome: outcome.pair.kind,
        "shape of the earlier result": lambda outcome: outcome.pair.shape,
        "earlier output": lambda outcome: outcome.state,
    }
    for title, group_of in groups.items():
        print(f"\n{title:28}  pairs  " + "  ".join(f"{form:>9}" for form in forms))
        for name in dict.fromkeys(map(group_of, outcomes)):
            group = [outcome for outcome in outcomes if group_of(outcome) == name]
            counts = Counter(outcome.form for outcome in group)
            cells = "  ".join(f"{counts[form]:9}" for form in forms)
            print(f"{name:28}  {len(group):5}  {cells}")
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    print(f"\nwrong claims: {len(wrong)} of {len(outcomes)} pairs")
    for outcome in wrong[:10]:
        print(f"  {outcome.pair.kind}, {outcome.pair.shape}, {outcome.state}: {outcome.wrong}")
    is_short = True
    for form in ("identical", "changed"):
        shares = [outcome.share for outcome in outcomes if outcome.form == form]
        if shares:
            median, most = statistics.median(shares), max(shares)
            print(f"{form}: {median:.1%} of the result's tokens, at most {most:.1%}")
            is_short &= most <= MAX_SHARE
    return not wrong and is_short


def main(args: list[str]) -> int:
    """Run the pairs, and return the exit code."""
    pairs = int(args[0]) if args else PAIRS
    seed = int(args[1]) if len(args) > 1 else SEED
    return 0 if report(asyncio.run(run(pairs, seed))) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
