"""Does the preview of a large result hold what the question asks for, at 400 tokens?

The sets: `previews/products.*` in `LLM_COMMON_EVAL_DATA` (five answers of a product search, 19,000
to 28,000 tokens each, with public questions), `previews/wtq.*` in the same folder (60 tables of
Wikipedia with questions, as JSON and as CSV in turn), and three of ours, which are made here: a
log, a CSV export and nested JSON, with twenty questions each.

A look-up is held if the answer and the id of the question stand in the preview. A list counts by
the share of its items. A count is held if its number stands within 40 characters of a value that
the question names, or of a word of a question about Wikipedia. Counts of zero are left out, since
an absent number would hold them.

The previews of released frameworks (`preview_peers.py`) have rows where their packages are
installed, as by `make bench-peers`. They have the sizes that the frameworks give them, at any
number of tokens.

    python benchmarks/quality_previews.py            # 400 tokens
    python benchmarks/quality_previews.py 1000
"""

import asyncio
import csv
import gzip
import io
import json
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.preview_peers import PeerPreview, installed_previews
from llm_common.agents import InMemoryContextPointerStore, OffloadPolicy, Session, SessionConfig
from llm_common.core import DefaultCounter
from llm_common.ranking.lexical import scan_columns

DATA: Final = os.environ.get("LLM_COMMON_EVAL_DATA")
COUNTER: Final = DefaultCounter()
NEAR_CHARS: Final = 40
KINDS: Final = {"EXTRACTIVE": "look-up", "FILTERING": "list", "AGGREGATION": "count"}


@dataclass(frozen=True)
class Case:
    """One question about one result.

    Attributes:
        kind: look-up, list or count.
        question: The question.
        result: What the tool returned.
        answers: What a preview has to hold: an answer, the items, or a number.
        named: Values of the question, of which look-ups need all and counts one nearby.
    """

    kind: str
    question: str
    result: Any
    answers: tuple[str, ...]
    named: tuple[str, ...]

    def score(self, preview: str) -> float:
        """Return the share of the answer that a preview holds."""
        text = preview.lower()
        if self.kind == "count":
            return float(self._has_count(text))
        held = sum(answer.lower() in text for answer in self.answers) / len(self.answers)
        if self.kind == "look-up":
            return float(held == 1 and all(name.lower() in text for name in self.named))
        return held

    def _has_count(self, text: str) -> bool:
        [number] = self.answers
        for match in re.finditer(rf"(?<![\d.,]){re.escape(number)}(?![\d.,]*\d)", text):
            around = text[max(match.start() - NEAR_CHARS, 0) : match.end() + NEAR_CHARS]
            if any(name.lower() in around for name in self.named):
                return True
        return False


# --- public questions

_WORDS_OF_COUNTS: Final = frozenset(
    [
        "the",
        "how",
        "many",
        "are",
        "which",
        "number",
        "shoes",
        "present",
        "whose",
        "price",
        "between",
        "and",
        "dollars",
        "inclusive",
        "get",
        "provide",
        "for",
        "available",
        "colour",
        "colours",
        "made",
        "type",
        "size",
        # of questions about filings
        "filings",
        "form",
        "has",
        "having",
        "name",
        "report",
        "sec",
        "done",
        "year",
        "belong",
    ]
)


# The id of a product, or the accession number of a filing.
_IDS: Final = re.compile(r"\d{15,}|\d{10}-\d{2}-\d{6}")


def products(folder: Path) -> Iterator[Case]:
    """Yield the public questions about product searches."""
    responses = json.loads((folder / "products.responses.json").read_text())
    yield from public_cases(responses, json.loads((folder / "products.questions.json").read_text()))


def public_cases(
    responses: Mapping[str, Any], questions: Sequence[Mapping[str, Any]]
) -> Iterator[Case]:
    """Yield the questions of LongFuncEval/toolJSONprocessing about their responses."""
    for row in questions:
        kind, question = KINDS[row["task_type"]], row["question"]
        gold = str(row["gold_answer"])
        if kind == "count" and gold == "0":
            continue
        answers = [gold]
        if kind == "list":
            answers = [item.strip() for item in gold.split(",") if item.strip()]
        named = _IDS.findall(question)
        if kind == "count":
            named = _named_by_count(question)
        result = responses[row["app"]][row["endpoint"]][row["api_query"]]
        yield Case(kind, question, result, tuple(answers), tuple(named))


