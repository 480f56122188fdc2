"""How much each file of a tree is worth to a question, by its place in the ranking of the whole tree."""

import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from llm_common.agents.context.file_kinds import is_code
from llm_common.agents.context.pool import ContextFile
from llm_common.agents.context.request import Score, Scores
from llm_common.ranking.lexical import query_terms

__all__ = ["rank_value", "score_files"]

_CODE, _TEST, _RECENT = 0.2, -0.1, 0.2
_WEEK_H = 168.0
_TEST_PATH = re.compile(
    r"(^|/)(tests?|__tests__|testdata|specs?|t)/|(^|/)(test_|conftest\.)|[._-](test|tests|spec)\.", re.IGNORECASE
)
_BEST = 5
_NEARLY = 0.6  # of the best value


def rank_value(path: str, share: float, query: str) -> float:
    """What a file is worth for its words and its kind.

    Code counts a fifth of the best match more, a test a tenth less unless tests are asked for: measured on which files
    the commits of public repositories changed, against words alone.

    Args:
        path: The file's.
        share: Its score in the ranking as a share of the best one.
        query: The question.
    """
    return math.fsum(_parts(path, share, query).values())


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
    word is could not be told. The few that are nearly as good as the best are pinned, so that each gets its part before
    small files fill the room; tests only where they are asked for.

    Args:
        files: The files to score.
        shares: Their scores in the ranking as shares of the best one; 0 for what is missing.
        query: The question.
        mentioned: Paths that the caller or the question names.
        now: The moment that ages are measured from.
    """
    parts = {file.path: _parts(file.path, shares.get(file.path, 0.0), query) for file in files}
    for file in files:
        if file.metadata.last_modified is not None:
            age_h = max((now - file.metadata.last_modified).total_seconds() / 3600, 0.0)
            parts[file.path]["recent"] = _RECENT * math.exp(-age_h / _WEEK_H)
    values = {path: max(math.fsum(summands.values()), 0.0) for path, summands in parts.items()}
    able = [path for path in values if path not in mentioned and not parts[path]["test"]]
    best = sorted(able, key=lambda path: (-values[path], path))[:_BEST]
    pinned = {path for path in best if values[path] >= _NEARLY * values[best[0]]}
    return {
        ("file", path): Score(
            values[path], parts[path], "mentioned" if path in mentioned else "pinned" if path in pinned else "ranked"
        )
        for path in values
    }


def _parts(path: str, share: float, query: str) -> dict[str, float]:
    is_test = bool(_TEST_PATH.search(path)) and "test" not in query_terms(query)
    return {"words": share, "code": _CODE * is_code(path), "test": _TEST * is_test}
