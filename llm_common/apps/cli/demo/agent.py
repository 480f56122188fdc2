"""An agent that asks the questions, what its prompts contain, and what simpler ways show.

The simpler ways get the same outputs and as many tokens. None of them uses llm-common's own
ranking, so that a reader can compare them with it.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llm_common.agents import (
    AgenticExecutor,
    Answering,
    FileContextPointerStore,
    LexicalToolSelector,
    OffloadPolicy,
    Session,
    TokenBudget,
)
from llm_common.apps.cli.demo.public_data import Question, public_tools
from llm_common.core import DefaultCounter, LLMResponse
from llm_common.testing import ScriptedClient
from llm_common.text import to_json
from llm_common.trace import NO_MODEL, Trace

BUDGET: Final = TokenBudget(max_input_tokens=4_000, max_output_tokens=500)
STORE: Final = "context"
TRACES: Final = "traces"
_NO_ANSWER: Final = LLMResponse(
    id="none",
    model=NO_MODEL,
    content="Nothing answers here: no model is asked.",
    cost_usd=0.0,
)
_COUNTER: Final = DefaultCounter()
_WORD: Final = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """What the agent gathered for a question, and where its evidence is.

    Attributes:
        question: The question.
        trace: The trace of the run, or None if it could not be written.
        output_tokens: Tokens of the tools' outputs by pointer id.
        tokens_returned: Tokens of all outputs of the tools.
        tokens_in_prompt: Tokens of the prompt that a model would get.
        missing: The pieces of evidence that the prompt lacks.
        in_prompt: Whether the prompt contains all of it.
        in_first_tokens: Whether the beginnings of the outputs contain all of it, in as many tokens.
        in_best_records: Whether the records that BM25 ranks first do.
        problem: What failed, or an empty text.
    """

    question: Question
    trace: Path | None
    output_tokens: dict[str, int]
    tokens_returned: int
    tokens_in_prompt: int
    missing: tuple[str, ...]
    in_prompt: bool
    in_first_tokens: bool
    in_best_records: bool
    problem: str


async def ask(question: Question, number: int, folder: Path) -> QuestionResult:
    """Gather the data for a question, and look for its evidence in the prompt.

    Word ranking chooses the calls. No model answers, so the run ends with its prompt. The folder
    gets the outputs and the trace.

    Raises:
        StoreError: If the store cannot be read.
    """
    session = Session(FileContextPointerStore(folder / STORE), session_id=f"demo:{number}")
    await session.clear()  # of an earlier demo in this folder
    model = ScriptedClient([], default=_NO_ANSWER)
    executor = AgenticExecutor(
        model,
        public_tools(),
        session,
        selector=LexicalToolSelector(),
        offload=OffloadPolicy(),
        read_back=True,
    )
    # With texts, so that the page shows the prompt. The data is public.
    trace = Trace(folder / TRACES, texts=True)
    with trace.run(session.results.query_id_of(question.text), query=question.text) as run:
        answer = await executor.run(
            question.text, plan=question.steps, answering=Answering(budget=BUDGET)
        )
    trace.flush()  # the pages are rendered from the file

    outputs = []
    tokens = {}
    for pointer in session.results.pointers.values():
        output = await session.store.aload_result(pointer=pointer)
        text = output if isinstance(output, str) else to_json(output)
        tokens[pointer.pointer_id] = _COUNTER.count(text)
        outputs.append(output)

    prompt = "\n".join(str(message.content) for call in model.calls for message in call.messages)
    missing = question.missing_from(prompt)
    # The simpler ways get as many tokens as the prompt has.
    first = first_tokens(outputs, max_tokens=answer.prompt_tokens)
    best = best_records(question.text, outputs, max_tokens=answer.prompt_tokens)
    return QuestionResult(
        question=question,
        trace=run.path,
        output_tokens=tokens,
        tokens_returned=sum(tokens.values()),
        tokens_in_prompt=answer.prompt_tokens,
        missing=missing,
        in_prompt=not missing,
        in_first_tokens=not question.missing_from(first),
        in_best_records=not question.missing_from(best),
        problem=answer.problem or "; ".join(answer.failures),
    )


def first_tokens(outputs: Sequence[Any], *, max_tokens: int) -> str:
    """Return the beginnings of the outputs, which share the tokens equally."""
    beginnings = []
    for output in outputs:
        text = output if isinstance(output, str) else to_json(output)
        # The empty beginning always fits, so the longest has one character less than their number.
        fitting = bisect_right(
            range(len(text) + 1),
            max_tokens // len(outputs),
            key=lambda end: _COUNTER.count(text[:end]),
        )
        beginnings.append(text[: fitting - 1])
    return "\n".join(beginnings)


def best_records(query: str, outputs: Sequence[Any], *, max_tokens: int) -> str:
    """Return the records that Okapi BM25 ranks first, as many as the tokens hold.

    A record is an item of a list, a paragraph, or a line of a text without paragraphs.
    """
    chosen: list[str] = []
    for record in _ranked(query, [record for output in outputs for record in _records(output)]):
        max_tokens -= _COUNTER.count(record) + 1  # a line end
        if max_tokens < 0:
            break
        chosen.append(record)
    return "\n".join(chosen)


def _records(output: list[Any] | str) -> list[str]:
    if isinstance(output, list):
        return [to_json(item) for item in output]
    return output.split("\n\n") if "\n\n" in output else output.splitlines()


def _ranked(query: str, records: Sequence[str]) -> list[str]:
    """Return the records in the order of Okapi BM25 (Robertson et al., TREC-3, 1994)."""
    words = [_WORD.findall(record.casefold()) for record in records]
    mean = sum(map(len, words)) / max(len(words), 1)
    # With k1 = 1.5 and b = .75, the defaults of bm25s and rank_bm25.
    norms = [1.5 * (0.25 + 0.75 * len(record) / mean) for record in words]
    scores = [0.0] * len(records)
    for word in set(_WORD.findall(query.casefold())):
        counts = {index: record.count(word) for index, record in enumerate(words) if word in record}
        rarity = math.log1p((len(records) - len(counts) + 0.5) / (len(counts) + 0.5))
        for index, count in counts.items():
            scores[index] += rarity * count / (count + norms[index])
    order = sorted(range(len(records)), key=lambda index: -scores[index])
    return [records[index] for index in order]
