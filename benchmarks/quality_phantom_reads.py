"""Phantom reads: does a model answer from a part of a tool's output that it was never shown?

Each question has its answer in the part that the preview leaves out, and a value of the same kind
in sight. Counted are the questions for which the model read the output, right answers, answers that
say that it is not known, replies that are no answer (empty, or without an end), and made-up
answers. The wording of today's previews stands beside the earlier one, which said where more can be
read, but not that the rest has not been read. `Answering` is the whole way: its packed context at
2,000 tokens, with the offer to read.

Four models are scripted. The first reads whenever it sees an id, the second where a text says that
it has not read something; else both take the first value in sight. The third never reads. The
fourth reads once, and the wrong place. They show what the texts and the reader make possible, not
how a model decides. `--small-model` asks SmolLM2-135M, or the GGUF file given, as `make test-llm`
installs and serves it.
"""

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_common.agents import (
    Answering,
    InMemoryContextPointerStore,
    OffloadPolicy,
    OffloadTurn,
    ToolContextManager,
)
from llm_common.agents.answer_reading import AnswerRun, ReadOffer
from llm_common.core import (
    DefaultCounter,
    LLMConfig,
    LLMMessage,
    MessageRole,
    OpenAICompatibleClient,
)
from llm_common.core.structured import SupportsChat
from llm_common.errors import LLMError
from llm_common.prompt import TokenBudget
from llm_common.testing import ScriptedClient

ROOT = Path(__file__).parent.parent
PREVIEW_TOKENS = 250
BUDGET = TokenBudget(max_input_tokens=2_000, max_output_tokens=120)
TIMEOUT_S = 300
TODAY = re.compile(
    r"\. You have not read the rest: read it with (\w+) and the id (\w+) before you conclude\."
)
EARLIER = r"; read more with \1 and the id \2."
SYSTEM = "Answer the question about the tool's output, in a few words. Say so if you do not know."
UNKNOWN = re.compile(r"\b(?:not|unknown|cannot|unable|no)\b|n't\b", re.IGNORECASE)
COLUMNS = ("read", "right", "not known", "no answer", "made up")
CITIES = [
    "Oslo",
    "Lima",
    "Cairo",
    "Quito",
    "Perth",
    "Turin",
    "Accra",
    "Delhi",
    "Seoul",
    "Tunis",
    "Davao",
    "Bern",
]
NAMES = [
    "Maren",
    "Tariq",
    "Ines",
    "Pavel",
    "Aiko",
    "Lucia",
    "Owen",
    "Sanna",
    "Dario",
    "Noor",
    "Emil",
    "Thea",
]


@dataclass(frozen=True)
class Case:
    """A question about an output.

    `select` is the part that holds the answer, `in_sight` finds a value of its kind.
    """

    question: str
    output: Any
    answer: str
    select: dict[str, Any]
    in_sight: str


def in_charge(rng: random.Random) -> Case:
    names = rng.sample(NAMES, 3)
    lines = [
        f"02:{number // 60 % 60:02}:{number % 60:02} pump {rng.randint(1, 9)} ok"
        for number in range(900)
    ]
    lines[0], lines[-1] = (
        f"evening shift, duty officer {names[0]}",
        f"morning shift, duty officer {names[1]}",
    )
    lines[rng.randint(300, 600)] = f"02:30:00 night shift, duty officer {names[2]}"
    return Case(
        "Who was responsible at half past two?",
        "\n".join(lines),
        names[2],
        {"pattern": "night shift.*"},
        r"duty officer (\w+)",
    )


def by_place(rng: random.Random) -> Case:
    cities = [rng.choice(CITIES) + f" {number}" for number in rng.sample(range(1_000, 9_000), 800)]
    place = rng.randint(200, 600)
    return Case(
        f"Which one is at position {place}, counted from 0?",
        cities,
        cities[place],
        {"path": f"/{place}"},
        r"(?m)^([A-Z]\w+ \d{4})$",
    )


def only_one(rng: random.Random) -> Case:
    rows = [
        {"host": f"web{number}", "load": rng.randint(1, 90), "up": True} for number in range(500)
    ]
    place = rng.randint(150, 350)
    rows[place]["up"] = False
    return Case(
        "Which machine is broken?",
        rows,
        f"web{place}",
        {"path": f"/{place}/host"},
        r"(?m)^(web\d+) \|",
    )


def cases(each: int) -> list[Case]:
    rng = random.Random(11)
    return [make(rng) for _ in range(each) for make in (in_charge, by_place, only_one)]


Script = Callable[[Case, str, str], str]


def call(pointer_id: str, **part: Any) -> str:
    return json.dumps({"tool": "read_context", "args": {"id": pointer_id, **part}})


def reads_where_an_id_is(case: Case, prompt: str, pointer_id: str) -> str:
    return (
        call(pointer_id, **case.select)
        if pointer_id in prompt
        else takes_what_is_in_sight(case, prompt, pointer_id)
    )


def reads_what_is_called_unread(case: Case, prompt: str, pointer_id: str) -> str:
    return (reads_where_an_id_is if "not read" in prompt else takes_what_is_in_sight)(
        case, prompt, pointer_id
    )


def takes_what_is_in_sight(case: Case, prompt: str, _: str) -> str:
    found = re.search(case.in_sight, prompt)
    return found[1] if found else "I do not know."


def reads_the_wrong_place(_: Case, __: str, pointer_id: str) -> str:
    return call(pointer_id, chars=[0, 200])


