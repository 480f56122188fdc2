"""How many calls until the answer stands before the model, if it follows what the previews say?

A script takes the place of the model. It knows the question, sees the preview, and asks only what
the preview offers, with the package's own reader, until the answer of the question has been shown
or `MAX_CALLS` are used up. The call of the tool is the first call, so that 1.0 is the best.

300 questions: 100 each of the product searches and the tables of Wikipedia, and 50 each of logs
(`previews/*` in `LLM_COMMON_EVAL_DATA`) and of the records that `quality_previews.py` makes, drawn
by a fixed seed. An answer is shown as in `quality_previews.py`, by all texts so far together. A
count is also told by a complete list of what is counted: a query with a condition or a pattern whose
answer ends, or a reading that has reached the end of the result.

| package | what the script does |
|---|---|
| llm-common | the query or the pattern in the preview, to its end, then the result page by page |
| strands-agents | a pattern of the question's rarest words, then the whole result |
| deepagents | the file, 100 lines a call (results of over 1,000 tokens are files) |
| pydantic-ai-harness | each of the question's rarest words as a pattern, then 200 lines a call |

The packages without a reader of their own (haystack-ai names a file, openai-agents nothing) have no
row. `python benchmarks/quality_calls.py`, with rows of packages that are installed, as by
`make bench-peers`.
"""

import asyncio
import gzip
import importlib
import json
import os
import random
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks.quality_previews import (
    COUNTER,
    KINDS,
    Case,
    csv_cases,
    log_cases,
    nested_cases,
    products,
    session_with,
    text_of,
    wikipedia,
)
from llm_common.agents import OffloadPolicy
from llm_common.ranking.question_words import FILLERS, NEUTRAL, words_of

DATA: Final = Path(os.environ.get("LLM_COMMON_EVAL_DATA", "")) / "previews"
MAX_CALLS: Final = 12
QUESTIONS: Final = {"products": 100, "Wikipedia": 100, "logs": 50, "own records": 50}

Reader = Callable[[Case], Iterator[str]]
"""Yields the preview of a case's result, and then the answer of each further call."""


@dataclass(frozen=True)
class Reading:
    """What one question took.

    Attributes:
        calls: Calls until the answer was shown, or `MAX_CALLS`.
        tokens: Tokens of all that was shown.
        is_answered: Whether it was shown.
    """

    calls: int
    tokens: int
    is_answered: bool


def logs(folder: Path) -> Iterator[Case]:
    """Yield the questions about logs."""
    data = json.loads(gzip.decompress((folder / "logs.tune.json.gz").read_bytes()))
    for row in data["questions"]:
        gold = row["gold"] if isinstance(row["gold"], list) else [row["gold"]]
        answers = tuple(map(str, gold))
        kind = KINDS[row["task_type"]]
        yield Case(kind, row["question"], data["logs"][row["log"]], answers, tuple(row["named"]))


def is_shown(case: Case, text: str) -> bool:
    """Return whether a text holds the answer. A count may have commas and stand by a long name."""
    if case.kind != "count":
        return case.score(text) == 1
    [number] = case.answers
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text.lower())
    for match in re.finditer(rf"(?<![\d.,]){re.escape(number)}(?![\d.,]*\d)", plain):
        for name in case.named:
            reach = 40 + len(name)
            around = plain[max(match.start() - reach, 0) : match.end() + reach]
            if name.lower() in around:
                return True
    return False


def read_until_answered(reader: Reader, case: Case) -> Reading:
    """Return what a question takes."""
    shown: list[str] = []
    for text in islice(reader(case), MAX_CALLS):
        is_told = case.kind == "count" and bool(shown) and _is_complete(case, text)
        shown.append(text)
        if is_told or is_shown(case, "\n".join(shown)):
            return Reading(len(shown), COUNTER.count("\n".join(shown)), is_answered=True)
    return Reading(MAX_CALLS, COUNTER.count("\n".join(shown)), is_answered=False)


COMPLETE: Final = "(complete list)"
"""Ends the text of a call that has listed all that its query or pattern finds."""


def _is_complete(case: Case, text: str) -> bool:
    """Return whether an answer lists all of something, or has the end of the result."""
    end = "".join(filter(str.isalnum, text_of(case.result)[-60:]))
    return text.endswith(COMPLETE) or end in "".join(filter(str.isalnum, text))


def rare_words(case: Case) -> list[str]:
    """Return the words of a question that its result contains, the rarest first."""
    text = text_of(case.result)
    counts = {}
    for word in words_of(case.question):
        written = case.question[word.start : word.end]
        if word.text not in FILLERS | NEUTRAL and written in text:
            counts[written] = text.count(written)
    return sorted(counts, key=lambda word: counts[word])[:3]


