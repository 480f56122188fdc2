"""Tests how registries become catalogues, and how names are looked up."""

from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from llm_common.errors import ToolFailedError
from llm_common.selection.catalogue import (
    Catalogue,
    OfferedTools,
    offer_tools,
    read_catalogue,
)
from llm_common.text.display import in_fence
from llm_common.tools import ToolRegistry
from tests.selection.doubles import FixedRegistry

ENTRY = {
    "name": "t1",
    "description": "d",
    "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}},
}


def get_page(url: str) -> str:
    """Fetches a page."""
    return url


async def catalogue_of(schema: object) -> Catalogue:
    return await read_catalogue(FixedRegistry(schema))


async def test_calls_of_a_tool_registry_are_checked() -> None:
    catalogue = await read_catalogue(ToolRegistry([get_page]))
    assert catalogue.checked
    assert [definition.name for definition in catalogue.definitions] == ["get_page"]
    assert catalogue.signatures == "get_page(url: str) - Fetches a page."


async def test_two_tools_with_one_name_have_one_name() -> None:
    catalogue = await catalogue_of([ENTRY, {**ENTRY, "description": "another"}])
    # Endpoints reject a schema whose enum repeats a value.
    assert catalogue.names == ("t1",)


@pytest.mark.parametrize(
    "entry",
    [
        ENTRY,
        {"type": "function", "function": ENTRY},
        {"name": "t1", "description": "d", "inputSchema": ENTRY["parameters"]},
        {"name": "t1", "description": "d", "input_schema": ENTRY["parameters"]},
    ],
)
async def test_calls_of_a_list_in_any_usual_form_are_checked(entry: dict[str, Any]) -> None:
    catalogue = await catalogue_of([entry])
    assert catalogue.checked
    assert catalogue.definitions[0].name == "t1"
    assert catalogue.definitions[0].find_problems({"x": "no"})


async def test_a_list_in_any_order_gives_the_same_text_s2_13() -> None:
    other = {**ENTRY, "name": "a"}
    assert (await catalogue_of([ENTRY, other])).text == (await catalogue_of([other, ENTRY])).text
    twin = {**ENTRY, "description": "another tool of that name"}
    assert (await catalogue_of([ENTRY, twin])).text == (await catalogue_of([twin, ENTRY])).text
    assert (await catalogue_of(["x", 3])).text == (await catalogue_of([3, "x"])).text


@pytest.mark.parametrize(
    "schema", [[ENTRY, "a line of text"], [{"description": "no name"}], [{"name": 5}], [[]]]
)
async def test_a_list_with_another_kind_of_entry_is_not_checked(schema: list[Any]) -> None:
    catalogue = await catalogue_of(schema)
    assert not catalogue.checked
    assert not catalogue.empty


@pytest.mark.parametrize("schema", [None, 5, b"[]", {"tools": []}, MagicMock()])
async def test_a_schema_of_another_type_raises(schema: object) -> None:
    with pytest.raises(
        ToolFailedError, match=r"get_tools_schema\(\) .* must return a str or a list"
    ):
        await catalogue_of(schema)


async def test_an_async_registry_is_awaited() -> None:
    registry = AsyncMock()
    registry.get_tools_schema.return_value = "Tools..."
    assert (await read_catalogue(registry)).text == "Tools..."


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("get_page", "get_page"),
        ("GET-PAGE", "get_page"),
        ("getPage", "get_page"),
        ("get page", "get_page"),
        ("Read.File", None),
        ("read_file", "read_file"),
        ("get_pages", None),
        ("get_pag", None),
        ("", None),
    ],
)
async def test_names_differ_in_case_and_separators_at_most_s2_07(
    name: str, tool: str | None
) -> None:
    catalogue = await catalogue_of(
        [{"name": tool_name} for tool_name in ("get_page", "read_file", "readFile")]
    )
    definition = catalogue.find(name)
    assert (definition.name if definition else None) == tool


async def test_arguments_are_not_checked_with_a_broken_schema() -> None:
    catalogue = await catalogue_of([{"name": "t", "parameters": {"type": "nonsense"}}])
    assert catalogue.definitions[0].find_problems({"anything": 1}) == ()


async def test_equal_registries_share_one_catalogue() -> None:
    first = await read_catalogue(ToolRegistry([get_page]))
    registry = ToolRegistry([get_page])
    assert await read_catalogue(registry) is first
    registry.register(get_page, name="other")
    assert len((await read_catalogue(registry)).definitions) == 2


def definition(name: str, description: str) -> dict[str, object]:
    return {"name": name, "description": description, "parameters": {"type": "object"}}


async def test_few_tools_over_the_tokens_are_shown_as_signatures_s2_03() -> None:
    long = "Reports the weather of a city. " + "Then it says more about rain and wind. " * 40
    catalogue = await catalogue_of([definition(f"get_{n}", long) for n in range(3)])

    def offered(limit_tokens: int) -> str:
        tools = offer_tools(
            catalogue,
            parts=(),
            whole=["the weather"],
            shortlist_tools=20,
            limit_tokens=limit_tokens,
        )
        assert tools.names is not None
        return tools.stable

    assert offered(catalogue.text_tokens) == f"Tools:\n{in_fence(catalogue.text)}"
    signatures = f"Tools:\n{in_fence(catalogue.signatures)}"
    assert offered(catalogue.text_tokens - 1) == signatures
    assert offered(catalogue.signature_tokens) == signatures
    assert offered(catalogue.signature_tokens - 1) not in {
        signatures,
        f"Tools:\n{in_fence(catalogue.text)}",
    }


async def test_a_shortlist_has_each_tool_and_the_best_in_full_within_the_limit() -> None:
    tools = [definition(f"get_{n}", f"Reports item {n}. " + "It adds a. " * 20) for n in range(30)]
    catalogue = await catalogue_of(tools)

    def shortlist(limit_tokens: int) -> OfferedTools:
        return offer_tools(
            catalogue, parts=(), whole=["item 7"], shortlist_tools=2, limit_tokens=limit_tokens
        )

    names = shortlist(catalogue.signature_tokens - 1).names
    assert names is not None
    assert names[0] == "get_7"
    best, second = (catalogue.definitions_by_name[name] for name in names)
    both_in_full = best.text_tokens + second.text_tokens
    best_in_full = best.text_tokens + second.signature_tokens
    signatures = best.signature_tokens + second.signature_tokens
    for limit_tokens, lines in (
        (both_in_full, [best.text, second.text]),
        (both_in_full - 1, [best.text, second.signature]),
        (best_in_full, [best.text, second.signature]),
        (best_in_full - 1, [best.signature, second.signature]),
        (signatures - 1, [best.signature]),
    ):
        offered = shortlist(limit_tokens)
        [text] = offered.sections
        assert text.splitlines()[2:-1] == lines
        assert offered.names == names[: len(lines)]
