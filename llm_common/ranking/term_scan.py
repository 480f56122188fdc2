"""BM25 without an index: counts the words of a request in texts that are in memory anyway.

For texts that are searched once or change all the time. A pass over 2 MB takes one to two milliseconds a word, where
filling a full-text index takes four hundred; on the evaluation sets both rank alike.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final

from llm_common.ranking.lexical import query_terms
from llm_common.ranking.subqueries import split_request

__all__ = ["folded", "scan", "search_stems"]

# The parameters of BM25 as Robertson and Zaragoza give them, "The Probabilistic Relevance Framework", 2009.
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.75

_BEYOND_ASCII: Final = re.compile("[^\0-\x7f]+")
_MARKS: Final = re.compile("[\u0300-\u036f]+")
_SHORTEST_STEM: Final = 4  # what is shorter counts as a whole word only
_TELLING: Final = 6  # stems of so many letters hardly stand within other words by chance
# Longest first. A stem finds whatever begins with it, so that a short one finds all forms of a word.
_ENDINGS: Final = tuple("ations ation ingly ings edly ing ies ied ers er ed es ly s e y".split())  # noqa: SIM905
_OFTEN_DOUBLE: Final = "aeiouls"  # `call`, `pass`; but `stopped` is of `stop`

Gains = Sequence[tuple[int, float]]
"""What a word adds to the documents that hold it, by their positions."""


def folded(text: str) -> str:
    """The text as it is compared: in lower case, without accents, in compatibility form. ASCII is quick."""
    if not text.isascii():
        text = _BEYOND_ASCII.sub(_without_marks, text)  # no mark but those that are dropped joins an ASCII character
    return text.lower()


def search_stems(text: str) -> tuple[str, ...]:
    """The words of a text to look for, folded and without endings, once each; see `query_terms`."""
    return tuple(dict.fromkeys(_stem(folded(term)) for term in query_terms(text)))


def scan(
    request: str,
    documents: Sequence[Sequence[str]],
    *,
    weights: Sequence[float],
    length_share: float = _LENGTH_SHARE,
) -> list[float]:
    """How well each document answers the request, from 0 to 1; the best is 1, what shares no word with it is 0.

    BM25 over the fields of the documents, counted together as in BM25F. A word is found by its beginning, whatever
    its ending (`deliver` in `delivery`), a long one within others too (`connection` in `getConnection`), one of fewer
    than four letters only whole. A request of several parts (see `split_request`) counts half as a whole, half by the
    part that suits the document best. Deterministic; the order of the documents does not matter; linear in their
    length.

    Args:
        request: Any text; its first 64 words count.
        documents: The `folded` fields of each.
        weights: What a word in a field weighs beside the others, in the order of the fields.
        length_share: How much a long document has to make up for, from 0 to 1.
    """
    if not documents:
        return []
    stems = search_stems(request)
    gains = _all_gains(stems, documents, weights, length_share)
    whole = _relative(stems, gains, len(documents))
    parts = [_relative(search_stems(part), gains, len(documents)) for part in split_request(request)]
    if not parts:
        return whole
    both = [value + max(of_parts) for value, *of_parts in zip(whole, *parts, strict=True)]
    top = max(both, default=0.0)
    return [value / top for value in both] if top else both


def _all_gains(
    stems: Sequence[str], documents: Sequence[Sequence[str]], weights: Sequence[float], length_share: float
) -> dict[str, Gains]:
    lengths = [sum(map(len, fields)) for fields in documents]
    average = sum(lengths) / len(lengths) if any(lengths) else 1.0
    burdens = [_SATURATION * (1 - length_share + length_share * length / average) for length in lengths]
    columns = list(zip(*documents, strict=True))
    return {stem: _gains(stem, columns, weights, burdens) for stem in stems}


def _gains(stem: str, columns: Sequence[Sequence[str]], weights: Sequence[float], burdens: Sequence[float]) -> Gains:
    counts = _counter(stem)
    totals: dict[int, float] = {}
    for texts, weight in zip(columns, weights, strict=True):
        for position, times in enumerate(counts(texts)):
            if times:
                totals[position] = totals.get(position, 0.0) + weight * times
    rarity = math.log1p((len(burdens) - len(totals) + 0.5) / (len(totals) + 0.5))
    return [(position, rarity * total / (total + burdens[position])) for position, total in totals.items()]


def _relative(stems: Collection[str], gains: dict[str, Gains], size: int) -> list[float]:
    """The summed gains of the stems over the largest such sum."""
    totals = [0.0] * size
    for stem in stems:
        for position, gain in gains.get(stem, ()):
            totals[position] += gain
    top = max(totals, default=0.0)
    return [total / top for total in totals] if top else totals


def _without_marks(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFKD", found[0])))


@lru_cache(maxsize=1_024)
def _counter(stem: str) -> Callable[[Iterable[str]], list[int]]:
    """What counts a stem in each of many texts; without a call of ours for each, since there are thousands."""
    if len(stem) >= _TELLING or not stem.isascii():
        return lambda texts: [text.count(stem) for text in texts]
    # The stem comes first, so that the engine can search for it quickly; then what must not stand before it.
    word = re.escape(stem)
    find = re.compile(
        rf"{word}(?<![a-z]{word})" if len(stem) >= _SHORTEST_STEM else rf"{word}(?<![a-z0-9]{word})(?:e?s)?(?![a-z0-9])"
    ).findall
    return lambda texts: [len(find(text)) if stem in text else 0 for text in texts]


def _stem(word: str) -> str:
    if not (word.isascii() and word.isalpha()):
        return word
    for ending in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= _SHORTEST_STEM:
            doubled = len(stem) > _SHORTEST_STEM and stem[-1] == stem[-2] and stem[-1] not in _OFTEN_DOUBLE
            return stem[:-1] if doubled else stem
    return word
