import asyncio
import json
from datetime import date
from enum import Enum
from functools import partial
from itertools import permutations
from threading import Thread
from types import SimpleNamespace
from typing import Annotated, Any, Literal
from unittest.mock import patch

import pytest
from pydantic import AfterValidator, BaseModel, Field

from llm_common.errors import ConfigError, ToolArgumentsError, ToolFailedError, UnknownToolError
from llm_common.tools import Tool, ToolRegistry, ToolResult


class Unit(Enum):
    METRIC = "metric"
    IMPERIAL = "imperial"


class Place(BaseModel):
    city: str
    country: str = "DE"


def forecast(
    place: Place, day: date, unit: Unit = Unit.METRIC, *, hours: int | None = None
) -> dict[str, Any]:
    """Forecasts the weather
    of one day.

    More words that no model needs.

    Args:
        place: Where to look,
            as a town.
        day (date): The day: in local time.
        hours: Only so many hours.

    Returns:
        A dict.
    """
    return {"city": place.city, "year": day.year, "unit": unit, "hours": hours}


def a(x: int) -> int:
    """Doubles."""
    return 2 * x


def b(x: int = 1) -> int:
    """Returns it."""
    return x


def c() -> None:
    """Does nothing."""


def test_a_function_describes_itself() -> None:
    tool = Tool(forecast)
    assert tool.name == "forecast"
    assert tool.description == "Forecasts the weather of one day."
    assert {name: tool.parameters[name] for name in tool.parameters if name != "$defs"} == {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place", "description": "Where to look, as a town."},
            "day": {
                "type": "string",
                "format": "date",
                "description": "The day: in local time.",
            },
            "unit": {"$ref": "#/$defs/Unit", "default": "metric"},
            "hours": {
                "anyOf": [{"type": "integer"}, {"type": "null"}],
                "default": None,
                "description": "Only so many hours.",
            },
        },
        "required": ["place", "day"],
        "additionalProperties": False,
    }


def test_a_field_description_beats_the_docstring() -> None:
    def tool(
        x: Annotated[int, Field(description="from the field", ge=1)],
        y: int = Field(3, description="default"),
    ) -> int:
        """Adds.

        Args:
            x: from the docstring
        """
        return x + y

    made = Tool(tool)
    assert made.parameters["properties"]["x"] == {
        "description": "from the field",
        "minimum": 1,
        "type": "integer",
    }
    assert made.parameters["properties"]["y"] == {
        "default": 3,
        "description": "default",
        "type": "integer",
    }


async def test_a_function_gets_real_values() -> None:
    result = await Tool(forecast).run(
        {"place": {"city": "Ulm"}, "day": "2031-05-02", "unit": "imperial"}
    )
    assert result == {"city": "Ulm", "year": 2031, "unit": Unit.IMPERIAL, "hours": None}


async def test_defaults_that_json_cannot_hold_are_kept() -> None:
    marker = object()

    def tool(x: Any = marker, y: Annotated[int, Field(default=7)] = 7) -> tuple[Any, int]:
        return x, y

    assert await Tool(tool).run({}) == (marker, 7)


async def test_parameters_may_have_any_python_name() -> None:
    def tool(
        schema: int, model_config: int, copy: int, _private: int, json: Literal["x"] = "x"
    ) -> int:
        return schema + model_config + copy + _private + len(json)

    made = Tool(tool)
    assert set(made.parameters["properties"]) == {
        "schema",
        "model_config",
        "copy",
        "_private",
        "json",
    }
    assert await made.run({"schema": 1, "model_config": 2, "copy": 3, "_private": 4}) == 11


def positional(x: int, /) -> int:
    return x


def starred(*numbers: int) -> int:
    return sum(numbers)


def keywords(**options: int) -> int:
    return len(options)


def unknown_hint(x: "Nowhere") -> int:  # type: ignore[name-defined]  # noqa: F821
    return len(x)


def unschemable(x: ToolRegistry) -> int:
    return len(x)


