"""Which tools of a conversation are shown within a limit of tokens."""

from collections.abc import Sequence

import pytest

from llm_common.agents.session.tools import ToolIndexes, ToolShortlist
from llm_common.tools import ToolDefinition

NAMES = ("get_weather", "list_orders", "play_music", "read_mail", "water_plants")
TOOLS = [
    ToolDefinition(name, f"Can {name.replace('_', ' ')}.", {"type": "object"}) for name in NAMES
]


class PerTool:
    """A counter by which each definition has ten tokens, and a long one has thirty."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def count(self, text: str) -> int:
        self.texts.append(text)
        return 30 if "long" in text else 10


def shortlist(max_tokens: int, limit: int = 2) -> ToolShortlist:
    return ToolShortlist(ToolIndexes(None, PerTool()), max_tokens=max_tokens, limit=limit)


def choose(
    tools: ToolShortlist,
    *texts: str,
    keep: Sequence[str] = (),
    offered: Sequence[ToolDefinition] = TOOLS,
) -> tuple[tuple[str, ...], int]:
    return tools.choose(offered, texts=texts, keep=keep)


def test_tools_that_fit_exactly_are_all_shown() -> None:
    assert choose(shortlist(50), "music") == (NAMES, 50)
    names, tokens = choose(shortlist(49), "music")
    assert (len(names), tokens) == (4, 40)


@pytest.mark.parametrize(
    ("before", "text", "keep", "shown"),
    [
        ("play_music", "any mail?", "water_plants", ("water_plants", "read_mail", "play_music")),
        # A kept tool takes no place of the best.
        ("water_plants", "play music and read mail", "play_music", ("play_music", "read_mail")),
    ],
    ids=["others", "one-of-the-best"],
)
def test_kept_tools_come_first_then_the_best_then_those_shown_before(
    before: str, text: str, keep: str, shown: tuple[str, ...]
) -> None:
    tools = shortlist(10 * len(shown), limit=1)
    assert choose(tools, before.replace("_", " "))[0][0] == before
    assert choose(tools, text, keep=[keep])[0] == shown


def test_the_newest_texts_choose_no_more_tools_than_the_limit() -> None:
    tools = shortlist(20, limit=1)
    assert choose(tools, "play music")[0][0] == "play_music"
    names, _ = choose(tools, "read the mail and list the orders")
    assert len(names) == 2
    assert "play_music" in names


def test_a_tool_that_is_too_long_leaves_its_tokens_to_others() -> None:
    long = ToolDefinition("play_long", "Can play music, long.", {"type": "object"})
    names, tokens = choose(shortlist(20), "play music", offered=[*TOOLS, long])
    assert names[0] == "play_music"
    assert "play_long" not in names
    assert tokens == 20


def test_tools_that_are_kept_are_shown_over_the_limit_too() -> None:
    assert choose(shortlist(5), "music", keep=["get_weather", "read_mail", "unknown"]) == (
        ("get_weather", "read_mail"),
        20,
    )


def test_a_tool_that_is_gone_is_shown_no_more() -> None:
    tools = shortlist(20)
    assert "play_music" in choose(tools, "play music")[0]
    names, _ = choose(tools, "play music", offered=TOOLS[:2] + TOOLS[3:])
    assert "play_music" not in names
    assert len(names) == 2


def test_tools_that_were_found_are_shown_best_first_within_the_next_choice() -> None:
    tools = shortlist(10)
    choose(tools, "weather")
    found = tools.find("play music, read mail", limit=2)
    assert {definition.name for definition in found} == {"play_music", "read_mail"}
    assert found[0] in TOOLS
    assert set(choose(tools, "weather")[0]) == {"play_music", "read_mail"}


def test_the_twenty_tools_that_were_found_last_stay_shown() -> None:
    names = [f"paint_{chr(97 + number) * 4}" for number in range(21)]
    offered = [ToolDefinition(name, "", {"type": "object"}) for name in names]
    tools = shortlist(10)
    choose(tools, "nothing", offered=offered)
    for name in names:
        [found] = tools.find(name.partition("_")[2], limit=1)
        assert found.name == name
    assert sorted(choose(tools, "nothing", offered=offered)[0]) == names[1:]


def test_a_set_of_tools_is_indexed_once_and_anew_after_a_change() -> None:
    counter = PerTool()
    indexes = ToolIndexes(None, counter)
    first = indexes.index(TOOLS)
    assert indexes.index(list(TOOLS)) is first
    assert len(counter.texts) == len(TOOLS)
    changed = [*TOOLS[:-1], ToolDefinition(NAMES[-1], "Another.", {"type": "object"})]
    assert indexes.index(changed) is not first
    assert dict(first.tokens) == dict.fromkeys(NAMES, 10)
