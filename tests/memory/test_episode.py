"""Summaries of episodes."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from llm_common.core.models import MessageRole
from llm_common.memory import Event, InMemoryMemory, Memory, SqliteMemory, episode_summary


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("One. Two.", "user: One."),
        ("Version 1.5 is out! Yes", "user: Version 1.5 is out!"),
        ("今天开会。明天休息。", "user: 今天开会。"),
        ("a line\nanother", "user: a line"),
        ("  tab\there ", "user: tab here"),
        ("x" * 500, f"user: {'x' * 153}…"),
    ],
)
def test_an_events_first_sentence_stands_for_it_s3_04(text: str, line: str) -> None:
    assert episode_summary([Event(text=text)]) == line


def test_events_without_words_make_no_summary_s3_04() -> None:
    assert episode_summary([]) is None
    assert episode_summary([Event(text=" \n"), Event(text="")]) is None


def test_the_newest_lines_win_when_not_all_fit_s3_04() -> None:
    events = [Event(role=MessageRole.ASSISTANT, text=f"{number} {'word ' * 60}") for number in range(20)]
    lines = (episode_summary(events) or "").splitlines()
    assert lines[-1].startswith("assistant: 19 ")
    assert len("\n".join(lines)) <= 1_200 < len("\n".join(lines)) + 170


@pytest.mark.parametrize(("told", "summary"), [(" it went well \n", "it went well"), (" ", None), (None, None)])
async def test_a_callers_summariser_is_used_s3_04(tmp_path: Path, told: str | None, summary: str | None) -> None:
    seen: list[list[str]] = []

    async def summariser(events: Sequence[Event]) -> str | None:
        seen.append([event.text for event in events])
        return told

    memories: list[Memory] = [
        InMemoryMemory(summariser=summariser),
        SqliteMemory(tmp_path / "m.db", summariser=summariser),
    ]
    for memory in memories:
        async with memory:
            assert await memory.summarize_episode("s") is None
            for text in ("a", "b"):
                await memory.append_event("s", Event(text=text))
            assert await memory.summarize_episode("s") == summary
    assert seen == [["a", "b"]] * 2
