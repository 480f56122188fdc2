"""What simpler ways of choosing show of the same outputs, in as many tokens.

None of them uses llm-common's own ranking, so that a reader can compare them with it.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from llm_common.core import TokenCounter
from llm_common.text import to_json

# The defaults of Okapi BM25 in bm25s and rank_bm25.
_K1: Final = 1.5
_B: Final = 0.75
_WORD: Final = re.compile(r"[a-z0-9]+")


def first_tokens(outputs: Sequence[Any], *, max_tokens: int, counter: TokenCounter) -> str:
    """Return the beginnings of the outputs, which share the tokens equally."""
    share = max_tokens // max(len(outputs), 1)
    return "\n".join(_beginning(_text(output), share, counter) for output in outputs)


def best_records(
    query: str, outputs: Sequence[Any], *, max_tokens: int, counter: TokenCounter
) -> str:
    """Return the records of the outputs that BM25 ranks first, as many as the tokens hold.

    A record is an item of a list, a paragraph, or a line of a text without paragraphs.

    Args:
        query: The question.
        outputs: The outputs of the tools.
        max_tokens: Maximum tokens of all records.
        counter: Counts tokens.
    """
    records = [record for output in outputs for record in _records(output)]
    chosen: list[str] = []
    used = 0
    for record in _ranked(query, records):
        tokens = counter.count(record) + 1  # a line end
        if used + tokens > max_tokens:
            break
        chosen.append(record)
        used += tokens
    return "\n".join(chosen)


def _text(output: Any) -> str:
    return output if isinstance(output, str) else to_json(output)


def _records(output: Any) -> list[str]:
    if isinstance(output, list):
        return [json.dumps(item, ensure_ascii=False) for item in output]
    text = _text(output)
    return text.split("\n\n") if "\n\n" in text else text.splitlines()


def _beginning(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Return the longest beginning of a text within the tokens."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.count(text[:middle]) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def _ranked(query: str, records: Sequence[str]) -> list[str]:
    """Return the records in the order of Okapi BM25 (Robertson et al., TREC-3, 1994)."""
    words = [_WORD.findall(record.casefold()) for record in records]
    mean = sum(len(record) for record in words) / max(len(words), 1)
    in_records = Counter(word for record in words for word in set(record))
    asked = set(_WORD.findall(query.casefold()))
    scores = []
    for record in words:
        counts = Counter(record)
        norm = _K1 * (1 - _B + _B * len(record) / mean)
        score = 0.0
        for word in asked & counts.keys():
            others = len(words) - in_records[word]
            rarity = math.log(1 + (others + 0.5) / (in_records[word] + 0.5))
            score += rarity * counts[word] * (_K1 + 1) / (counts[word] + norm)
        scores.append(score)
    order = sorted(range(len(records)), key=lambda index: -scores[index])
    return [records[index] for index in order]
