"""How much each file of a tree is worth to a question, by its place in the ranking of the whole tree."""

import math
from collections.abc import Mapping, Sequence, Set as AbstractSet
from datetime import datetime

from llm_common.context.mentions import is_code, is_test
from llm_common.context.pool import ContextFile
from llm_common.context.request import Score, Scores
from llm_common.ranking.lexical import query_terms

__all__ = ["rank_value", "score_files"]

_CODE, _TEST, _RECENT = 0.2, -0.1, 0.2
_TEST_LOSS = 0.6  # commits change tests with the code; a question that names no tests is seldom answered by one
_WEEK_H = 168.0


def rank_value(path: str, share: float, query: str) -> float:
    """What a file is worth for its words and its kind.

    Code counts a fifth of the best match more, a test a tenth less unless tests are asked for: measured on which files
    the commits of public repositories changed, against words alone.

    Args:
        path: The file's.
        share: Its score in the ranking as a share of the best one.
        query: The question.
    """
    return math.fsum([share, _CODE * is_code(path), _TEST * _is_unwanted_test(path, query)])


def score_files(
    files: Sequence[ContextFile],
    shares: Mapping[str, float],
    query: str,
    *,
    mentioned: AbstractSet[str],
    now: datetime,
) -> Scores:
    """The score of each file, as packing takes it.

    The shares come from an index of the whole tree: among the few files that share words with the question, how rare a
    word is could not be told. A score is the square of its summands' sum, so that a file which is half as good as the
    best is worth far less than half: the room goes to the few that answer, not to the many that touch on the question.
    A test has less than half of it, unless tests are asked for.

    Args:
        files: The files to score.
        shares: Their scores in the ranking as shares of the best one; 0 for what is missing.
        query: The question.
        mentioned: Paths that the caller or the question names.
        now: The moment that ages are measured from.
    """
    return {
        ("file", file.path): _score(
            _parts(file, shares.get(file.path, 0.0), query, now),
            "mentioned" if file.path in mentioned else "ranked",
        )
        for file in files
    }


def _parts(file: ContextFile, share: float, query: str, now: datetime) -> dict[str, float]:
    parts = {"words": share, "code": _CODE * is_code(file.path), "recent": _RECENT * _freshness(file, now)}
    parts["test"] = -_TEST_LOSS * _is_unwanted_test(file.path, query) * math.fsum(parts.values())
    return parts


def _score(parts: Mapping[str, float], rule: str) -> Score:
    """The square of the sum; each part has its share of it."""
    total = math.fsum(parts.values())
    return Score(total * total, {name: part * total for name, part in parts.items()}, rule)


def _is_unwanted_test(path: str, query: str) -> bool:
    return is_test(path) and "test" not in query_terms(query)


def _freshness(file: ContextFile, now: datetime) -> float:
    changed = file.metadata.last_modified
    return math.exp(-max((now - changed).total_seconds() / 3600, 0.0) / _WEEK_H) if changed else 0.0