def _named_by_count(question: str) -> list[str]:
    if "number of days" in question:
        return ["days"]  # the bounds are single digits, which stand beside many numbers
    words = [word.strip(".") for word in re.findall(r"[\w½/.'-]+", question)]
    named = [word for word in words if word.lower() not in _WORDS_OF_COUNTS]
    return [word for word in named if len(word) > 2 or word[:1].isdigit()]


def wikipedia(folder: Path) -> Iterator[Case]:
    """Yield public questions about tables of Wikipedia, as JSON and as CSV in turn."""
    data = json.loads(gzip.decompress((folder / "wtq.tune.json.gz").read_bytes()))
    for number, row in enumerate(data["questions"]):
        kind, question = KINDS[row["task_type"]], row["question"]
        gold = str(row["gold_answer"])
        if kind == "count" and gold == "0":
            continue
        result: Any = data["tables"][row["table"]]
        if number % 2:
            result = _as_csv(result)
        answers = gold.split("|") if kind == "list" else [gold]
        named = _named_by_count(question) if kind == "count" else []
        yield Case(kind, question, result, tuple(answers), tuple(named))


def _as_csv(records: Sequence[Mapping[str, str]]) -> str:
    table = io.StringIO()
    writer = csv.DictWriter(table, records[0].keys())
    writer.writeheader()
    writer.writerows(records)
    return table.getvalue()


# --- questions of ours

SERVICES: Final = ("payment", "catalog", "auth", "shipping", "search")
LEVELS: Final = ("INFO", "INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR")
CITIES: Final = ("Bern", "Oslo", "Lima", "Rome", "Kyiv", "Quito")
STATES: Final = ("open", "paid", "shipped", "returned")


def log_cases(rng: random.Random) -> Iterator[Case]:
    """Yield twenty questions about the log of five services."""
    entries = []
    for number in range(1_500):
        service, level = rng.choice(SERVICES), rng.choice(LEVELS)
        request, millis = f"req-{number:05}", rng.randint(3, 900)
        host = f"10.0.{rng.randint(0, 9)}.{rng.randint(1, 250)}"
        text = f"request {request} from {host} took {millis} ms"
        if level == "ERROR":
            text = f"request {request} from {host} failed: {rng.choice(CITIES)} does not answer"
        moment = f"2026-03-05T10:{number // 60 % 60:02}:{number % 60:02}Z"
        entries.append((moment, level, service, text, request))
    log = "\n".join(f"{row[0]} {row[1]} {row[2]}: {row[3]}" for row in entries)
    for entry in rng.sample(entries, 7):
        question = f"What happened to {entry[4]}?"
        yield Case("look-up", question, log, (entry[3],), (entry[4],))
    for service in SERVICES:
        count = sum(entry[1] == "ERROR" and entry[2] == service for entry in entries)
        question = f"How many ERROR entries does the service {service} have?"
        yield Case("count", question, log, (str(count),), (service, "ERROR", "all of these"))
    for level in ("DEBUG", "WARN", "ERROR"):
        count = sum(entry[1] == level for entry in entries)
        yield Case("count", f"How many {level} entries are there?", log, (str(count),), (level,))
    for city in CITIES[:5]:
        failed = [e[4] for e in entries if e[3].endswith(f"{city} does not answer")]
        question = f"Which requests failed because {city} does not answer?"
        yield Case("list", question, log, tuple(failed), ())


