"""What simpler ways show of the same outputs, in as many tokens.

None of them uses llm-common's own ranking, so that a reader can compare them with it.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

from llm_common.core import DefaultCounter
from llm_common.text import to_json

_COUNTER: Final = DefaultCounter()
_WORD: Final = re.compile(r"[a-z0-9]+")


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
