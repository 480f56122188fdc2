"""`ToolIndex`: tools ranked for a request by their words, and by their meaning with an embedder."""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final

from llm_common.ranking.embeddings import Embedder
from llm_common.ranking.lexical import (
    BM25,
    MAX_WORD_CHARS,
    folded,
    identifier_words,
    idf,
    query_terms,
    search_stems,
    split_identifiers,
    stem,
    word_scores,
)
from llm_common.tools.definitions import ToolDefinition
from llm_common.tools.signature import properties_of, value_text
from llm_common.tools.tool import Tool

_LETTERS: Final = 4


class Postings:
    """Scores documents against terms by BM25.

    A request takes about 50 ns for each document that contains one of its terms. A term that no
    earlier request had takes three times as long. The order of the documents never changes a score.
    Threads may share one.

    Args:
        bm25: The parameters of the formula.
        documents: The terms of each document, by its key.

    Attributes:
        keys: The sorted keys. An index into them identifies a document in the scores.
    """

    def __init__(self, bm25: BM25, documents: Mapping[str, Iterable[str]]) -> None:
        self.keys = tuple(sorted(documents))
        self._documents = [Counter(documents[key]) for key in self.keys]
        self._postings: dict[str, dict[int, int]] = {}
        for index, counts in enumerate(self._documents):
            for term, count in counts.items():
                self._postings.setdefault(term, {})[index] = count
        self._norms = bm25.length_norms(list(map(Counter.total, self._documents)))
        # Computed on demand. Two threads may compute the same entry, which is then set twice.
        self._scores: dict[str, dict[int, float]] = {}
        self._weights: list[float] = []

    def scores(self, terms: Iterable[str], *, max_matches: float = math.inf) -> dict[int, float]:
        """Return the score of each document relative to the best, by its index in `keys`.

        Args:
            terms: The terms to look for, each distinct term once.
            max_matches: Terms in more documents than this are ignored.
        """
        totals: dict[int, float] = {}
        for term in terms:
            scores = self._term_scores(term)
            if len(scores) <= max_matches:
                for index, score in scores.items():
                    totals[index] = totals.get(index, 0.0) + score
        top = max(totals.values(), default=0.0)
        return {index: score / top for index, score in totals.items()}

    def shares(self, terms: Iterable[str]) -> dict[int, float]:
        """Return how much of each document the terms cover, from 0 to 1, by its index in `keys`.

        Rare terms weigh more.

        Args:
            terms: The terms to look for, each distinct term once.
        """
        if not self._weights:
            idfs = {term: self._idf(term) for term in self._postings}
            weights: list[float] = []
            for counts in self._documents:
                # fsum is exact, so the order of the terms does not change a share.
                weights.append(math.fsum(map(idfs.__getitem__, counts)))
            self._weights = weights
        totals: dict[int, float] = {}
        for term in terms:
            weight = self._idf(term)
            for index in self._postings.get(term, ()):
                totals[index] = totals.get(index, 0.0) + weight
        return {index: total / self._weights[index] for index, total in totals.items()}

    def contains(self, index: int, term: str) -> bool:
        """Return whether the document contains the term."""
        return term in self._documents[index]

    def score_of(self, index: int, terms: Iterable[str], *, min_documents: int) -> float:
        """Return the score of one document in nats, as if there were `min_documents` or more.

        A small pool then counts as a larger one, so that scores compare between pools.
        """
        norm = self._norms[index]
        total = 0.0
        for term in terms:
            count = self._documents[index][term]
            if count:
                total += self._idf(term, min_documents=min_documents) * count / (count + norm)
        return total

    def _idf(self, term: str, *, min_documents: int = 0) -> float:
        return idf(len(self._postings.get(term, ())), max(len(self._documents), min_documents))

    def _term_scores(self, term: str) -> dict[int, float]:
        """Return what a term adds to the score of each document that contains it."""
        scores = self._scores.get(term)
        if scores is None:
            posting = self._postings.get(term, {})
            scores = word_scores(posting, self._norms, len(self._norms))
            if posting:  # requests may contain any number of terms that occur in no document
                self._scores[term] = scores
        return scores


