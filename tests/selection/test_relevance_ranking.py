"""Tests the ranking of pointers against a plain implementation of its rules."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from hypothesis import given, strategies as st

from llm_common.agents import ContextPointer
from llm_common.ranking.cues import points_back
from llm_common.ranking.lexical import STOP_WORDS, folded, scan_columns
from llm_common.redaction.patterns import REDACTED
from llm_common.selection.relevance_ranking import rank_pointers, select_by_keywords
from tests.context.samples import output

WORDS = (
    "moon",
    "Moon",
    "oslo",
    "Café",
    "cafe",
    "C77",
    "77",
    "ΟΔΟΣ",
    "train",
    "rain",
    "\u212aelvin",
    "user",
    "no",
    "them",
    "some",
)


def texts(max_words: int) -> st.SearchStrategy[str]:
    separators = st.sampled_from((" ", ", ", "-", "_", ""))
    words = st.lists(st.sampled_from(WORDS), max_size=max_words)
    return st.builds(str.join, separators, words)


VALUES = st.recursive(
    st.one_of(texts(3), st.integers(75, 102), st.none(), st.just(REDACTED), st.just("--- ??")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(texts(1), inner, max_size=2)
    ),
    max_leaves=4,
)
POOLS = st.lists(
    st.builds(
        lambda **fields: ContextPointer(
            pointer_id="0" * 12, query_id="q", tool_name="t", result_path="", **fields
        ),
        summary=texts(5),
        digest=texts(8),
        created_at=st.sampled_from(("2024", "2025", "2026")),
        args=st.dictionaries(st.sampled_from(("a", "b", "c")), VALUES, max_size=3),
    ),
    max_size=9,
)


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def names_of(value: object, *, numbers: bool = False) -> Iterator[tuple[str, ...]]:
    """Yield the names among the arguments, as words."""
    if numbers and type(value) is int:
        value = str(value)
    if (
        isinstance(value, str)
        and 3 <= len(value.strip()) <= 120
        and value != REDACTED
        and words_of(value)
    ):
        yield tuple(words_of(value))
    for item in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from names_of(item, numbers=numbers)


def names_in(text: str, name: Sequence[str]) -> bool:
    words = words_of(text)
    return any(words[start : start + len(name)] == [*name] for start in range(len(words)))


def mentioned(query: str, pool: Sequence[ContextPointer], *, top: float) -> dict[int, float]:
    """Return the gains of the pointers with an argument that the query names."""
    names_by_index = [set(names_of(pointer.args, numbers=True)) for pointer in pool]
    gains: dict[int, float] = {}
    for name in set().union(*names_by_index):
        text = " ".join(name)
        is_distinct = len(text) >= 4 and not STOP_WORDS.issuperset(name)
        owners = [index for index, names in enumerate(names_by_index) if name in names]
        line = query if len(owners) == 1 else query.partition("\n")[0]
        if names_in(line, name) and (is_distinct or any(map(str.isdigit, text))):
            for index in owners:
                gains[index] = max(gains.get(index, 0.0), top + 1 / len(owners))
    return gains


def add_links(
    parts: list[dict[str, float]],
    best: Sequence[int],
    pool: Sequence[ContextPointer],
    names_by_index: Sequence[set[tuple[str, ...]]],
) -> None:
    """Add the gains of pointers that are linked with one of the best."""
    best_digests = " ".join(pool[index].digest for index in best)
    for name in set().union(*names_by_index):
        linked: dict[str, list[int]] = {"named": [], "names": []}
        for index, names in enumerate(names_by_index):
            if name in names and names_in(best_digests, name):
                linked["named"].append(index)
        if any(name in names_by_index[index] for index in best):
            for index, pointer in enumerate(pool):
                if names_in(pointer.digest, name) and index not in best:
                    linked["names"].append(index)
        for part, indexes in linked.items():
            for index in set(indexes) - {*best}:
                parts[index][part] = max(parts[index].get(part, 0.0), 0.6 / len(indexes))


def expected(
    query: str, pointers: Sequence[ContextPointer]
) -> list[tuple[int, float, Mapping[str, float]]]:
    """Return the position of each pointer, its score and its parts, best first."""
    order = sorted(
        range(len(pointers)), key=lambda index: (pointers[index].created_at, index), reverse=True
    )
    pool = [pointers[index] for index in order]
    summaries = [folded(pointer.summary) for pointer in pool]
    digests = [folded(pointer.digest) for pointer in pool]
    words = scan_columns(query, [summaries, digests], weights=(2.0, 1.0))
    parts = [{"words": word} for word in words]
    if points_back(query):
        for age, values in enumerate(parts):
            values["recency"] = 0.7 * math.exp(-age / 6)
    scores = [sum(values.values()) for values in parts]
    best = sorted(range(len(pool)), key=lambda index: (-scores[index], index))[:3]
    names_by_index = [set(names_of(pointer.args)) for pointer in pool]
    add_links(parts, best, pool, names_by_index)
    scores = [
        score + values.get("named", 0.0) + values.get("names", 0.0)
        for score, values in zip(scores, parts, strict=True)
    ]
    gains = mentioned(query, pool, top=max(scores, default=0.0))
    for index, gain in gains.items():
        parts[index]["mentioned"] = gain
    scores = [score + gains.get(index, 0.0) for index, score in enumerate(scores)]
    ranked = sorted(range(len(pool)), key=lambda index: (-scores[index], index))
    return [
        (order[index], scores[index], {k: v for k, v in parts[index].items() if v})
        for index in ranked
    ]


@given(
    texts(4) | st.builds("{}\n{}".format, texts(3), texts(3)), POOLS, st.none() | st.integers(0, 10)
)
def test_the_ranking_follows_its_rules(
    query: str, pool: list[ContextPointer], limit: int | None
) -> None:
    pool = [
        pointer.model_copy(update={"pointer_id": f"{index:012x}"})
        for index, pointer in enumerate(pool)
    ]
    ranked = [
        (int(entry.pointer.pointer_id, 16), entry.score, entry.parts)
        for entry in rank_pointers(query, pool, limit=limit)
    ]
    assert ranked == expected(query, pool)[:limit]


def test_repeated_names_count_once_and_accents_matter() -> None:
    plain = ContextPointer(
        pointer_id="0" * 12,
        query_id="q",
        tool_name="t",
        result_path="",
        created_at="2025",
        summary="rain",
    )
    best = {"created_at": "2026", "summary": "moon", "digest": "Oslo", "args": {"x": "cafe"}}
    twice = {"created_at": "2024", "args": {"x": "oslo", "y": ["Oslo"]}}
    accented = {"created_at": "2023", "digest": "the Café"}
    pool = [plain.model_copy(update=update) for update in (best, twice, accented, {}, {}, {})]
    parts = {entry.pointer.created_at: entry.parts for entry in rank_pointers("moon", pool)}
    assert parts["2024"]["named"] == 0.6
    assert "names" not in parts["2023"]


def test_words_of_two_letters_do_not_count_s4_03() -> None:
    pointers = [
        output(number).model_copy(update={"summary": summary})
        for number, summary in enumerate(["go to UK in a an of", "uk weather"])
    ]
    assert select_by_keywords("go to the UK in May", pointers, on_no_match="none") == []
    assert select_by_keywords("weather of the UK", pointers, on_no_match="none") == [pointers[1]]


def test_a_digest_with_accents_is_found_without_them() -> None:
    plain = output(1, digest="text of 20 characters; a tea room")
    accented = output(0, digest="text of 20 characters; CAFÉ déjà")
    ranked = rank_pointers("cafe deja", [accented, plain])
    assert [(entry.pointer, entry.matches) for entry in ranked] == [
        (accented, True),
        (plain, False),
    ]
