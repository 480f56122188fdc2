"""What simpler ways show of the same outputs, in as many tokens.

None of them uses llm-common's choices, so that a reader can compare them with it.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

from llm_common.core import DefaultCounter
from llm_common.ranking import BM25, word_scores
from llm_common.text import to_json

_COUNTER: Final = DefaultCounter()
_WORD: Final = re.compile(r"[a-z0-9]+")


def first_tokens(outputs: Sequence[Any], *, max_tokens: int) -> str:
    """Return the beginnings of the outputs, which share the tokens equally."""
    share = max_tokens // max(len(outputs), 1)
    beginnings = []
    for output in outputs:
        text = output if isinstance(output, str) else to_json(output)
        # The empty beginning always fits, so the longest has one character less than their number.
        fitting = bisect_right(
            range(len(text) + 1), share, key=lambda end: _COUNTER.count(text[:end])
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
    words = [_WORD.findall(record.casefold()) for record in records]
    # The parameters are the defaults of bm25s and rank_bm25.
    norms = BM25(k1=1.5, b=0.75).length_norms([len(record) for record in words])
    scores = [0.0] * len(records)
    for word in set(_WORD.findall(query.casefold())):
        counts = {index: record.count(word) for index, record in enumerate(words) if word in record}
        for index, score in word_scores(counts, norms, len(records)).items():
            scores[index] += score
    order = sorted(range(len(records)), key=lambda index: -scores[index])
    return [records[index] for index in order]