def csv_cases(rng: random.Random) -> Iterator[Case]:
    """Yield twenty questions about an export of orders."""
    orders = []
    for number in range(900):
        date = f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        row = (f"W{number:05}", rng.choice(CITIES), rng.choice(STATES), date)
        orders.append((*row, f"{rng.randint(5, 400)}.{rng.randint(0, 99):02}", f"c{number % 97}"))
    table = io.StringIO()
    csv.writer(table).writerows(
        [("order_id", "city", "status", "date", "total_eur", "customer"), *orders]
    )
    export = table.getvalue()
    for order in rng.sample(orders, 7):
        question = f"What is the total of order {order[0]}?"
        yield Case("look-up", question, export, (order[4],), (order[0],))
    for city in CITIES[:4]:
        count = sum(order[1] == city and order[2] == "returned" for order in orders)
        question = f"How many orders from {city} were returned?"
        yield Case("count", question, export, (str(count),), (city, "all of these"))
    for low in (100, 250, 390):
        count = sum(float(order[4]) >= low for order in orders)
        question = f"How many orders have a total of {low} euros and above?"
        yield Case("count", question, export, (str(count),), (str(low),))
    for month, name in ((3, "March"), (7, "July"), (11, "November")):
        count = sum(order[3].startswith(f"2026-{month:02}") for order in orders)
        question = f"How many orders have a date in {name} 2026?"
        yield Case("count", question, export, (str(count),), (f"2026-{month:02}", name))
    for city in CITIES[:3]:
        found = [o[0] for o in orders if o[1] == city and o[2] == "open" and float(o[4]) > 350]
        question = f"List the ids of open orders from {city} with a total over 350."
        yield Case("list", question, export, tuple(found), ())


def nested_cases(rng: random.Random) -> Iterator[Case]:
    """Yield twenty questions about repositories, nested three levels deep."""
    repositories: list[dict[str, Any]] = []
    for number in range(160):
        repositories.append(
            {
                "id": 9_000 + number,
                "full_name": f"team{number % 9}/project-{number}",
                "private": number % 4 == 0,
                "owner": {"login": f"team{number % 9}", "plan": {"name": rng.choice(STATES)}},
                "license": rng.choice(["MIT", "Apache-2.0", "GPL-3.0", None]),
                "stars": rng.randint(0, 5_000),
                "topics": rng.sample(["api", "cli", "maps", "audio", "ocr"], 2),
                "description": "A tool that does one thing, and some words to fill the line. " * 3,
                "url": f"https://example.org/team{number % 9}/project-{number}",
            }
        )
    result = {"data": {"search": {"nodes": repositories}}, "next": "cursor-77", "ok": True}
    for node in rng.sample(repositories, 7):
        question = f"How many stars does {node['full_name']} have?"
        named = (str(node["full_name"]),)
        yield Case("look-up", question, result, (str(node["stars"]),), named)
    for name in ("MIT", "Apache-2.0", "GPL-3.0"):
        count = sum(node["license"] == name for node in repositories)
        question = f"How many repositories have the license {name}?"
        yield Case("count", question, result, (str(count),), (name,))
    for topic in ("maps", "audio", "ocr"):
        count = sum(topic in node["topics"] for node in repositories)
        question = f"How many repositories have the topic {topic}?"
        yield Case("count", question, result, (str(count),), (topic,))
    private = sum(bool(node["private"]) for node in repositories)
    question = "How many repositories are private?"
    yield Case("count", question, result, (str(private),), ("private",))
    for team in ("team1", "team2", "team3"):
        found = [str(n["full_name"]) for n in repositories if n["owner"]["login"] == team]
        question = f"List the full names of the repositories whose owner login is {team}."
        yield Case("list", question, result, tuple(found), ())
    for low in (4_600, 4_700, 4_800):
        found = [str(n["full_name"]) for n in repositories if n["stars"] > low]
        yield Case(
            "list", f"Give the full names with more than {low} stars.", result, tuple(found), ()
        )


# --- previews

Preview = Callable[[Case, int], str]


def cut(text: str, max_tokens: int, *, head: float = 1.0) -> str:
    """Return the beginning of a text, or its beginning and end, within a number of tokens."""
    chars = 6 * max_tokens
    while True:
        first = int(chars * head)
        kept = text[:first] + (text[len(text) - (chars - first) :] if head < 1 else "")
        if COUNTER.count(kept) <= max_tokens or chars < 10:
            return kept
        chars = chars * 9 // 10


def text_of(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result)


