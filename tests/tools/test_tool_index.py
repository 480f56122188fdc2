import math
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import given, settings, strategies as st

from llm_common.tools import Tool, ToolDefinition, ToolIndex
from llm_common.tools.tool_index import MIN_SCORE
from tests.ranking.doubles import FixedEmbedder


def tool(name: str, description: str = "", **parameters: Any) -> Tool:
    schema = {"type": "object", "properties": parameters}
    return Tool(lambda **_: None, name=name, description=description, parameters=schema)


TOOLS = [
    tool(
        "getStockPrice",
        "Price of a share.",
        ticker={"type": "string", "description": "Symbol, such as AAPL"},
    ),
    tool("search_web", "Finds pages."),
    tool(
        "send_email",
        "Writes to someone.",
        recipient={"type": "string", "description": "Whose mailbox"},
    ),
    tool("notes", "Searches the notes about stock."),
    tool("convert", "Changes units.", unit={"enum": ["fahrenheit", "kelvin"]}),
    tool("mydatabases", "Rows and tables."),
]


def names(index: ToolIndex, query: str, k: int = 10, sub_queries: Sequence[str] = ()) -> list[str]:
    """Return the tools that share something with the request."""
    return [row.name for row in index.rank(query, k, sub_queries) if row.why]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("searching the web", "search_web"),
        ("stock prices", "getStockPrice"),
        ("which mailbox", "send_email"),
        ("AAPL", "getStockPrice"),
        ("is that kelvin?", "convert"),
        ("rows of a table", "mydatabases"),
        ("database", "mydatabases"),
    ],
)
def test_names_descriptions_parameters_and_values_are_found_s2_14(text: str, name: str) -> None:
    assert names(ToolIndex(TOOLS), text)[:1] == [name]


@settings(max_examples=20, deadline=None)
@given(
    st.permutations(TOOLS),
    st.sampled_from(["stock price", "search the notes. Send an email", "mailbox"]),
)
def test_the_order_of_insertion_never_matters(tools: list[Tool], query: str) -> None:
    assert ToolIndex(tools).rank(query) == ToolIndex(TOOLS).rank(query)


def test_the_last_tool_of_a_repeated_name_counts() -> None:
    index = ToolIndex([*TOOLS, tool("tides", "High water."), tool("tides", "Opens the calendar.")])
    assert (names(index, "high water"), names(index, "calendar")) == ([], ["tides"])


def test_each_sub_query_brings_its_best_tool_and_the_whole_counts_no_more() -> None:
    index = ToolIndex(TOOLS)
    assert names(index, "search the web", 2, ["stock price", "mailbox"]) == [
        "getStockPrice",
        "send_email",
    ]
    assert index.rank("x", sub_queries=["stock price"]) == index.rank("stock price")


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["stock price", "send the mail", "web pages", "rows, or a table", "and so on"]
        ),
        min_size=2,
    )
)
def test_the_best_tool_of_each_sub_query_that_fits_comes_first_in_any_order(
    texts: list[str],
) -> None:
    index = ToolIndex(TOOLS)
    best = {row.name for text in texts for row in index.rank(text, 1) if row.score >= 0.5}
    assert set(names(index, "", len(best), texts)) == best
    assert index.rank("", sub_queries=texts) == index.rank("", sub_queries=texts[::-1])


@pytest.mark.parametrize("text", ["", "?!", "the of and", "Bake bread in spring", "\ud800"])
def test_what_no_tool_fits_scores_less_than_the_minimum(text: str) -> None:
    assert ToolIndex(TOOLS).rank(text)[0].score < MIN_SCORE
    assert ToolIndex().rank(text) == ()


@pytest.mark.parametrize("text", ["", "?!", "the of and", "stock price", "\ud800"])
def test_every_request_gets_tools_up_to_the_limit(text: str) -> None:
    index = ToolIndex(TOOLS)
    every = sorted(row.name for row in index.rank(text, len(TOOLS)))
    assert every == sorted(tool.name for tool in TOOLS)
    assert len(index.rank(text, 2)) == len(index.rank("", 2, [text, "tides"])) == 2
    assert index.rank(text, 0) == index.rank(text, -1) == ()


