"""JMESPath filters with a limited amount of work, because a model writes them.

jmespath has no limits, and `[@,@,@]|[@,@,@]|…` triples its value with each step. Here its
interpreter spends units of a budget. The budget limits work and not time, so the answer is the same
on a busy machine. Every cost is paid before it arises:

- Each visit of a node of the expression pays one unit, in a loop for each element.
- A step pays for the elements that it copies, compares or sorts, and for the characters that it
  compares or writes. Shared parts are paid at each occurrence.
- The answer is measured in the same way before it is written as JSON.

A unit is about a microsecond and less than 250 bytes.
"""

from math import isfinite
from typing import Any, TypeAlias

from jmespath.functions import Functions  # type: ignore[import-untyped]
from jmespath.parser import Parser  # type: ignore[import-untyped]
from jmespath.visitor import Options, TreeInterpreter  # type: ignore[import-untyped]

_Node: TypeAlias = dict[str, Any]

_MAX_UNITS = 2_000_000  # about two seconds
_VALUE_SIZE = 8


def apply_filter(value: Any, expression: str, *, payload_bytes: int) -> Any:
    """Evaluate a JMESPath expression on a value, and return plain JSON data.

    Args:
        value: Decoded JSON.
        expression: Expression of at most a few thousand characters.
        payload_bytes: Size of the stored result. A larger result allows more work.

    Raises:
        ValueError: If the expression is invalid, does not fit the data, needs too much work, or
            returns something other than JSON. The text repeats neither expression nor data.
    """
    budget = _Budget(min(300_000 + payload_bytes, _MAX_UNITS))
    try:
        answer = _Interpreter(budget).visit(Parser().parse(expression).parsed, value)
        # Five per byte, since JSON of empty lists has three bytes for a value, which counts eight.
        _measure(answer, max_size=1_000_000 + 5 * payload_bytes)
    except _OverBudgetError as exc:
        raise ValueError(
            "the filter needed too much work and was stopped. "
            "Use a simpler filter, or narrow it with a path"
        ) from exc
    except RecursionError as exc:
        raise ValueError(
            "the filter is nested too deeply and was stopped. Use a simpler filter"
        ) from exc
    except _NotJsonError as exc:
        raise ValueError("the filter does not return JSON. Use another filter") from exc
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as exc:
        raise ValueError(
            f"the filter is not valid JMESPath, or does not fit the data ({type(exc).__name__}). "
            "Correct it, or look at the data with keys"
        ) from exc
    return answer


class _OverBudgetError(Exception):
    pass


class _NotJsonError(Exception):
    pass


def _measure(value: Any, *, max_size: int) -> int:
    """Return the approximate size of a value as JSON, in characters.

    Shared parts count at each occurrence.
    """
    size, pending = 0, [value]
    while pending:
        item = pending.pop()
        kind = type(item)
        size += _VALUE_SIZE
        if kind is str:
            size += len(item)
        elif kind is list:
            pending += item
        elif kind is dict:
            size += sum(map(len, item))
            pending += item.values()
        elif kind is int:
            size += item.bit_length()
        elif kind is float:
            if not isfinite(item):
                raise _NotJsonError
        elif item is not None and kind is not bool:
            raise _NotJsonError
        if size + len(pending) * _VALUE_SIZE > max_size:
            raise _OverBudgetError
    return size


class _Budget:
    """The remaining units of a filter."""

    __slots__ = ("units",)

    def __init__(self, units: int) -> None:
        self.units = units

    def spend(self, units: int) -> None:
        self.units -= units
        if self.units < 0:
            raise _OverBudgetError

    def spend_size_of(self, value: Any) -> None:
        self.spend(_measure(value, max_size=self.units * _VALUE_SIZE) // _VALUE_SIZE)


class _Interpreter(TreeInterpreter):  # type: ignore[misc]
    """JMESPath's interpreter, which pays for each visit, copy and comparison."""

    def __init__(self, budget: _Budget) -> None:
        super().__init__(Options(custom_functions=_PaidFunctions(budget)))
        self._budget = budget
        # Looked up once, where jmespath builds and looks up the name at each visit.
        self._methods = {
            name[6:]: getattr(self, name) for name in dir(self) if name.startswith("visit_")
        }

    def visit(self, node: _Node, *args: Any, **kwargs: Any) -> Any:
        self._budget.units -= 1
        if self._budget.units < 0:
            raise _OverBudgetError
        return self._methods[node["type"]](node, *args, **kwargs)

    def visit_multi_select_dict(self, node: _Node, value: Any) -> Any:
        self._budget.spend(3)  # a dict takes the memory of three lists
        return super().visit_multi_select_dict(node, value)

    def visit_flatten(self, node: _Node, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if isinstance(base, list):
            self._budget.spend(sum(len(item) for item in base if isinstance(item, list)) // 2)
        # The base is visited and paid already. A literal keeps jmespath from doing it again.
        return super().visit_flatten(node | {"children": [_literal(base)]}, value)

    def visit_slice(self, node: _Node, value: Any) -> Any:
        if isinstance(value, list):
            self._budget.spend(len(value) // 2)
        return super().visit_slice(node, value)

    def visit_comparator(self, node: _Node, value: Any) -> Any:
        left, right = [self.visit(child, value) for child in node["children"]]
        if isinstance(right, str):
            self._budget.spend(len(right) // 256)
        elif (
            isinstance(right, list | dict) and type(left) is type(right) and len(left) == len(right)
        ):
            self._budget.spend_size_of(right)  # a comparison visits each part at most once
        name = node["value"]
        if name not in self._EQUALITY_OPS and not {type(left), type(right)} <= {int, float, str}:
            return None  # only numbers and strings have an order
        return self.COMPARATOR_FUNC[name](left, right)


def _literal(value: Any) -> _Node:
    return {"type": "literal", "value": value, "children": []}


class _PaidFunctions(Functions):  # type: ignore[misc]
    """JMESPath's functions, which pay for the size of their arguments before they run."""

    def __init__(self, budget: _Budget) -> None:
        self._budget = budget

    def call_function(self, function_name: str, resolved_args: list[Any]) -> Any:
        # Comparing 256 characters or copying two elements costs about as much as a visit.
        for argument in resolved_args:
            if isinstance(argument, list):
                self._budget.spend(len(argument) // 2)
            elif isinstance(argument, dict):
                self._budget.spend(len(argument))
            elif isinstance(argument, str):
                self._budget.spend(len(argument) // 256)
        self._pay(function_name, resolved_args)
        return super().call_function(function_name, resolved_args)

    def _pay(self, name: str, arguments: list[Any]) -> None:
        """Charge a call for its work beyond one pass through its arguments."""
        spend = self._budget.spend
        match name, arguments:
            case ("sort_by", [list(items), _]):
                spend(len(items) * len(items).bit_length() // 8)
            case (("sort" | "max" | "min"), [list(items)]):
                spend(len(items) * len(items).bit_length() // 16 + _count_chars(items) // 64)
            case "join", [str(separator), list(items)]:
                spend((len(separator) * len(items) + _count_chars(items)) // 16)
            case "contains", [str(text), str(part)]:
                # CPython searches for texts of over 100 characters in linear time.
                spend(len(text) * min(len(part), 100) // 256)
            case (("reverse" | "to_number"), [str(text)]):
                spend(len(text) // 16)
            case ("contains", [list(argument), _]) | ("to_string", [argument]):
                self._budget.spend_size_of(argument)


def _count_chars(items: list[Any]) -> int:
    return sum(len(item) for item in items if isinstance(item, str))