@pytest.mark.parametrize("function", [positional, starred, keywords, unknown_hint, unschemable])
def test_a_signature_without_a_schema_is_a_clear_error(function: Any) -> None:
    with pytest.raises(ConfigError, match=f"{function.__name__} cannot become a tool"):
        Tool(function)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "naïve", "a/b", "a\n", "<lambda>"])
def test_names_outside_the_allow_list_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="1 to 64"):
        Tool(a, name=name)


@pytest.mark.parametrize("name", ["x", "A.b-c_9", "x" * 64])
def test_names_inside_the_allow_list_are_kept(name: str) -> None:
    assert Tool(a, name=name).name == name


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "nonsense"},
        {"type": "string"},
        {"properties": {"x": {"$ref": "#/nowhere"}}},
        {"required": "x"},
        {"$schema": "http://foo.example/bar"},
        {"properties": {"x": {"pattern": "("}}},
    ],
)
def test_broken_schemas_are_refused_at_registration(parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ToolRegistry().register(a, parameters=parameters)


async def test_an_explicit_schema_goes_with_a_handler() -> None:
    registry = ToolRegistry()
    registry.register(
        lambda **kwargs: kwargs,
        name="raw",
        description="d",
        parameters={"properties": {"a-b": {"type": "integer"}}},
    )
    assert await registry.execute("raw", {"a-b": 3, "extra": None}) == {"a-b": 3, "extra": None}
    with pytest.raises(ToolArgumentsError, match="a-b"):
        await registry.execute("raw", {"a-b": "x"})


async def test_tool_objects_with_metadata_are_taken() -> None:
    async def execute(x: int) -> int:
        return x + 1

    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    metadata = SimpleNamespace(name="old", description="An old tool", to_schema=lambda: parameters)
    registry = ToolRegistry([SimpleNamespace(metadata=metadata, execute=execute)])
    assert await registry.execute("old", x=1) == 2
    assert json.loads(registry.get_tools_schema())[0]["description"] == "An old tool"


def test_two_tools_never_share_a_name() -> None:
    registry = ToolRegistry([a])
    with pytest.raises(ConfigError, match="registered already"):
        registry.register(b, name="a")
    registry.unregister("a")
    registry.register(b, name="a")
    tool = registry.get("a")
    assert tool is not None
    assert tool.description == "Returns it."


def test_the_registry_is_a_sorted_collection_of_tools() -> None:
    registry = ToolRegistry([c, a, b])
    registry.unregister("b")
    registry.unregister("b")
    assert registry.names == ("a", "c")
    assert [tool.name for tool in registry] == ["a", "c"]
    assert len(registry) == 2
    assert "a" in registry
    assert registry.get("b") is None


class Adder:
    async def __call__(self, x: int) -> int:
        return x + 1


async def add(x: int, y: int = 1) -> int:
    """Adds."""
    return x + y


async def test_async_tools_of_every_kind_are_awaited_without_a_thread_f_161() -> None:
    registry = ToolRegistry([add])
    registry.register(Adder(), name="object")
    registry.register(partial(add, y=5), name="partial")
    with patch.object(Thread, "start", side_effect=RuntimeError("can't start new thread")):
        assert [await registry.execute(name, {"x": 1}) for name in registry.names] == [2, 2, 6]
    registry.register(lambda x: add(x, 7), name="lambda")
    assert await registry.execute("lambda", x=1) == 8


def test_a_model_is_offered_the_tools_of_the_moment_s2_03() -> None:
    registry = ToolRegistry([a, b])
    assert '"name":"b"' in registry.get_tools_schema()
    registry.unregister("b")
    assert registry.get_tools_schema() == ToolRegistry([a]).get_tools_schema()
    registry.register(c)
    assert registry.get_tools_schema() == ToolRegistry([a, c]).get_tools_schema()


async def test_the_decorator_registers_and_returns_the_function() -> None:
    registry = ToolRegistry()

    @registry.tool
    def one(x: int) -> int:
        return x

    @registry.tool(name="zwei", description="Second")
    async def two(x: int) -> int:
        return 2 * x

    assert one(1) == 1
    assert await two(1) == 2
    assert registry.names == ("one", "zwei")
    assert await registry.execute("zwei", x=2) == 4


def test_insertion_order_never_shows_in_the_schema_s2_13() -> None:
    schemas = {ToolRegistry(order).get_tools_schema() for order in permutations([a, b, c])}
    assert len(schemas) == 1
    assert schemas.pop() == (
        '[{"description":"Doubles.","name":"a","parameters":{"additionalProperties":false,'
        '"properties":{"x":{"type":"integer"}},"required":["x"],"type":"object"}},'
        '{"description":"Returns it.","name":"b","parameters":{"additionalProperties":false,'
        '"properties":{"x":{"default":1,"type":"integer"}},"type":"object"}},'
        '{"description":"Does nothing.","name":"c","parameters":{"additionalProperties":false,'
        '"properties":{},"type":"object"}}]'
    )


def test_a_registry_copies_what_it_takes_and_returns() -> None:
    parameters: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}
    registry = ToolRegistry()
    tool = registry.register(lambda **_: None, name="t", parameters=parameters)
    before = registry.get_tools_schema()
    parameters["properties"]["x"]["type"] = "string"
    tool.parameters["properties"].clear()
    assert registry.get_tools_schema() == before


