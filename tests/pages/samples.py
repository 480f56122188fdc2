"""Fill a folder with stores and traces, whose pages are then looked at.

python -m tests.pages.samples FOLDER
llm-common inspect --store FOLDER/store --traces FOLDER/traces
"""

import asyncio
import random
import sys
from pathlib import Path
from typing import Final

from llm_common.agents import (
    AgenticExecutor,
    Answering,
    FileContextPointerStore,
    OffloadPolicy,
    Tool,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.apps.inspector import IndexEntry, render_html, render_index
from llm_common.core.models import LLMResponse, LLMUsage
from llm_common.testing import ScriptedClient
from llm_common.text.display import to_json
from llm_common.trace import Trace, read_trace
from tests.apps.inspector.hostile_data import fill
from tests.apps.inspector.test_run_page import HOSTILE
from tests.trace.runs import long_story, memory, pack

OUTPUTS: Final = 260
QUESTIONS: Final = (
    "Why did checkout latency rise on Monday?",
    "Which invoices over 900 euros are still open?",
    "What does the worker log of the database say about timeouts?",
)
ANSWER: Final = "Timeouts of the database began at 10:04 on Monday, so its workers queued payments."
_WORDS: Final = [
    "database",
    "token",
    "timeout",
    "worker",
    "invoice",
    "refund",
    "gateway",
    "region",
    "rollback",
    "contract",
    "queue",
    "supplier",
    "migration",
    "customer",
    "session",
    "churn",
    "deploy",
    "cluster",
    "renewal",
    "payment",
]


class Data:
    """Made-up data of tools. The same seed gives the same data."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def sentence(self, words: int) -> str:
        """Return words without a meaning."""
        return " ".join(self._random.choices(_WORDS, k=words)).capitalize() + "."

    def tickets(self, count: int) -> list[dict[str, object]]:
        """Return records with an id, a title, a state, a date and a text."""
        rows: list[dict[str, object]] = []
        for number in range(count):
            row: dict[str, object] = {
                "id": f"SUP-{self._random.randrange(90_000)}",
                "title": self.sentence(5),
                "status": self._random.choice(["open", "closed"]),
                "created": f"2026-{number % 12 + 1:02}-{number % 27 + 1:02}",
                "amount": round(self._random.uniform(5, 2_000), 2),
                "body": self.sentence(20),
            }
            rows.append(row)
        return rows

    def log(self, lines: int) -> str:
        """Return lines of a log."""
        texts = []
        for second in range(lines):
            level = self._random.choice(["INFO", "WARN", "ERROR"])
            texts.append(f"2026-10-05T10:{second // 60 % 60:02}:{second % 60:02}Z {level} ")
            texts.append(f"{self.sentence(9)}\n")
        return "".join(texts)


async def _fill_store(store: FileContextPointerStore) -> None:
    data = Data(7)
    for number in range(OUTPUTS):
        query_id = ("u-42", "Why did checkout latency rise on Monday", "nightly:report")[number % 3]
        tool, args, result = (
            ("search_tickets", {"q": data.sentence(3), "limit": 20}, data.tickets(number % 30 + 1)),
            ("read_file", {"path": f"src/cluster/region_{number}.py"}, data.log(number % 90)),
            ("query_sql", {"sql": f"SELECT * FROM invoices WHERE renewal_id = {number}"}, number),
            (
                "get_prices",
                {"ticker": "MSFT", "period": "1y"},
                {"ticker": "MSFT", "prices": data.tickets(number % 9)},
            ),
            ("fetch_url", {"url": f"https://docs.example.com/{number}.html"}, data.log(200)),
        )[number % 5]
        await store.save(
            query_id=query_id,
            task_id=str(number % 7),
            tool_name=tool,
            args=args,
            result=result,
            ttl_s=3_600 if number % 11 == 0 else None,
        )


async def _ask(question: str, folder: Path, seed: int) -> None:
    """Record a run of an agent with two tools, whose model answers from a script."""
    data = Data(seed)

    async def search_tickets(q: str) -> object:
        """Search the tickets of customers about latency, invoices and timeouts."""
        return {"query": q, "tickets": data.tickets(150)}

    async def read_log(path: str) -> str:
        """Read the log of a worker or of the database."""
        return data.log(400) if path else ""

    calls = [
        {"tool": "search_tickets", "args": {"q": "checkout latency"}},
        {"tool": "read_log", "args": {"path": "database.log"}},
        {"tool": "read_log", "args": {"path": "worker.log"}},
    ]
    replies = []
    for text, received in ((to_json({"calls": calls}), 80), (ANSWER, 41)):
        usage = LLMUsage(prompt_tokens=2_710, completion_tokens=received, cached_tokens=900)
        reply = LLMResponse(
            id="1",
            model="example-model",
            content=text,
            finish_reason="stop",
            usage=usage,
            cost_usd=0.0041,
        )
        replies.append(reply)
    trace = Trace(folder / "traces", texts=True)
    manager = ToolContextManager(pointer_store=FileContextPointerStore(folder / "store"))
    executor = AgenticExecutor(
        ScriptedClient(replies),
        ToolRegistry([Tool(search_tickets), Tool(read_log)]),
        manager,
        offload=OffloadPolicy(),
    )
    with trace.run(manager.hash_query(question), query=question):
        await executor.run(question, plan=question, answering=Answering())
    assert trace.flush()


async def _record(folder: Path) -> None:
    """Record runs of several kinds."""
    trace = Trace(folder / "traces", texts=True)
    store = FileContextPointerStore(folder / "store", durability="rename")
    with trace.run("parcel", query="When does the parcel arrive in Oslo?"):
        await long_story(store)
        await pack(store, 2_000, memory_hits=tuple(map(memory, range(9))))
    assert trace.flush()
    bare = Trace(folder / "traces")
    with bare.run("parcel", query="When does the parcel arrive in Oslo?"):
        await long_story(store)
    assert bare.flush()
    for number, question in enumerate(QUESTIONS):
        await _ask(question, folder, number)


def _write_pages(folder: Path) -> None:
    """Write the page of each run that an agent answered, and an index."""
    paths = sorted((folder / "traces").glob("q_*/*.jsonl"))
    (folder / "pages").mkdir()
    entries = []
    for number, path in enumerate(paths, start=1):
        name = f"run-{number}.html"
        page = render_html(read_trace(path), index="index.html")
        (folder / "pages" / name).write_text(page, encoding="utf-8")
        entries.append(IndexEntry(name, read_trace(path)))
    (folder / "pages" / "index.html").write_text(render_index(entries), encoding="utf-8")


async def _main(folder: Path) -> None:
    await _fill_store(FileContextPointerStore(folder / "store", durability="rename"))
    await _record(folder)
    await fill(folder / "hostile", HOSTILE)
    page = render_html(read_trace(folder / "hostile" / "trace"))
    (folder / "hostile" / "run.html").write_text(page, encoding="utf-8")
    _write_pages(folder)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
