"""The strategy `measured`."""

import cProfile
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from llm_common.context import (
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    FileMetadata,
    MeasuredStrategy,
    MemoryMetadata,
    MemorySnippet,
    Scores,
    TurnEntry,
)
from llm_common.context.request import IntentMetadata, Kind
from tests.context.samples import (
    NOON,
    PROJECT,
    Item,
    file,
    intent,
    memory,
    output,
    pool_of,
    turn,
)


class SharedLetters:
    """An embedder that compares texts by their common letters."""

    def similarities(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        letters = set(query)
        return [len(letters & set(text)) / (len(letters | set(text)) or 1) for text in texts]


def request(text: str, **weights: float) -> ContextSelectionRequest:
    return ContextSelectionRequest(intent=intent(text), token_budget=1_000, weights=weights)


def scored(
    pool: DataPoolSnapshot, text: str, *, strategy: MeasuredStrategy | None = None, **weights: float
) -> Scores:
    return (strategy or MeasuredStrategy()).score(pool, request(text, **weights), now=NOON)


def best(scores: Scores, kind: Kind) -> list[str]:
    return sorted(
        (key[1] for key in scores if key[0] == kind),
        key=lambda account: -scores[kind, account].value,
    )


def talk(*contents: str) -> DataPoolSnapshot:
    return DataPoolSnapshot(
        session_log=tuple(turn(number, content) for number, content in enumerate(contents))
    )


def changed(path: str, age: timedelta | None, content: str = "x = 1") -> ContextFile:
    moment = None if age is None else NOON - age
    return file(path, content).model_copy(update={"metadata": FileMetadata(last_modified=moment)})


SMALL_TALK = [
    f"We went on about cinema, theatre and films for a while, part {number}."
    for number in range(40)
]


SOURCES = [
    file("src/router.py", "def dispatch(): ..."),
    file("src/server.py", "# talks to the router\ndef serve(): ..."),
    file("src/retry.py", "class Backoff: ..."),
    file("src/client.py", "from retry import backoff\n" + "x = 1\n" * 20),
]
ABOUT = [file("a.md", "about billing"), file("b.md", "about weather")]
COUNTER = [turn(0, "My kitchen counter measures thirty square feet.")]
COUNTER += [turn(number, text) for number, text in enumerate(SMALL_TALK, 1)]


@pytest.mark.parametrize(
    ("items", "text", "hints", "first"),
    [
        pytest.param(
            COUNTER,
            "How large is the kitchen counter?",
            (),
            "t0000",
            id="S1-13-an old turn that answers",
        ),
        pytest.param(
            SOURCES, "why does the router drop requests", (), "src/router.py", id="a name of a file"
        ),
        pytest.param(SOURCES, "explain the backoff", (), "src/retry.py", id="a name of a symbol"),
        pytest.param(ABOUT, "continue", ("billing",), "a.md", id="a hint"),
    ],
)
def test_the_item_that_answers_has_the_best_score(
    items: list[Item], text: str, hints: tuple[str, ...], first: str
) -> None:
    asked = request(text).model_copy(update={"priority_hints": hints})
    scores = MeasuredStrategy().score(pool_of(*items), asked, now=NOON)
    assert max(scores, key=lambda key: scores[key].value)[1] == first


def test_a_file_that_is_only_code_is_below_the_cut_off_s1_08() -> None:
    scores = scored(pool_of(file("a.py", "x = 1"), file("b.py", "invoice = 1")), "invoice")
    code, match = (scores["file", name].value for name in ("a.py", "b.py"))
    assert code < MeasuredStrategy.cut_offs["file"] < match


def test_neighbours_of_an_answer_are_lifted_by_their_distance() -> None:
    texts = [f"part {number} of another matter altogether. " * 5 for number in range(30)]
    texts[10] = "The invoice of Acme was paid."
    scores = scored(talk(*texts), "Acme invoice")
    values = [scores["turn", f"t{number:04}"].parts["neighbours"] for number in range(10, 20)]
    assert values[0] == 0.0
    assert 0.5 < values[1] < 1.0
    assert all(after < before * 0.9 for before, after in pairwise(values[1:]))
    assert best(scores, "turn")[0] == "t0010"


def test_the_newest_turn_has_as_much_of_its_neighbours_as_another() -> None:
    scores = scored(talk("Well.", "The invoice of Acme was paid.", "Good."), "Acme invoice")
    before, after = scores["turn", "t0000"], scores["turn", "t0002"]
    assert before.parts["neighbours"] == after.parts["neighbours"] > 0.0


def test_the_best_turn_has_a_score_of_one() -> None:
    scores = scored(talk("the Acme invoice", "the invoice", "so it was"), "Acme invoice")
    assert max(score.value for score in scores.values()) == pytest.approx(1.0)


def test_the_speaker_counts_as_a_word_of_the_turn() -> None:
    pool = DataPoolSnapshot(
        session_log=(
            turn(1, "Yes, I agree.", role="Project Manager"),
            turn(2, "Yes, I agree.", role="Designer"),
        )
    )
    assert scored(pool, "What did the Project Manager say?")["turn", "t0001"].parts["words"] == 1.0


def test_of_equal_matches_code_leads_and_tests_come_last() -> None:
    text = "The parser reads tokens."
    pool = DataPoolSnapshot(
        context_files=tuple(
            file(name, text)
            for name in ("tests/test_a.py", "docs/a.md", "lib/a.py", "lib/latest.py")
        )
    )
    scores = scored(pool, "parser tokens")
    ranked = best(scores, "file")
    assert set(ranked[:2]) == {"lib/a.py", "lib/latest.py"}
    assert "tests" in scores["file", "tests/test_a.py"].parts
    assert scores["file", "lib/latest.py"].parts["tests"] == 0.0


def test_a_recent_change_counts_and_fades_over_weeks() -> None:
    ages = {
        "now.md": timedelta(0),
        "week.md": timedelta(weeks=1),
        "old.md": timedelta(weeks=52),
        "none.md": None,
    }
    future = changed("future.md", timedelta(days=-40))
    pool = DataPoolSnapshot(
        context_files=(*(changed(path, age) for path, age in ages.items()), future)
    )
    parts = {key[1]: score.parts["change"] for key, score in scored(pool, "anything").items()}
    assert parts["now.md"] == parts["future.md"] == pytest.approx(0.3)
    assert parts["week.md"] == pytest.approx(0.3 * 0.3679, abs=1e-4)
    assert parts["old.md"] < 1e-6
    assert parts["none.md"] == 0.0


def test_a_memory_scores_by_its_store_and_its_words_s1_10() -> None:
    def snippet(
        number: int, text: str, relevance: float, project: str | None = None
    ) -> MemorySnippet:
        found = memory(number, text)
        return found.model_copy(
            update={
                "relevance_score": relevance,
                "metadata": MemoryMetadata(project=project),
                "timestamp": NOON,
            }
        )

    pool = DataPoolSnapshot(
        memory_hits=(
            snippet(1, "the invoice of Acme", 0.2),
            snippet(2, "nothing", 0.9),
            snippet(3, "nothing", 0.9, "weather"),
            snippet(4, "nothing", float("nan")),
            snippet(5, "nothing", 1e300),
        )
    )
    asked = request("invoice")
    asked = asked.model_copy(
        update={
            "intent": asked.intent.model_copy(
                update={"metadata": IntentMetadata(current_project="weather")}
            )
        }
    )
    scores = MeasuredStrategy().score(pool, asked, now=NOON)
    values = {key[1]: score.value for key, score in scores.items()}
    assert values == pytest.approx({"m1": 1.4, "m2": 1.1, "m3": 1.4, "m4": 0.2, "m5": 1.2})


def test_outputs_are_ranked_for_the_request_and_the_assistants_last_turn() -> None:
    outputs = tuple(
        output(number, digest=text) for number, text in enumerate(["flight HAT110", "hotel", "car"])
    )
    turns = (turn(1, "Shall I book HAT110?", role="assistant"), turn(2, "Yes, please go ahead"))
    asked = "Yes, please go ahead"
    pool = DataPoolSnapshot(tool_outputs=outputs)
    assert scored(pool, asked)["output", outputs[0].pointer_id].parts.get("words", 0.0) == 0.0
    talked = scored(pool.model_copy(update={"session_log": turns}), asked)
    assert best(talked, "output")[0] == outputs[0].pointer_id


def test_weights_are_factors_of_the_parts() -> None:
    pool = talk("the invoice of Acme", *SMALL_TALK)
    plain, weighted = scored(pool, "invoice"), scored(pool, "invoice", words=0.0, neighbours=2.0)
    key: tuple[Kind, str] = ("turn", "t0001")
    assert weighted[key].parts["neighbours"] == 2 * plain[key].parts["neighbours"]
    assert weighted["turn", "t0000"].parts["words"] == 0.0
    assert best(weighted, "turn")[0] == "t0001"


@pytest.mark.parametrize("weight", [1e308, -1e308])
def test_an_enormous_weight_yields_a_finite_score(weight: float) -> None:
    scores = scored(talk("invoice", "invoice"), "invoice", words=weight, neighbours=weight)
    assert all(abs(score.value) < float("inf") for score in scores.values())


def test_vectors_lift_similar_meanings_but_not_above_matching_words() -> None:
    pool = talk("zzz yyy", "abcdef", *["xyz xyz"] * 8, "invoice")
    strategy = MeasuredStrategy(embedder=SharedLetters())
    with_vectors, without = (
        scored(pool, "fedcba invoice", strategy=strategy),
        scored(pool, "fedcba invoice"),
    )
    assert with_vectors["turn", "t0001"].parts["vectors"] > 0
    assert "vectors" not in {
        name for score in without.values() for name, value in score.parts.items() if value
    }
    assert best(with_vectors, "turn")[0] == best(without, "turn")[0] == "t0010"


def whole_pool() -> DataPoolSnapshot:
    return DataPoolSnapshot(
        session_log=tuple(turn(number, text) for number, text in enumerate(SMALL_TALK)),
        context_files=tuple(
            changed(f"src/m{n}.py", timedelta(days=n), f"def film_{n}(): ...") for n in range(9)
        ),
        memory_hits=tuple(memory(number, f"film {number}") for number in range(5)),
        tool_outputs=tuple(output(number, digest=f"film {number}") for number in range(8)),
        project_state=PROJECT,
    )


def shuffled(pool: DataPoolSnapshot, seed: int) -> DataPoolSnapshot:
    rnd = random.Random(seed)
    kinds = ("session_log", "context_files", "memory_hits", "tool_outputs")
    return pool.model_copy(
        update={
            kind: tuple(rnd.sample(getattr(pool, kind), len(getattr(pool, kind)))) for kind in kinds
        }
    )


@pytest.mark.parametrize("embedder", [None, SharedLetters()])
def test_order_cache_and_threads_change_no_score_s1_15(embedder: SharedLetters | None) -> None:
    pool, strategy = whole_pool(), MeasuredStrategy(embedder=embedder)
    before = pool.model_dump_json()
    expected = dict(scored(pool, "which film", strategy=MeasuredStrategy(embedder=embedder)))
    with ThreadPoolExecutor(4) as threads:
        results = list(
            threads.map(
                lambda seed: dict(scored(shuffled(pool, seed), "which film", strategy=strategy)),
                range(12),
            )
        )
    assert all(result == expected for result in results)
    assert pool.model_dump_json() == before


def test_a_changed_text_with_the_same_id_is_scored_again() -> None:
    strategy = MeasuredStrategy()
    for content, value in (("invoice", 1.0), ("weather", 0.0), ("invoice", 1.0)):
        pool = DataPoolSnapshot(context_files=(file("a.txt", content, file_id="f"),))
        assert scored(pool, "invoice", strategy=strategy)["file", "f"].parts["words"] == value


@pytest.mark.parametrize("year", [1, 1970, 2025, 9999])
def test_any_time_gives_a_finite_score_f_138(year: int) -> None:
    moment = datetime(year, 6, 1, tzinfo=UTC)
    pool = DataPoolSnapshot(
        session_log=(TurnEntry(id="t", timestamp=moment, role="user", content="rain"),),
        context_files=(
            changed("a.py", None).model_copy(
                update={"metadata": FileMetadata(last_modified=moment)}
            ),
        ),
        memory_hits=(memory(1, "rain").model_copy(update={"timestamp": moment}),),
    )
    assert all(0 <= score.value <= 3 for score in scored(pool, "rain").values())


@pytest.mark.parametrize("text", ["", "?? !!", "the of", "\ud800", "🌧️"])
def test_a_request_without_words_scores_only_the_other_parts_f_136(text: str) -> None:
    scores = scored(whole_pool(), text)
    assert best(scores, "file")[0] == "src/m0.py"
    assert {score.value for (kind, _), score in scores.items() if kind == "turn"} == {0.0}


def growing_pool(times: int) -> DataPoolSnapshot:
    text = "def handler(request): return response  # nothing of interest\n" * 80
    return DataPoolSnapshot(
        session_log=tuple(
            turn(number, "so we talked on and on " * 8) for number in range(100 * times)
        ),
        context_files=tuple(
            file(f"m{number}.py", text + str(number)) for number in range(10 * times)
        ),
        tool_outputs=tuple(
            output(number, digest=f"result {number}") for number in range(20 * times)
        ),
    )


def test_work_grows_linearly_with_the_pool_s1_14_l15() -> None:
    def calls(times: int) -> int:
        pool, profile = growing_pool(times), cProfile.Profile()
        profile.runcall(
            scored, pool, "fix the error in the connection handler", strategy=MeasuredStrategy()
        )
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(8) < 1.5 * 8 * calls(1)  # quadratic growth would be 64 times


@pytest.mark.torture
def test_time_grows_linearly_with_the_pool_s1_14_l15() -> None:
    def spent_s(times: int) -> float:
        pool, rounds = growing_pool(times), []
        for _ in range(3):
            strategy = MeasuredStrategy()
            started = time.process_time()
            scored(pool, "fix the error in the connection handler", strategy=strategy)
            rounds.append(time.process_time() - started)
        return min(rounds)

    assert spent_s(16) < 3 * 8 * spent_s(2)  # quadratic growth would be 64 times
