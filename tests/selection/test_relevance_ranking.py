"""The ranking of pointers against a plain reading of its rules."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from hypothesis import given, strategies as st

from llm_common.agents import ContextPointer
from llm_common.ranking.lexical import folded, scan
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
)


def texts(max_words: int) -> st.SearchStrategy[str]:
    separators = st.sampled_from((" ", ", ", "-", "_", ""))
    words = st.lists(st.sampled_from(WORDS), max_size=max_words)
    return st.builds(lambda separator, some: separator.join(some), separators, words)


VALUES = st.recursive(
    st.one_of(texts(3), st.integers(0, 3), st.none(), st.just(REDACTED), st.just("--- ??")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(texts(1), inner, max_size=2)
    ),
    max_leaves=4,
)
POOLS = st.lists(
    st.builds(
        lambda **facts: ContextPointer(
            pointer_id="0" * 12, query_id="q", tool_name="t", result_path="", **facts
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


def names_of(value: object) -> Iterator[tuple[str, ...]]:
    """The names among the arguments, as words."""
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
        yield from names_of(item)


def names_in(text: str, name: Sequence[str]) -> bool:
    words = words_of(text)
    return any(words[start : start + len(name)] == [*name] for start in range(len(words)))


def expected(
    query: str, pointers: Sequence[ContextPointer]
) -> list[tuple[int, float, Mapping[str, float]]]:
    """Where each pointer stood, its score and its parts, the best first."""
    order = sorted(
        range(len(pointers)), key=lambda place: (pointers[place].created_at, place), reverse=True
    )
    pool = [pointers[place] for place in order]
    words = scan(
        query, [(folded(each.summary), folded(each.digest)) for each in pool], weights=(2.0, 1.0)
    )
    parts = [{"words": word, "recency": 0.7 * math.exp(-age / 6)} for age, word in enumerate(words)]
    scores = [sum(of_one.values()) for of_one in parts]
    best = sorted(range(len(pool)), key=lambda place: (-scores[place], place))[:3]
    own = [set(names_of(each.args)) for each in pool]
    said = " ".join(pool[place].digest for place in best)
    for name in set().union(*own):
        owners = [
            place for place, names in enumerate(own) if name in names and names_in(said, name)
        ]
        found = [
            place
            for place, each in enumerate(pool)
            if names_in(each.digest, name) and place not in best
        ]
        asked = any(name in own[place] for place in best)
        for part, places in (("named", owners), ("names", found if asked else [])):
            for place in set(places) - {*best}:
                parts[place][part] = max(parts[place].get(part, 0.0), 0.6 / len(places))
    scores = [
        score + of_one.get("named", 0.0) + of_one.get("names", 0.0)
        for score, of_one in zip(scores, parts, strict=True)
    ]
    ranked = sorted(range(len(pool)), key=lambda place: (-scores[place], place))
    return [
        (order[place], scores[place], {k: v for k, v in parts[place].items() if v})
        for place in ranked
    ]


@given(texts(4), POOLS, st.none() | st.integers(0, 10))
def test_the_ranking_is_what_its_rules_say(
    query: str, pool: list[ContextPointer], limit: int | None
) -> None:
    pool = [
        each.model_copy(update={"pointer_id": f"{place:012x}"}) for place, each in enumerate(pool)
    ]
    found = [
        (int(each.pointer.pointer_id, 16), each.score, each.parts)
        for each in rank_pointers(query, pool, limit=limit)
    ]
    assert found == expected(query, pool)[:limit]


def test_a_name_that_a_pointer_has_twice_counts_once_and_accents_tell_names_apart() -> None:
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
    parts = {each.pointer.created_at: each.parts for each in rank_pointers("moon", pool)}
    assert parts["2024"]["named"] == 0.6
    assert "names" not in parts["2023"]


def test_words_of_two_letters_do_not_count_s4_03() -> None:
    pointers = [
        output(number).model_copy(update={"summary": summary})
        for number, summary in enumerate(["go to UK in a an of", "uk weather"])
    ]
    assert select_by_keywords("go to the UK in May", pointers, on_no_match="none") == []
    assert select_by_keywords("weather of the UK", pointers, on_no_match="none") == [pointers[1]]
