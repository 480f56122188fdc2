"""Stored results as arguments."""

from pathlib import Path
from typing import Any

import pytest

from llm_common.agents.session import ToolContextManager
from llm_common.errors import ConfigError, ToolArgumentsError
from llm_common.tools.pointer_arguments import PointerArgumentsTool, session_registry
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.signature import signature
from llm_common.tools.tool import Tool


def total(rows: list[int], note: str = "", scale: int = 1) -> str:
    """Adds up."""
    return f"{sum(rows) * scale}{note}"


async def summing(
    tmp_path: Path, result: Any, **options: Any
) -> tuple[PointerArgumentsTool, str, ToolContextManager]:
    manager = ToolContextManager(tmp_path)
    pointer = await manager.save_context("t", {}, result)
    tool = PointerArgumentsTool(
        Tool(total), manager.load_payload, parameters=["rows", "note"], **options
    )
    return tool, pointer.pointer_id, manager


async def test_a_reference_becomes_the_stored_result_s4_08(tmp_path: Path) -> None:
    tool, pointer_id, _ = await summing(tmp_path, [1, 2, 3])
    assert await tool.run({"rows": {"$pointer": pointer_id}, "scale": 2}) == "12"
    assert await tool.run({"rows": {"$pointer": f" {pointer_id.upper()}"}}) == "6"
    assert await tool.run({"rows": [4], "note": "!"}) == "4!"


async def test_a_part_can_be_passed_on_s4_08(tmp_path: Path) -> None:
    tool, pointer_id, _ = await summing(tmp_path, {"rows": [5, 6], "unit": "m"})
    args = {
        "rows": {"$pointer": pointer_id, "path": "/rows"},
        "note": {"$pointer": pointer_id, "path": "/unit"},
    }
    assert await tool.run(args) == "11m"
    assert args["rows"] == {"$pointer": pointer_id, "path": "/rows"}


async def test_what_comes_of_it_is_held_against_the_tools_own_schema_s4_08(tmp_path: Path) -> None:
    tool, pointer_id, _ = await summing(tmp_path, {"secret": "canary"})
    with pytest.raises(ToolArgumentsError, match="rows") as caught:
        await tool.run({"rows": {"$pointer": pointer_id}})
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ({"$pointer": "0123456789ab"}, "rows: no stored result of this session"),
        ({"$pointer": "../../etc/passwd"}, "no stored result"),
        ({"$pointer": "{id}", "path": "/nope"}, "leads nowhere"),
        ({"$pointer": "{id}", "path": 5}, "rows"),
        ({"$pointer": 5}, "rows"),
        ({"$pointer": "{id}", "more": 1}, "rows"),
    ],
)
async def test_a_reference_that_leads_nowhere_does_not_run_the_tool_s4_08(
    tmp_path: Path, reference: dict[str, Any], words: str
) -> None:
    tool, pointer_id, _ = await summing(tmp_path, [1])
    reference = {key: pointer_id if value == "{id}" else value for key, value in reference.items()}
    with pytest.raises(ToolArgumentsError, match=words):
        await tool.run({"rows": reference})


async def test_an_erased_result_says_so_s4_08(tmp_path: Path) -> None:
    tool, pointer_id, manager = await summing(tmp_path, [1])
    await manager.clear()
    with pytest.raises(ToolArgumentsError, match=r"gone \(erased\)"):
        await tool.run({"rows": {"$pointer": pointer_id}})


async def test_what_is_passed_on_is_bounded_together_s4_08(tmp_path: Path) -> None:
    tool, pointer_id, _ = await summing(tmp_path, "x" * 100, max_bytes=150)
    with pytest.raises(ToolArgumentsError, match="too large together"):
        await tool.run({"rows": {"$pointer": pointer_id}, "note": {"$pointer": pointer_id}})


async def test_a_parameter_that_is_not_named_takes_no_reference_s4_08(tmp_path: Path) -> None:
    tool, pointer_id, _ = await summing(tmp_path, 3)
    with pytest.raises(ToolArgumentsError, match="scale"):
        await tool.run({"rows": [1], "scale": {"$pointer": pointer_id}})
    assert "$pointer" not in str(tool.parameters["properties"]["scale"])


async def test_the_schema_offers_references_and_keeps_the_rest_s4_08(tmp_path: Path) -> None:
    tool, _, _ = await summing(tmp_path, 3)
    assert tool.parameters["required"] == ["rows"]
    assert (
        tool.parameters["properties"]["rows"]["anyOf"][0]
        == Tool(total).parameters["properties"]["rows"]
    )
    reference = "{$pointer: str, path?: str}"
    line = signature(tool.name, tool.description, tool.parameters)
    assert line == f"total(note?: str|{reference}, rows: int[]|{reference}, scale?: int) - Adds up."


@pytest.mark.parametrize("read_only", [True, False, None])
def test_the_mark_of_the_tool_stays(read_only: bool | None) -> None:
    tool = Tool(total, read_only=read_only)
    wrapped = PointerArgumentsTool(
        tool, lambda _: pytest.fail("nothing is read"), parameters=["rows"]
    )
    assert wrapped.read_only is read_only


async def test_arguments_that_are_no_object_are_refused(tmp_path: Path) -> None:
    tool, _, _ = await summing(tmp_path, 3)
    wrong: Any = ["rows"]
    with pytest.raises(ToolArgumentsError):
        await tool.run(wrong)


def test_a_parameter_that_is_not_there_cannot_be_named() -> None:
    with pytest.raises(ConfigError, match="no parameter row;"):
        PointerArgumentsTool(Tool(total), lambda _: pytest.fail("never"), parameters=["row"])


def test_a_session_registry_is_a_copy_with_what_is_asked_for_s4_08() -> None:
    registry = ToolRegistry([total])

    def load(_: str) -> Any:
        pytest.fail("never")

    assert session_registry(registry, load) is registry
    with_reader = session_registry(
        registry, load, read_back=True, pointer_arguments={"total": ["rows"]}
    )
    assert with_reader.names == ("read_context", "total")
    assert isinstance(with_reader.get("total"), PointerArgumentsTool)
    assert registry.names == ("total",)
    assert not isinstance(registry.get("total"), PointerArgumentsTool)
    with pytest.raises(ConfigError, match="no tool missing"):
        session_registry(registry, load, pointer_arguments={"missing": ["rows"]})
    with pytest.raises(ConfigError, match="ToolRegistry"):
        session_registry(object(), load, read_back=True)
    with pytest.raises(ConfigError, match="registered already"):
        session_registry(with_reader, load, read_back=True)