def test_tools_that_share_nothing_come_last_by_name_and_say_so() -> None:
    rows = ToolIndex(TOOLS).rank("", len(TOOLS), ["stock price", "the of and"])
    others = [row for row in rows if not row.why]
    assert others == list(rows[-len(others) :])
    assert [row.name for row in others] == sorted(row.name for row in others)
    assert {row.score for row in others} == {0.0}


def test_scores_fall_stay_within_one_and_say_why() -> None:
    rows = ToolIndex(TOOLS).rank("stock price")
    scores = [row.score for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert 1 > scores[0] >= MIN_SCORE > 0
    assert rows[0].why.startswith("words stock, price")


def test_an_embedder_finds_what_means_the_same() -> None:
    similarities = {"share.": 0.9, "tables.": math.nan}
    embedder = FixedEmbedder(lambda text: similarities.get(text.split()[-1], 0.1))
    [first, *_] = ToolIndex(TOOLS, embedder).rank("quotation")
    assert (first.name, first.why) == ("getStockPrice", "meaning 0.90")
    assert names(ToolIndex(TOOLS), "quotation") == []


def test_an_embedder_out_of_bounds_leaves_the_scores_within_one() -> None:
    index = ToolIndex(TOOLS, FixedEmbedder(lambda _: 1e300))
    assert all(row.score < 1 for row in index.rank("", sub_queries=["stock", "mail"]))


def test_wrong_arguments_say_what_to_pass() -> None:
    wrong: Any = "tool"
    with pytest.raises(TypeError, match="a str is not a tool; pass a Tool"):
        ToolIndex([wrong])


def test_any_description_can_be_ranked() -> None:
    def spoken(city: Literal["Ulm", "\u6771\u4eac"]) -> str:
        """\u5929\u6c17 forecast \u00a0."""
        return city

    assert names(ToolIndex([Tool(spoken), *TOOLS]), "\u5929\u6c17") == ["spoken"]


def test_a_value_of_any_depth_among_the_values_of_a_parameter_is_passed_over() -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]

    parameters = {"type": "object", "properties": {"colour": {"enum": [deep, "green"]}}}
    paint = ToolDefinition("paint", "Paints a wall.", parameters)
    assert names(ToolIndex([paint]), "green wall") == ["paint"]


def test_a_tool_has_the_score_of_the_sub_query_that_it_fits_best() -> None:
    index = ToolIndex(TOOLS)
    best, worse = (index.rank(text, 10) for text in ("stock price", "stock"))
    [row] = [row for row in best if row.name == "getStockPrice"]
    [weaker] = [row for row in worse if row.name == "getStockPrice"]
    assert row.score > weaker.score
    for texts in (["stock price", "stock"], ["stock", "stock price"]):
        rows = {row.name: row for row in index.rank("", 10, texts)}
        assert rows["getStockPrice"] == row


def test_a_sub_query_that_fits_badly_brings_no_tool_to_the_front() -> None:
    history = tool("getStockPriceHistory", "Old prices of a share.")
    index = ToolIndex([*TOOLS, history])
    strong, weak = index.rank("get stock price"), index.rank("someone said kelvin")
    assert [row.name for row in strong[:2]] == ["getStockPrice", "getStockPriceHistory"]
    assert weak[0].name == "convert"
    assert weak[0].score < 0.5 < strong[1].score
    texts = ["someone said kelvin", "get stock price"]
    assert names(index, "", 2, texts) == ["getStockPrice", "getStockPriceHistory"]


def test_ties_are_in_the_order_of_names() -> None:
    twins = [tool(f"twin_{letter}", "Same words.") for letter in "cab"]
    assert names(ToolIndex(twins), "same words") == ["twin_a", "twin_b", "twin_c"]