async def test_both_ways_of_passing_arguments_run_the_tool_once() -> None:
    ran: list[int] = []

    def count(x: int) -> int:
        ran.append(x)
        return x

    registry = ToolRegistry([count])
    assert await registry.execute("count", {"x": 1}) == 1
    assert await registry.execute("count", x=2) == 2
    with pytest.raises(ToolArgumentsError, match="not both"):
        await registry.execute("count", {"x": 3}, x=4)
    assert ran == [1, 2]


async def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownToolError, match="forecast") as caught:
        await ToolRegistry([forecast]).execute("forecasts")
    assert caught.value.tool == "forecasts"


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"x": "SECRET"},
        {"x": 1, "SECRET_FREE": 1},
        {"x": None},
        {"x": {"y": "SECRET"}},
        ["SECRET"],
        "SECRET",
        {1: 2},
    ],
)
async def test_wrong_arguments_never_reach_the_tool_and_values_never_the_error_f_102(
    args: Any,
) -> None:
    ran: list[int] = []
    registry = ToolRegistry()
    registry.register(ran.append, name="f", parameters=Tool(a).parameters)
    registry.register(a)
    for name in ("a", "f"):
        with pytest.raises(ToolArgumentsError) as caught:
            await registry.execute(name, args)
        assert "SECRET" not in str(caught.value).replace("SECRET_FREE", "")
        assert caught.value.__cause__ is None
        assert caught.value.tool == name
    assert ran == []


def is_even(value: int) -> int:
    if value % 2:
        raise ValueError(f"{value} is odd")
    return value


Even = Annotated[int, AfterValidator(is_even)]


def order(
    count: Annotated[int, Field(gt=0)],
    size: Literal["S", "M"] = "S",
    on: date | None = None,
    pairs: Even = 2,
) -> None:
    """Orders shirts."""


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (
            {"count": "SECRET"},
            "count: must be a valid integer, unable to parse string as an integer",
        ),
        ({"count": 0}, "count: must be greater than 0"),
        ({"count": 1, "size": "SECRET"}, "size: must be 'S' or 'M'"),
        ({"count": 1, "on": "SECRET"}, "on: date from datetime parsing"),
        ({"count": 1, "pairs": 77771}, "pairs: value error"),
        ({"count": 1, "colour": "SECRET"}, "colour: Extra inputs are not permitted"),
        ({}, "count: missing"),
    ],
)
async def test_an_error_names_the_expected_type_without_the_value_f_102(
    args: dict[str, Any], told: str
) -> None:
    with pytest.raises(ToolArgumentsError) as caught:
        await Tool(order).run(args)
    assert caught.value.message == f"order was not run: {told}. Correct these and call again"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_raising_tool_runs_once_and_says_why(is_async: bool) -> None:
    ran: list[str] = []
    secret = "sk-proj-" + "a1B2" * 12

    def broken(customer: str) -> None:
        ran.append(customer)
        raise ConnectionError(f"the audit of {customer} is down, key {secret}")

    async def broken_later(customer: str) -> None:
        broken(customer)

    tool = Tool(broken_later if is_async else broken, name="audit")
    with pytest.raises(ToolFailedError) as caught:
        await ToolRegistry([tool]).execute("audit", {"customer": "Ann Nowak"})
    assert ran == ["Ann Nowak"]
    assert str(caught.value) == (
        "audit raised ConnectionError: the audit of [customer] is down, key [redacted]; "
        "correct the call, or go on without it"
    )
    assert isinstance(caught.value.__cause__, ConnectionError)