def stems_and_letters(text: str) -> tuple[list[str], list[str]]:
    """Return the stem of every word of a text, and every run of four letters within a word.

    The parts of an identifier count too. Runs of letters find `database` in `mydatabase`.
    """
    stems: list[str] = []
    letters: list[str] = []
    for word in identifier_words(text):
        word_stem, word_letters = _stem_and_letters(word)
        stems.append(word_stem)
        letters += word_letters
    return stems, letters


@lru_cache(maxsize=65_536)
def _stem_and_letters(word: str) -> tuple[str, list[str]]:
    word = folded(word)
    if len(word) > MAX_WORD_CHARS:
        return stem(word), []
    if len(word) == _LETTERS - 1:
        return stem(word), [word]
    starts = range(len(word) - _LETTERS + 1)
    return stem(word), [word[start : start + _LETTERS] for start in starts]


# The constants were chosen on the tuning half of the tool sets (benchmarks/quality_tools.py), by
# the mean of Recall@5 over all sets. docs/benchmarks.md says what each contributes.
# k1 of 1.2 to 4, or b of .3 to .5, changes Recall@5 by .004 at most. The paper's 1.2 and .75 lose
# .009 by words.
_BM25: Final = BM25(k1=2.0, b=0.4)
_NAME_WEIGHT: Final = 0.75
_LETTERS_WEIGHT: Final = 0.3
_MAX_LETTERS_TOOLS: Final = 100  # letters that more tools share say little, and cost most time
_VECTOR_WEIGHT: Final = 2.0  # from 1.5 to 3, Recall@5 changes by .003 at most

# Chosen on the tuning half of the sets whose requests may fit no tool, bfcl_select and
# metatool_select.
MIN_SCORE: Final = 0.25
"""The score below which the best tool fits the request no better than chance."""

_HALF_EVIDENCE: Final = 4.5  # in nats, the evidence that scores .5
_NAME_EVIDENCE: Final = 8.0
_VECTOR_EVIDENCE: Final = 12.0
_UNRELATED: Final = 0.25  # the cosine of unrelated texts
_MIN_POOL: Final = 1_000  # in a pool of three tools every word is frequent

_FITS: Final = 0.5  # even odds. On requests with several parts, .5 to .65 differ by .003 at most
# Of the ranking by words and of that by meaning. A tool that is lower never comes first in the sum.
_MAX_WEIGHED: Final = 100
# A schema may be huge or recursive, so only this much of it is indexed.
_MAX_PARAMETERS: Final = 1_000
_MAX_VALUES: Final = 50
_MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class RankedTool:
    """A tool with its score for a request.

    Attributes:
        name: The tool's name.
        score: From 0 to 1, comparable between requests and indexes. Tools fit from `MIN_SCORE` on.
        why: The words of the request that the tool has, the share of its name that the request
            has, and the cosine, if there is an embedder. "" for a tool that shares nothing with
            the request.
    """

    name: str
    score: float
    why: str