# --- ours


def ours(case: Case) -> Iterator[str]:
    """Read with a session, as its preview says."""
    loop = asyncio.new_event_loop()
    try:
        yield from _ours(case, loop.run_until_complete)
    finally:
        loop.close()


def _ours(case: Case, run: Callable[..., Any]) -> Iterator[str]:
    policy = OffloadPolicy(max_whole_tokens=0, max_turn_tokens=None)
    session = session_with(policy)
    preview = str(run(session.offload(case.result, tool="api", args={}, query=case.question)))
    yield preview
    [pointer_id] = re.findall(r"the id ([0-9a-f]{12})", preview)
    for sql in re.findall(r"^sql: (.*)$", preview, re.MULTILINE):
        for page in _pages(run, partial(session.query, sql)):
            yield page if " WHERE " in sql else page.removesuffix(COMPLETE)
    for pattern in re.findall(r"^pattern: (.*)$", preview, re.MULTILINE):
        yield from _pages(run, partial(session.read, pointer_id, pattern=pattern))
    yield from _pages(run, partial(session.read, pointer_id))


def _pages(run: Callable[..., Any], read: Callable[..., object]) -> Iterator[str]:
    """Yield the pages of an answer, each with the cursor that the one before names."""
    cursor = None
    while True:
        page = str(run(read(cursor=cursor)))
        following = re.search(r"\bcursor[= :\"']+([\w.-]+)", page)
        if following is None:
            yield f"{page}\n{COMPLETE}"
            return
        yield page
        cursor = following.group(1)


# --- other packages