async def test_a_tool_that_explains_its_failure_is_quoted() -> None:
    def audit() -> None:
        raise ToolFailedError("the index is being rebuilt; ask again in an hour", tool="audit")

    with pytest.raises(ToolFailedError, match=r"^audit: the index is being rebuilt; ask again"):
        await ToolRegistry([audit]).execute("audit")


@pytest.mark.parametrize(
    "error", [ValueError, StopIteration, KeyError, asyncio.TimeoutError, RecursionError]
)
async def test_any_exception_of_a_tool_becomes_one_error(error: type[Exception]) -> None:
    def broken() -> None:
        raise error

    with pytest.raises(ToolFailedError):
        await asyncio.wait_for(ToolRegistry([broken]).execute("broken"), timeout=60)


async def test_a_types_own_validator_may_raise_anything() -> None:
    def refuse(value: int) -> int:
        raise KeyError(value)

    def tool(x: Annotated[int, AfterValidator(refuse)]) -> int:
        return x

    with pytest.raises(ToolFailedError, match="KeyError"):
        await Tool(tool).run({"x": 1})


async def test_cancellation_passes_through() -> None:
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(ToolRegistry([wait]).execute("wait"))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_sync_tools_leave_the_event_loop_free() -> None:
    import threading

    gate = threading.Event()
    registry = ToolRegistry()
    registry.register(lambda: gate.wait(5), name="blocked", parameters={})
    running = asyncio.create_task(registry.execute("blocked"))
    await asyncio.sleep(0.01)
    assert not running.done()
    gate.set()
    assert await running is True


async def test_a_tool_result_is_handed_back_as_it_is() -> None:
    failed = ToolResult(success=False, error="no such page")

    def fetch() -> ToolResult:
        return failed

    assert await ToolRegistry([fetch]).execute("fetch") is failed


def test_a_tool_result_keeps_further_fields() -> None:
    result = ToolResult.model_validate({"success": True, "data": 1, "evidence": ["e"]})
    assert result.model_dump() == {
        "success": True,
        "data": 1,
        "source_urls": [],
        "error": None,
        "evidence": ["e"],
    }


UNTYPED_TOOL: Any = Tool
UNTYPED_REGISTRY: Any = ToolRegistry


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: UNTYPED_TOOL("get_price"),
            "function of the tool is a str; pass a function, sync or async",
        ),
        (
            lambda: UNTYPED_TOOL(print, description=5, parameters={}),
            "description of the tool is a int; pass a text",
        ),
        (
            lambda: UNTYPED_TOOL(print, parameters=[]),
            "parameters of the tool is a list; pass a JSON Schema as a dict",
        ),
        (
            lambda: UNTYPED_TOOL(print, parameters=dict),
            "parameters of the tool is a type; pass a JSON Schema",
        ),
        (
            lambda: UNTYPED_REGISTRY(print),
            r"tools is a builtin_function_or_method; pass a list, such as ToolRegistry",
        ),
        (lambda: UNTYPED_REGISTRY({"print": print}), "tools is a dict; pass a list"),
        (lambda: UNTYPED_REGISTRY("print"), "tools is a str; pass a list"),
        (lambda: UNTYPED_REGISTRY(None), "tools is a NoneType; pass a list"),
    ],
)
def test_a_wrong_kind_of_argument_says_what_to_pass(make: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()


@pytest.mark.parametrize("wrong", [{"name": "t"}, "get_price", 5, None])
def test_what_is_no_tool_cannot_be_registered(wrong: Any) -> None:
    with pytest.raises(
        ConfigError, match=f"a {type(wrong).__name__} is not a tool; pass a function"
    ):
        ToolRegistry().register(wrong)