def records_of(result: Any) -> list[str]:
    """Return the lines of a text, or the items of the largest list of objects."""
    if isinstance(result, str):
        return result.splitlines()
    best: list[Any] = []
    best_chars = 0
    values = [result]
    while values:
        value = values.pop()
        if isinstance(value, list) and value and isinstance(value[0], dict):
            chars = len(json.dumps(value))
            if chars > best_chars:
                best, best_chars = value, chars
        if isinstance(value, (list, dict)):
            values += value.values() if isinstance(value, dict) else value
    return [json.dumps(item) for item in best]


def by_bm25(case: Case, max_tokens: int) -> str:
    """Return the records that share most with the question, as many as fit."""
    records = records_of(case.result)
    scores = scan_columns(case.question, [records], weights=[1.0])
    shown: list[str] = []
    order = sorted(range(len(records)), key=lambda index: -scores[index])
    for index in order:
        if COUNTER.count("\n".join([*shown, records[index]])) > max_tokens:
            break
        shown.append(records[index])
    return "\n".join(shown) or cut(records[order[0]], max_tokens)


def session_with(policy: OffloadPolicy) -> Session:
    """Return a session without a result. Its id is fixed, since other pointer ids have other tokens."""
    config = SessionConfig(offload=policy)
    return Session(InMemoryContextPointerStore(), session_id="measured", config=config)


def ours(case: Case, max_tokens: int) -> str:
    """Return the preview of a session."""
    policy = OffloadPolicy(max_whole_tokens=0, max_preview_tokens=max_tokens, max_turn_tokens=None)
    session = session_with(policy)
    return str(asyncio.run(session.offload(case.result, tool="api", args={}, query=case.question)))


PREVIEWS: Final[dict[str, Preview]] = {
    "llm-common": ours,
    "first 2,048 characters, as Claude Code": lambda case, _: text_of(case.result)[:2_048],
    "head": lambda case, tokens: cut(text_of(case.result), tokens),
    "head and tail": lambda case, tokens: cut(text_of(case.result), tokens, head=0.6),
    "BM25 over records": by_bm25,
}


def of_peer(preview: PeerPreview) -> Preview:
    """Return a framework's preview, whose size is the framework's own."""
    return lambda case, _: preview(case.result, case.question)


def measure(
    name: str, cases: Sequence[Case], max_tokens: int, *, previews: Mapping[str, Preview]
) -> None:
    """Print a row for each preview."""
    counts = ", ".join(
        f"{sum(case.kind == kind for case in cases)} {kind}s" for kind in KINDS.values()
    )
    print(f"\n{name}: {counts}, {max_tokens} tokens")
    print("| preview | look-up | list | count | tokens | ms |")
    print("|---|---|---|---|---|---|")
    for label, preview in previews.items():
        start_s = time.process_time()
        shares, tokens = measured(preview, cases, max_tokens)
        millis = 1_000 * (time.process_time() - start_s) / len(cases)
        means = " | ".join(f"{share:.2f}" for share in shares.values())
        print(f"| {label} | {means} | {tokens:.0f} | {millis:.0f} |")


def measured(
    preview: Preview, cases: Sequence[Case], max_tokens: int
) -> tuple[dict[str, float], float]:
    """Return the mean share of the answers by kind that a preview holds, and its mean tokens."""
    scores: dict[str, list[float]] = {kind: [] for kind in KINDS.values()}
    tokens = 0
    for case in cases:
        text = preview(case, max_tokens)
        scores[case.kind].append(case.score(text))
        tokens += COUNTER.count(text)
    means = {kind: sum(values) / max(len(values), 1) for kind, values in scores.items()}
    return means, tokens / len(cases)


def main() -> None:
    max_tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    peers = {label: of_peer(preview) for label, preview in installed_previews().items()}
    previews = PREVIEWS | peers
    if DATA:
        cases = list(products(Path(DATA) / "previews"))
        measure("products", cases, max_tokens, previews=previews)
        cases = list(wikipedia(Path(DATA) / "previews"))
        measure("Wikipedia", cases, max_tokens, previews=previews)
    own = {"log": log_cases, "CSV": csv_cases, "nested JSON": nested_cases}
    for name, make in own.items():
        measure(name, list(make(random.Random(7))), max_tokens, previews=previews)


if __name__ == "__main__":
    main()