SCRIPTS: dict[str, Script] = {
    "reads where an id is": reads_where_an_id_is,
    "reads what is called unread": reads_what_is_called_unread,
    "never reads": takes_what_is_in_sight,
    "reads the wrong place": reads_the_wrong_place,
}


def scripted(script: Script, case: Case, pointer_id: str) -> ScriptedClient:
    """Reply as a model that answers from what it has read."""

    def reply(messages: list[LLMMessage]) -> str:
        if messages[-2].role != MessageRole.ASSISTANT:
            return script(case, str(messages[-1].content), pointer_id)
        return case.answer if case.answer in str(messages[-1].content) else "I do not know."

    return ScriptedClient([], default=reply)


async def stored(case: Case) -> tuple[ToolContextManager, str, str]:
    """Return a session with the output, its id and its preview."""
    manager = ToolContextManager(pointer_store=InMemoryContextPointerStore())
    pointer = await manager.save_context("lookup", {"of": "all"}, case.output)
    turn = OffloadTurn(OffloadPolicy(max_preview_tokens=PREVIEW_TOKENS), query=case.question)
    preview = (await turn.preview(pointer, case.output)).text
    if re.search(rf"\b{re.escape(case.answer)}\b", preview) or not TODAY.search(preview):
        sys.exit(f"the preview shows the answer to {case.question!r}, or has another wording")
    return manager, pointer.pointer_id, preview


async def from_preview(
    case: Case, client: SupportsChat, manager: ToolContextManager, preview: str
) -> tuple[int, str | None]:
    offer = ReadOffer(manager.load_payload, name="read_context", max_reads=2, native=False)
    run = AnswerRun(
        client, model=None, timeout_s=TIMEOUT_S, budget=BUDGET, counter=DefaultCounter()
    )
    messages = [
        LLMMessage(role=MessageRole.SYSTEM, content=f"{SYSTEM}\n\n{offer.instructions}"),
        LLMMessage(role=MessageRole.USER, content=f"{preview}\n\n{case.question}"),
    ]
    try:
        text: str | None = await run.text(messages, offer)
    except LLMError:
        text = None
    return len(run.reads), text


async def from_answering(
    case: Case, client: SupportsChat, manager: ToolContextManager
) -> tuple[int, str | None]:
    answering = Answering(budget=BUDGET, max_reads=2, native_tools=False, timeout_s=TIMEOUT_S)
    answer = await answering.answer(client, manager, query=case.question)
    return len(answer.reads), answer.text


def judged(case: Case, reads: int, text: str | None) -> dict[str, int]:
    right = text is not None and bool(
        re.search(rf"\b{re.escape(case.answer)}\b", text, re.IGNORECASE)
    )
    outcome = (
        "right"
        if right
        else "no answer"
        if text is None
        else "not known"
        if UNKNOWN.search(text)
        else "made up"
    )
    return {column: int(column == outcome) for column in COLUMNS} | {"read": int(reads > 0)}


async def measure(
    model: str, asked: list[Case], client_for: Callable[[Case, str], SupportsChat]
) -> None:
    counts = {
        way: dict.fromkeys(COLUMNS, 0)
        for way in ("earlier wording", "today's wording", "`Answering`")
    }
    for case in asked:
        manager, pointer_id, preview = await stored(case)
        client = client_for(case, pointer_id)
        earlier = TODAY.sub(EARLIER, preview)
        found = {
            "earlier wording": await from_preview(case, client, manager, earlier),
            "today's wording": await from_preview(case, client, manager, preview),
            "`Answering`": await from_answering(case, client, manager),
        }
        for way, outcome in found.items():
            for column, number in judged(case, *outcome).items():
                counts[way][column] += number
    for way, numbers in counts.items():
        print(
            f"| {model} | {way} | {' | '.join(str(numbers[column]) for column in COLUMNS)} |",
            flush=True,
        )


@contextmanager
def served(model_file: str) -> Iterator[str]:
    """Serve a model until the end of the block, and return its base URL.

    It is installed by `make test-llm`.
    """
    command = [
        str(ROOT / ".llm-venv/bin/python"),
        str(ROOT / "tests/llm/serve.py"),
        *filter(None, [model_file]),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        try:
            assert server.stdout is not None
            yield f"{server.stdout.readline().decode().strip()}/v1"
        finally:
            server.terminate()


async def measure_small_model(asked: list[Case], base_url: str) -> None:
    config = LLMConfig(
        base_url=base_url,
        default_model="small",
        provider="local",
        timeout_s=TIMEOUT_S,
        temperature=0,
    )
    async with OpenAICompatibleClient(config) as client:
        await measure(f"small model, {len(asked)} questions", asked, lambda *_: client)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--small-model",
        nargs="?",
        const="",
        metavar="FILE",
        help="ask it, too; SmolLM2 without a file",
    )
    parser.add_argument(
        "--questions", type=int, default=2, help="of each of the four kinds, for the small model"
    )
    arguments = parser.parse_args()
    print(f"| model | what it sees | {' | '.join(COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}")
    for name, script in SCRIPTS.items():

        def client_for(case: Case, pointer_id: str, script: Script = script) -> SupportsChat:
            return scripted(script, case, pointer_id)

        asyncio.run(measure(f"scripted: {name}", cases(each=6), client_for))
    if arguments.small_model is not None:
        with served(arguments.small_model) as base_url:
            asyncio.run(measure_small_model(cases(each=arguments.questions), base_url))


if __name__ == "__main__":
    main()