class ToolIndex:
    """Ranks tools for a request.

    The index reads a tool's name and description, and the names, descriptions and enum values of
    its parameters. Its value for a request is a sum:

    - BM25 over the stems of these words, relative to the best tool
    - 0.3 times BM25 over every four letters of a word, relative to the best tool
    - 0.75 times the share of the tool's name that the request contains
    - with an embedder, twice the cosine with name and description

    The order of the tools never matters, and ties are in the order of names. Threads may share an
    index. Indexing a tool takes 0.2 ms, a request to 10,000 tools some 3 ms.

    Args:
        tools: Tools, a `ToolRegistry`, or definitions, such as `read_definitions` reads from the
            JSON of MCP or OpenAI. The last of a repeated name counts.
        embedder: Compares texts by meaning, such as `StaticVectors`. None ranks by words alone.

    Raises:
        TypeError: If one is neither a `Tool` nor a `ToolDefinition`.
    """

    def __init__(
        self, tools: Iterable[Tool | ToolDefinition] = (), embedder: Embedder | None = None
    ) -> None:
        self._embedder = embedder
        by_name: dict[str, Tool | ToolDefinition] = {}
        for tool in tools:
            if not isinstance(tool, Tool | ToolDefinition):
                raise TypeError(
                    f"a {type(tool).__name__} is not a tool; pass a Tool or a ToolDefinition; "
                    "read_definitions of llm_common.tools makes these of JSON"
                )
            by_name[tool.name] = tool
        words: dict[str, list[str]] = {}
        letters: dict[str, list[str]] = {}
        names: dict[str, list[str]] = {}
        abouts: dict[str, str] = {}
        for name, tool in by_name.items():
            parameters = " ".join(islice(_parameter_texts(tool.parameters), _MAX_PARAMETERS))
            words[name], letters[name] = stems_and_letters(
                f"{name} {tool.description} {parameters}"
            )
            names[name] = stems_and_letters(name)[0]
            abouts[name] = f"{split_identifiers(name)} {tool.description}"
        self._words, self._letters = Postings(_BM25, words), Postings(_BM25, letters)
        self._names = Postings(_BM25, names)
        # In the order of their indexes.
        self._abouts = tuple(map(abouts.__getitem__, self._words.keys))

    def __len__(self) -> int:
        return len(self._abouts)

    def rank(
        self, query: str, limit: int = 10, sub_queries: Sequence[str] = ()
    ) -> tuple[RankedTool, ...]:
        """Return the tools for a request, best first.

        With sub-queries, such as the steps of a plan, each is ranked alone and the request itself
        does not count. Tools are in the order of their summed odds, `score / (1 - score)`, so a
        sub-query that fits no tool well has little influence. Before all other tools comes the best
        one of each sub-query, if it scores .5. A tool has the score of the sub-query that it fits
        best.

        Args:
            query: The user's question.
            limit: Maximum number of tools to return.
            sub_queries: The parts of the request.

        Returns:
            `limit` rows if there are as many tools. Those that share nothing with the request come
            last, in the order of names. If the first row scores below `MIN_SCORE`, no tool fits.

        Raises:
            TypeError: If `query` or a sub-query is not a str, or `sub_queries` is not a list.
        """
        if isinstance(sub_queries, str) or not isinstance(sub_queries, Sequence):
            raise TypeError(f"sub_queries is a {type(sub_queries).__name__}; pass a list of texts")
        for text in (query, *sub_queries):
            if not isinstance(text, str):
                raise TypeError(f"a request must be a str, got {type(text).__name__}")
        texts = [*dict.fromkeys(sub_queries or (query,))]
        limit = max(limit, 0)
        rows = self._ranked(texts[0], limit) if len(texts) == 1 else self._fused(texts, limit)
        if len(rows) < limit:
            # A short list that leaves out the only useful tool is worse than one with others.
            ranked_names = {row.name for row in rows}
            others = [name for name in self._words.keys if name not in ranked_names]
            rows += [RankedTool(name, 0.0, "") for name in others[: limit - len(rows)]]
        return tuple(rows)

    def _fused(self, texts: Sequence[str], limit: int) -> list[RankedTool]:
        """Return the best tools for several texts. See `rank`."""
        rankings = [self._ranked(text, _MAX_WEIGHED) for text in texts]
        firsts: set[str] = set()
        for rows in rankings:
            if rows and rows[0].score >= _FITS:
                firsts.add(rows[0].name)
        best: dict[str, RankedTool] = {}
        odds: dict[str, list[float]] = {}
        for row in chain.from_iterable(rankings):
            before = best.setdefault(row.name, row)
            if (row.score, row.why) > (before.score, before.why):
                best[row.name] = row
            # Never divides by 0: scores stay below 1, since `_HALF_EVIDENCE` is above 0.
            odds.setdefault(row.name, []).append(row.score / (1 - row.score))
        # `fsum` is exact, so the order of the sub-queries never decides between two tools.
        names = heapq.nsmallest(
            limit, odds, key=lambda name: (name not in firsts, -math.fsum(odds[name]), name)
        )
        return [best[name] for name in names]

    def _ranked(self, text: str, limit: int) -> list[RankedTool]:
        """Return the best tools for one text, or none."""
        stems = search_stems(text)
        if not stems:
            return []
        name_shares = self._names.shares(stems)
        by_words, cosines = self._by_words(text, name_shares), self._cosines(text)
        values = {index: by_words[index] for index in _best(by_words, _MAX_WEIGHED)}
        if cosines:
            # A tool may be near by meaning without a word of the request.
            nearest = heapq.nlargest(_MAX_WEIGHED, range(len(cosines)), key=cosines.__getitem__)
            for index in {*values, *nearest}:
                values[index] = values.get(index, 0.0) + _VECTOR_WEIGHT * cosines[index]
        best = _best(values, limit)
        if not best or values[best[0]] <= 0:
            return []

        ranked: list[RankedTool] = []
        top_score = 0.0
        for index in best:
            name, share = self._words.keys[index], name_shares.get(index, 0.0)
            cosine = cosines[index] if cosines else None
            if not ranked:
                # Only the first tool's score is measured. The others follow by their values.
                top_score = self._score(index, share, cosine, stems)
            score = top_score * values[index] / values[best[0]]
            ranked.append(RankedTool(name, score, self._why(text, index, share, cosine)))
        return ranked

    def _by_words(self, text: str, name_shares: Mapping[int, float]) -> dict[int, float]:
        """Return the value of each tool that shares words with the text, by its index."""
        stems = search_stems(text)
        letters = dict.fromkeys(stems_and_letters(" ".join(query_terms(text)))[1])
        parts = (
            (1.0, self._words.scores(stems)),
            (_LETTERS_WEIGHT, self._letters.scores(letters, max_matches=_MAX_LETTERS_TOOLS)),
            (_NAME_WEIGHT, name_shares),
        )
        values: dict[int, float] = {}
        for weight, scores in parts:
            for index, score in scores.items():
                values[index] = values.get(index, 0.0) + weight * score
        return values

    def _cosines(self, text: str) -> list[float]:
        if self._embedder is None or not self._abouts:
            return []
        cosines: list[float] = []
        for cosine in self._embedder.similarities(text, self._abouts):
            # An application's embedder may return nan for an empty text, or a hair over 1.
            cosines.append(min(max(cosine, 0.0), 1.0) if math.isfinite(cosine) else 0.0)
        return cosines

    def _score(self, index: int, share: float, cosine: float | None, stems: Sequence[str]) -> float:
        """Return how well a tool fits, from 0 to 1, independent of the other tools."""
        evidence = (
            self._words.score_of(index, stems, min_documents=_MIN_POOL) + _NAME_EVIDENCE * share
        )
        if cosine is not None:
            evidence += _VECTOR_EVIDENCE * max(0.0, cosine - _UNRELATED)
        return evidence / (evidence + _HALF_EVIDENCE)

    def _why(self, text: str, index: int, share: float, cosine: float | None) -> str:
        reasons: list[str] = []
        shared = [
            term for term in query_terms(text) if self._words.contains(index, stem(folded(term)))
        ]
        if shared:
            reasons.append(f"words {', '.join(shared[:_MAX_NAMED])}")
        if share:
            reasons.append(f"name {share:.2f}")
        if cosine is not None:
            reasons.append(f"meaning {cosine:.2f}")
        return "; ".join(reasons) or "letters"


def _best(values: Mapping[int, float], limit: int) -> list[int]:
    """Return the indices of the highest values, ties in the order of names."""
    # The indices are in the order of names, and `nlargest` keeps the order of equal values.
    return heapq.nlargest(limit, sorted(values), key=values.__getitem__)


def _parameter_texts(schema: Mapping[str, Any]) -> Iterator[str]:
    for name, value in properties_of(schema, schema).items():
        values = value.get("enum")
        listed = ""
        if isinstance(values, list):
            listed = " ".join(map(value_text, values[:_MAX_VALUES]))
        yield f"{name} {value.get('description', '')} {listed}"