def strands(case: Case) -> Iterator[str]:  # noqa: C901 - with a model of the package
    """Read with `retrieve_offloaded_content` of `ContextOffloader`."""
    package = importlib.import_module("strands")
    models = importlib.import_module("strands.models")
    offloader = importlib.import_module("strands.vended_plugins.context_offloader")
    pattern = "|".join(map(re.escape, rare_words(case)))
    asked: list[dict[str, str]] = [{"pattern": pattern}] if pattern else []
    asked.append({})

    class ScriptedModel(models.Model):  # type: ignore[misc, name-defined]
        calls = 0

        def update_config(self, **_: Any) -> None: ...

        def get_config(self) -> dict[str, Any]:
            return {"context_window_limit": 200_000}

        def structured_output(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[dict[str, Any]]:
            name, args = "api", dict[str, str]()
            if self.calls:
                reference = re.search(r"mem_[\w-]+", json.dumps(messages, default=str))
                if reference is None or self.calls > len(asked):
                    for event in _strands_events({"text": "done"}, {"start": {}}, "end_turn"):
                        yield event
                    return
                name = "retrieve_offloaded_content"
                args = {"reference": reference.group(), **asked[self.calls - 1]}
            self.calls += 1
            use = {"start": {"toolUse": {"name": name, "toolUseId": f"call-{self.calls}"}}}
            for event in _strands_events({"toolUse": {"input": json.dumps(args)}}, use, "tool_use"):
                yield event

    def api() -> object:
        """Return the result."""
        return case.result

    agent = package.Agent(
        model=ScriptedModel(),
        tools=[package.tool(api)],
        callback_handler=None,
        plugins=[offloader.ContextOffloader()],
    )
    agent(case.question)
    for message in agent.messages:
        for block in message["content"]:
            if "toolResult" in block:
                yield "\n".join(part.get("text", "") for part in block["toolResult"]["content"])


def _strands_events(
    delta: dict[str, Any], start: dict[str, Any], reason: str
) -> Iterator[dict[str, Any]]:
    yield {"messageStart": {"role": "assistant"}}
    yield {"contentBlockStart": start}
    yield {"contentBlockDelta": {"delta": delta}}
    yield {"contentBlockStop": {}}
    yield {"messageStop": {"stopReason": reason}}


def deepagents(case: Case) -> Iterator[str]:
    """Read with `read_file` of `FilesystemMiddleware`."""
    filesystem = importlib.import_module("deepagents.middleware.filesystem")
    fakes = importlib.import_module("langchain_core.language_models.fake_chat_models")
    messages = importlib.import_module("langchain_core.messages")

    class ScriptedModel(fakes.GenericFakeChatModel):  # type: ignore[misc, name-defined]
        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

    def api() -> object:
        """Return the result."""
        return case.result

    replies = [messages.AIMessage("", tool_calls=[{"name": "api", "args": {}, "id": "call-1"}])]
    for page in range(MAX_CALLS - 1):
        args = {"file_path": "/large_tool_results/call-1", "offset": 100 * page, "limit": 100}
        call = {"name": "read_file", "args": args, "id": f"call-{page + 2}"}
        replies.append(messages.AIMessage("", tool_calls=[call]))
    replies.append(messages.AIMessage("done"))
    agent = importlib.import_module("langchain.agents").create_agent(
        ScriptedModel(messages=iter(replies)),
        [importlib.import_module("langchain_core.tools").tool(api)],
        middleware=[filesystem.FilesystemMiddleware(tool_token_limit_before_evict=1_000)],
    )
    run = agent.invoke(
        {"messages": [messages.HumanMessage(case.question)]}, {"recursion_limit": 100}
    )
    for message in run["messages"]:
        if message.type == "tool":
            yield str(message.content)


def pydantic_ai_harness(case: Case) -> Iterator[str]:
    """Read with `read_tool_result` of `ToolOutputLimits`."""
    pydantic_ai = importlib.import_module("pydantic_ai")
    models = importlib.import_module("pydantic_ai.models.function")
    parts = importlib.import_module("pydantic_ai.messages")
    limits = importlib.import_module("pydantic_ai_harness.tool_output_limits")
    asked: list[dict[str, Any]] = [{"pattern": word} for word in rare_words(case)]
    asked += [{"offset": 200 * page} for page in range(MAX_CALLS)]

    def api() -> object:
        """Return the result."""
        return case.result

    def reply(messages: Sequence[Any], _: Any) -> Any:
        calls = sum(message.kind == "response" for message in messages)
        if not calls:
            return parts.ModelResponse(parts=[parts.ToolCallPart("api", {})])
        contents = [str(getattr(part, "content", "")) for each in messages for part in each.parts]
        handle = re.search(r"read_tool_result\(handle='([^']+)'", "\n".join(contents))
        if handle is None or calls >= MAX_CALLS:
            return parts.ModelResponse(parts=[parts.TextPart("done")])
        args = {"handle": handle.group(1), **asked[calls - 1]}
        return parts.ModelResponse(parts=[parts.ToolCallPart("read_tool_result", args)])

    with tempfile.TemporaryDirectory() as folder:
        store = limits.LocalFileStore(Path(folder))
        agent = pydantic_ai.Agent(
            models.FunctionModel(reply),
            tools=[pydantic_ai.Tool(api)],
            capabilities=[limits.ToolOutputLimits(store=store, tool_filter=["api"])],
        )
        run = agent.run_sync(case.question)
    for message in run.all_messages():
        for part in message.parts:
            if part.part_kind == "tool-return":
                yield str(part.content)


PEERS: Final[dict[str, Reader]] = {
    "strands-agents": strands,
    "deepagents": deepagents,
    "pydantic-ai-harness": pydantic_ai_harness,
}


def installed_readers() -> dict[str, Reader]:
    """Return the readers of llm-common and of the installed packages, by name and version."""
    readers: dict[str, Reader] = {"llm-common": ours}
    for package, reader in PEERS.items():
        try:
            readers[f"{package} {version(package)}"] = reader
        except PackageNotFoundError:
            continue
    return readers


def drawn() -> dict[str, list[Case]]:
    """Return the questions of each set."""
    made = [
        case for make in (log_cases, csv_cases, nested_cases) for case in make(random.Random(7))
    ]
    sets = {
        "products": list(products(DATA)),
        "Wikipedia": list(wikipedia(DATA)),
        "logs": list(logs(DATA)),
        "own records": made,
    }
    chosen = random.Random(300)
    return {name: chosen.sample(sets[name], number) for name, number in QUESTIONS.items()}


def main() -> None:
    """Print a table of the mean calls and tokens."""
    sets = drawn()
    names = " | ".join(f"{name} ({len(cases)})" for name, cases in sets.items())
    print(f"| calls until the answer | {names} | all | over 3 | not in {MAX_CALLS} | tokens |")
    print("|---" * (len(sets) + 5) + "|")
    for label, reader in installed_readers().items():
        means, everything = [], list[Reading]()
        for cases in sets.values():
            readings = [read_until_answered(reader, case) for case in cases]
            means.append(sum(reading.calls for reading in readings) / len(readings))
            everything += readings
        total = len(everything)
        mean = sum(reading.calls for reading in everything) / total
        late = sum(reading.calls > 3 for reading in everything) / total
        unanswered = sum(not reading.is_answered for reading in everything) / total
        tokens = sum(reading.tokens for reading in everything) / total
        cells = " | ".join(f"{each:.2f}" for each in (*means, mean, late, unanswered))
        print(f"| {label} | {cells} | {tokens:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
