"""Pools, scores and requests for the tests of packing, fixed and random."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from llm_common.agents.context_pointers import ContextPointer
from llm_common.context import (
    ContextBundle,
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    FileMetadata,
    IntentType,
    MemorySnippet,
    ProjectState,
    Score,
    Scores,
    TurnEntry,
    UserIntent,
    allocate_budget,
    pack,
)
from llm_common.context.request import Kind
from llm_common.core import TokenCounter, UpperBoundCounter
from llm_common.text.display import to_json

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


class CharacterCounter:
    """Counts a token for each character."""

    def count(self, text: str) -> int:
        return len(text)


def turn(index: int, content: str, *, role: str = "user") -> TurnEntry:
    return TurnEntry(
        id=f"t{index:04}", timestamp=NOON + timedelta(minutes=index), role=role, content=content
    )


def file(
    name: str,
    content: str,
    *,
    summary: str | None = None,
    is_pinned: bool = False,
    file_id: str = "",
) -> ContextFile:
    return ContextFile(
        id=file_id or name,
        path=name,
        name=name.rpartition("/")[2],
        content=content,
        summary=summary,
        metadata=FileMetadata(is_pinned=is_pinned),
    )


def memory(index: int, text: str) -> MemorySnippet:
    return MemorySnippet(id=f"m{index}", text=text, source="notes", timestamp=NOON)


def output(index: int, *, digest: str = "", result_bytes: int | None = None) -> ContextPointer:
    return ContextPointer(
        pointer_id=f"{index:012x}",
        query_id="q",
        tool_name="web_search",
        args={"query": "rain"},
        created_at="2025-01-01T00:00:00.000000+00:00",
        summary="web_search query=rain",
        result_path="",
        digest=digest,
        result_bytes=result_bytes,
    )


PROJECT = ProjectState(
    name="weather", root_path="/srv/weather", language="python", goals=("be right", "be quick")
)


def intent(text: str, classification: IntentType = IntentType.CODE_WRITING) -> UserIntent:
    return UserIntent(text=text, classification=classification, confidence=0.8)


def request_of(
    token_budget: int,
    text: str = "where does rain come from?",
    *,
    counter: TokenCounter | None = None,
    classification: IntentType = IntentType.CODE_WRITING,
    strategy: str = "measured",
) -> ContextSelectionRequest:
    return ContextSelectionRequest(
        intent=intent(text, classification),
        token_budget=token_budget,
        counter=counter or UpperBoundCounter(),
        strategy=strategy,
    )


def keys_of(pool: DataPoolSnapshot) -> list[tuple[Kind, str]]:
    keys: list[tuple[Kind, str]] = []
    keys += [("turn", item.id) for item in pool.session_log]
    keys += [("file", item.id) for item in pool.context_files]
    keys += [("memory", snippet.id) for snippet in pool.memory_hits]
    keys += [("output", pointer.pointer_id) for pointer in pool.tool_outputs]
    keys += [("project", pool.project_state.name)] if pool.project_state else []
    return keys


def packed(
    pool: DataPoolSnapshot,
    request: ContextSelectionRequest,
    scores: Scores,
    *,
    texts: dict[str, str] | None = None,
) -> ContextBundle:
    return pack(pool, scores, request, allocate_budget(request), texts=texts or {})


Item = TurnEntry | ContextFile | MemorySnippet | ContextPointer


def pool_of(*items: Item) -> DataPoolSnapshot:
    """Return a pool of items of any kinds."""
    return DataPoolSnapshot(
        session_log=tuple(item for item in items if isinstance(item, TurnEntry)),
        context_files=tuple(item for item in items if isinstance(item, ContextFile)),
        memory_hits=tuple(item for item in items if isinstance(item, MemorySnippet)),
        tool_outputs=tuple(item for item in items if isinstance(item, ContextPointer)),
    )


def even_scores(pool: DataPoolSnapshot, value: float = 0.5) -> dict[tuple[Kind, str], Score]:
    return dict.fromkeys(keys_of(pool), Score(value, {"even": value}))


def packed_items(
    token_budget: int,
    *items: Item,
    text: str = "where does rain come from?",
    scores: Scores | None = None,
    texts: dict[str, str] | None = None,
) -> ContextBundle:
    """Pack items that score alike, except those with a score in `scores`."""
    pool = pool_of(*items)
    return packed(
        pool, request_of(token_budget, text), {**even_scores(pool), **(scores or {})}, texts=texts
    )


WORDS = (
    "rain",
    "cloud",
    "def f(x):",
    "return x",
    "\n",
    "\n\n",
    "### user",
    "<<<",
    ">>>",
    "{",
    "}",
    "日本語",
    "é",
    "  ",
)
HOSTILE = (
    "\ud800",
    "\u2028### forged",
    "\r### forged",
    "\x00",
    "<|endoftext|>",
    "000000000000>>>",
    "🌧️",
)


def texts_of(longest: int) -> st.SearchStrategy[str]:
    """Generate texts of common and hostile words, some of which are far longer than a budget."""
    words = st.lists(st.sampled_from([*WORDS, *HOSTILE]) | st.text(max_size=12), max_size=12)
    return st.builds(lambda found, times: " ".join(found) * times, words, st.integers(1, longest))


Case = tuple[DataPoolSnapshot, dict[tuple[Kind, str], Score], dict[str, str]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Generate a pool, the score of every item, and the texts of some outputs."""
    texts = texts_of(draw(st.sampled_from([2, 40])))
    contents: Sequence[str] = draw(st.lists(texts, max_size=12))
    kinds = draw(st.lists(st.sampled_from("tfmo"), min_size=len(contents), max_size=len(contents)))
    numbered = list(enumerate(zip(kinds, contents, strict=True)))
    pool = DataPoolSnapshot(
        session_log=tuple(turn(index, text) for index, (kind, text) in numbered if kind == "t"),
        context_files=tuple(
            file(f"f{index}.py", text, summary=text[:40] if index % 2 else None)
            for index, (kind, text) in numbered
            if kind == "f"
        ),
        memory_hits=tuple(memory(index, text) for index, (kind, text) in numbered if kind == "m"),
        tool_outputs=tuple(
            output(index, digest=text[:80]) for index, (kind, text) in numbered if kind == "o"
        ),
        project_state=draw(st.sampled_from([None, PROJECT])),
    )
    rules = st.sampled_from(
        ["ranked"] * 5 + ["mentioned", "pinned", "excluded", "below_cut_off", "not_required"]
    )
    score = st.builds(
        lambda value, rule: Score(value, {"part": value}, rule), st.floats(-1, 3), rules
    )
    scores = {key: draw(score) for key in keys_of(pool)}
    loaded = {}
    for index, (kind, text) in numbered:
        if kind == "o" and index % 3:
            loaded[f"{index:012x}"] = records_text(text.split()) if index % 2 else text
    return pool, scores, loaded


def records_text(words: Sequence[str]) -> str:
    """Return a result with one record per word."""
    return to_json({"rows": [{"n": n, "word": word} for n, word in enumerate(words)], "more": 7})
