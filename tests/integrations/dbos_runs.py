"""Runs of the documented DBOS program that end at a chosen point, and the check of what is left.

    python -m tests.integrations.dbos_runs ROUNDS

kills the whole program at each of its 20 steps, ROUNDS times, and prints the figures.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

import sqlalchemy

from llm_common.agents import FileContextPointerStore, Session
from tests.integrations.durable_pages import names_of

PAGES: Final = 20
SESSION_ID: Final = "user:42/parts"
KILLED: Final = 9
POINTS: Final = ("in the tool", "after the save", "between the steps")
"""Where a process ends: in a call, after its result is stored, and after its step is recorded."""

_ROOT: Final = Path(__file__).parents[2]
_TIMEOUT_S: Final = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a finished run left behind.

    Attributes:
        answer: The last line that the program printed.
        calls: How often each page was read.
        prompts: The different prompts of each model call, by the number of pages read before.
        pages: The stored pages, in order.
        recorded_bytes: Size of what the engine recorded for all steps.
        database_bytes: Size of the engine's database, if it is a file.
    """

    answer: str
    calls: Counter[int]
    prompts: dict[int, set[str]]
    pages: list[Any]
    recorded_bytes: int
    database_bytes: int


def run_once(folder: Path, *, url: str, rows: int, point: str = "", page: int = -1) -> str | None:
    """Run the program in a new process, and return its output, or None if it was killed."""
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.integrations.dbos_runs",
            "child",
            str(folder),
            str(rows),
            point,
            str(page),
        ],
        check=False,
        cwd=_ROOT,
        env={
            **os.environ,
            "DBOS_SYSTEM_DATABASE_URL": url,
            "LLM_COMMON_POINTER_STORE_DIR": str(folder / "context"),
        },
        stdout=subprocess.PIPE,
        text=True,
        timeout=_TIMEOUT_S,
    )
    if point:
        assert finished.returncode == KILLED, (point, page, finished.returncode)
        return None
    assert finished.returncode == 0
    return finished.stdout.strip()


def run_killed(folder: Path, *, url: str, rows: int, round_number: int) -> Outcome:
    """Kill the run at each of its steps, each time at another point, and finish it."""
    folder.mkdir()
    for page in range(PAGES):
        run_once(folder, url=url, rows=rows, point=point_of(page, round_number), page=page)
    return finish(folder, url=url, rows=rows)


def point_of(page: int, round_number: int) -> str:
    return POINTS[(page + round_number) % len(POINTS)]


def expected_calls(round_number: int) -> Counter[int]:
    """Return how often each page is read: again only if its step was not recorded."""
    return Counter(
        {
            page: 1 if point_of(page, round_number) == "between the steps" else 2
            for page in range(PAGES)
        }
    )


def run_undisturbed(folder: Path, *, url: str, rows: int) -> Outcome:
    folder.mkdir()
    return finish(folder, url=url, rows=rows)


def finish(folder: Path, *, url: str, rows: int) -> Outcome:
    """Run the program to its end, and return what is left."""
    answer = run_once(folder, url=url, rows=rows)
    calls = Counter(map(int, (folder / "calls").read_text().split()))
    prompts: dict[int, set[str]] = {}
    for line in (folder / "prompts").read_text().splitlines():
        number, prompt = json.loads(line)
        prompts.setdefault(number, set()).add(prompt)
    outputs = recorded(url)
    file = url.partition("sqlite:///")[2]
    return Outcome(
        answer=str(answer),
        calls=calls,
        prompts=prompts,
        pages=asyncio.run(_stored_pages(folder, outputs)),
        recorded_bytes=sum(map(len, outputs)),
        database_bytes=Path(file).stat().st_size if file else 0,
    )


def recorded(url: str) -> list[str]:
    """Return what DBOS recorded for each step, in order."""
    is_file = url.startswith("sqlite")
    table = "operation_outputs" if is_file else "dbos.operation_outputs"
    engine = sqlalchemy.create_engine(url if is_file else url.replace("://", "+psycopg://"))
    statement = sqlalchemy.text(f"SELECT output FROM {table} ORDER BY function_id")
    with engine.connect() as connection:
        outputs = [str(output) for (output,) in connection.execute(statement)]
    engine.dispose()
    return outputs


async def _stored_pages(folder: Path, outputs: list[str]) -> list[Any]:
    """Return the result behind each pointer that a step recorded."""
    session = Session(FileContextPointerStore(folder / "context"), session_id=SESSION_ID)
    pages = []
    for output in outputs:
        content = json.loads(output)
        if isinstance(content, str):  # of a tool. A model's reply is an object
            pointer_id = content.partition("the id ")[2].partition(" ")[0]
            assert (await session.read(pointer_id, path="/0")).text
            pages.append(json.loads(session.results.load_payload(pointer_id)[1]))
    return pages


def _run_child(folder: Path, rows: int, point: str, page: int) -> None:
    os.chdir(folder)
    names = names_of("DBOS")
    list_parts, ask = names["list_parts"], names["ask"]

    def end_at(reached: str, number: int) -> None:
        if (reached, number) == (point, page):
            os._exit(KILLED)

    def note(file: str, line: str) -> None:
        with Path(file).open("a") as lines:
            lines.write(f"{line}\n")

    @wraps(list_parts)
    def counted_list_parts(page: int) -> Any:
        note("calls", str(page))
        end_at("in the tool", page)
        return list_parts(page)

    async def noted_ask(prompt: list[Any], tools: list[Any]) -> Any:
        assert {"list_parts", "read_context"} <= {tool.name for tool in tools}
        reply = await ask(prompt, tools)
        calls = reply.get("tool_calls")
        number = json.loads(calls[0]["function"]["arguments"])["page"] if calls else PAGES
        end_at("between the steps", number - 1)
        note("prompts", json.dumps([number, json.dumps(prompt)]))
        return reply

    class EndingSession(Session):
        """A session whose process may end after a result is stored, before the step returns."""

        async def offload(self, *args: Any, **options: Any) -> Any:
            shown = await super().offload(*args, **options)
            end_at("after the save", options["args"]["page"])
            return shown

    names |= {
        "ROWS": rows,
        "list_parts": counted_list_parts,
        "ask": noted_ask,
        "Session": EndingSession,
    }
    asyncio.run(names["main"]())


def _run_rounds(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base)
        plain = run_undisturbed(
            folder / "undisturbed", url=f"sqlite:///{base}/plain.sqlite", rows=10_000
        )
        problems = Counter[str]()
        for number in range(rounds):
            url = f"sqlite:///{base}/{number}.sqlite"
            outcome = run_killed(folder / str(number), url=url, rows=10_000, round_number=number)
            problems["repeated or lost calls"] += outcome.calls != expected_calls(number)
            problems["other prompts"] += outcome.prompts != plain.prompts
            problems["other results"] += outcome.pages != plain.pages
            problems["other answers"] += outcome.answer != plain.answer
            say(
                f"round {number}: {PAGES} kills, {outcome.calls.total()} calls, "
                f"{outcome.recorded_bytes:,} bytes recorded, {outcome.database_bytes:,} bytes of "
                f"database, problems {dict(+problems)}"
            )
        [prompt] = plain.prompts[PAGES]
        say(f"the last prompt has {len(prompt):,} characters")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "child":
        _run_child(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    else:
        _run_rounds(int(sys.argv[1]))
