"""The process of a program: it answers the questions that it is given, and ends."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from llm_common.agents import SessionConfig, Sessions

Ask = Callable[[str, str], Awaitable[str]]
"""Answers a user's question. The same user has one conversation."""

Tools = Sequence[Callable[..., Any]]

Program = Callable[[str, Path, Sessions], Ask]
"""Returns how users ask, for the URL of the model, a folder and the sessions."""

CONFIG = SessionConfig(max_tool_tokens=1_200)  # the 24 tools take twice as many


def main() -> None:
    """Answer the questions of the command line, those of a batch at the same time.

    Its first argument is the module of the `Program`.
    """
    module, url, folder, batches = sys.argv[1:]
    sessions = Sessions(Path(folder) / "context", CONFIG)
    ask = import_module(module).program(url, Path(folder), sessions)
    answers = asyncio.run(_answers(ask, json.loads(batches)))
    # Not to the standard output, where frameworks print as well.
    (Path(folder) / "answers.json").write_text(json.dumps(answers), encoding="utf-8")


async def _answers(ask: Ask, batches: list[list[tuple[str, str]]]) -> list[str]:
    answers: list[str] = []
    for batch in batches:
        answers += await asyncio.gather(*(ask(user, text) for user, text in batch))
    return answers


if __name__ == "__main__":
    main()
