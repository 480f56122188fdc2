"""Tests the ranking of tools for a shortlist."""

from typing import Any

import pytest

from llm_common.selection.catalogue import rank_tools, read_catalogue
from llm_common.tools import ToolRegistry


def definition(name: str, description: str = "", **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    return {
        "name": name,
        "description": description,
        "parameters": {"type": "object", "properties": properties},
    }


class FixedRegistry:
    def __init__(self, *definitions: dict[str, Any]) -> None:
        self.definitions = list(definitions)

    def get_tools_schema(self) -> list[dict[str, Any]]:
        return self.definitions


async def ranked(registry: FixedRegistry, *texts: str, limit: int = 5) -> list[str]:
    return [tool.name for tool in rank_tools(await read_catalogue(registry), texts, limit=limit)]


TOOLS = FixedRegistry(
    definition("getStockPrice", "Price of a share.", ticker="Symbol, such as AAPL"),
    definition("search_web", "Finds pages."),
    definition("send_email", "Writes to someone.", recipient="Whose mailbox"),
    definition("notes", "Searches the notes about stock."),
)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("searching the web", "search_web"),
        ("stock prices", "getStockPrice"),
        ("which mailbox", "send_email"),
        ("AAPL", "getStockPrice"),
        ("note", "notes"),
    ],
)
async def test_words_match_names_descriptions_and_parameters(text: str, first: str) -> None:
    assert (await ranked(TOOLS, text))[0] == first


async def test_a_word_in_the_name_counts_most() -> None:
    assert await ranked(TOOLS, "stock", limit=2) == ["getStockPrice", "notes"]


async def test_each_text_contributes_its_best_tool_s2_14() -> None:
    charts = [definition(f"draw_chart_{number}") for number in range(8)]
    others = [definition(f"other_{number}") for number in range(30)]
    tools = FixedRegistry(definition("send", "Sends a message."), *charts, *others)
    assert "send" not in await ranked(tools, "draw a chart and message it")
    assert "send" in await ranked(tools, "draw a chart and message it", "message it", limit=2)


async def test_the_best_tool_of_a_text_wins_over_a_compromise_s2_14() -> None:
    names = ["draw_chart", "draw_line", "draw_dot", "send_mail", "send_fax", "send_note"]
    both = definition(
        "report",
        "Can draw and, after a long while, send what many people asked for in other words.",
    )
    tools = FixedRegistry(*map(definition, names), both)
    assert sorted(await ranked(tools, "draw chart", "send mail", limit=2)) == [
        "draw_chart",
        "send_mail",
    ]


async def test_texts_without_words_rank_no_tool() -> None:
    assert await ranked(TOOLS, "", "?!", "the of and") == []


async def test_the_order_of_registration_does_not_matter() -> None:
    backwards = FixedRegistry(*reversed(TOOLS.definitions))
    assert await ranked(backwards, "stock search", limit=2) == await ranked(
        TOOLS, "stock search", limit=2
    )


async def test_the_index_follows_the_registry() -> None:
    def weather(city: str) -> str:
        """Forecast."""
        return city

    registry = ToolRegistry([weather])
    assert rank_tools(await read_catalogue(registry), ["tides"], limit=3) == ()
    registry.register(weather, name="tides")
    assert [
        tool.name for tool in rank_tools(await read_catalogue(registry), ["tides"], limit=1)
    ] == ["tides"]
