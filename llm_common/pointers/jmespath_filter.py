"""Filters of read-back: JMESPath with a budget of work, because a model writes the filter.

jmespath evaluates without a limit, and `[@,@,@]|[@,@,@]|…` grows threefold with each step. Here its
own interpreter spends units of a budget. Work is counted instead of time, so a busy machine changes
no answer. The count is sound:

- each visit of a node of the expression pays one unit, for each element of a loop again;
- a step whose cost grows with its input pays for it before it runs: for the elements that it
  copies, compares or sorts, and for the characters that it compares or writes. A part that occurs
  twice in a value is paid twice;
- the answer is measured in the same way before it becomes text.

So one unit stands for about a microsecond and less than 250 bytes, and the units of one filter are
limited.
"""

from math import isfinite
from typing import Any, TypeAlias

from jmespath.functions import Functions  # type: ignore[import-untyped]
from jmespath.parser import Parser  # type: ignore[import-untyped]
from jmespath.visitor import Options, TreeInterpreter  # type: ignore[import-untyped]

_Node: TypeAlias = dict[str, Any]

_BASE_UNITS = 300_000
_MAX_UNITS = 2_000_000  # about two seconds
_BASE_SIZE = 1_000_000
_SIZE_PER_BYTE = 5  # JSON of empty lists has three bytes for each value, which counts as eight
_VALUE_SIZE = 8
_DICT_UNITS = 3  # a dict takes the memory of three lists
_MAX_NEEDLE_CHARS = 100  # CPython searches for a longer text in linear time


def apply_filter(value: Any, expression: str, *, payload_bytes: int) -> Any:
    """What a JMESPath expression gives for a value: plain JSON data.

    Args:
        value: Decoded JSON.
        expression: At most some thousand characters.
        payload_bytes: Size of the stored result. A filter over a larger result may do more work.

    Raises:
        ValueError: The expression is wrong, does not fit the data, takes too much work, or gives
            something that is not JSON. The text repeats neither the expression nor the data.
    """
    budget = _Budget(min(_BASE_UNITS + payload_bytes, _MAX_UNITS))
    try:
        found = _Interpreter(budget).visit(Parser().parse(expression).parsed, value)
        _measure(found, max_size=_BASE_SIZE + _SIZE_PER_BYTE * payload_bytes)
    except _OverBudgetError as exc:
        raise ValueError(
            "the filter took too much work and was stopped; "
            "use a simpler filter, or narrow it with a path"
        ) from exc
    except RecursionError as exc:
        raise ValueError(
            "the filter took too much depth and was stopped; use a simpler filter"
        ) from exc
    except _NotJsonError as exc:
        raise ValueError("what the filter gives is no JSON data") from exc
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as exc:
        raise ValueError(
            f"the filter is no JMESPath expression that fits the data ({type(exc).__name__})"
        ) from exc
    return found


class _OverBudgetError(Exception):
    pass


class _NotJsonError(Exception):
    pass


def _measure(value: Any, *, max_size: int) -> int:
    """The size of a value as JSON, roughly in characters.

    Each occurrence of a shared part counts.
    """
    size, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        size += _VALUE_SIZE
        if kind is str:
            size += len(item)
        elif kind is list:
            waiting += item
        elif kind is dict:
            size += sum(map(len, item))
            waiting += item.values()
        elif kind is int:
            size += item.bit_length()
        elif kind is float:
            if not isfinite(item):
                raise _NotJsonError
        elif item is not None and kind is not bool:
            raise _NotJsonError
        if size + len(waiting) * _VALUE_SIZE > max_size:
            raise _OverBudgetError
    return size


class _Budget:
    """Units that are left to spend."""

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
    """JMESPath's interpreter.

    A visit pays one unit, a step that copies or compares pays for what it meets.
    """

    def __init__(self, budget: _Budget) -> None:
        super().__init__(Options(custom_functions=_PaidFunctions(budget)))
        self._budget = budget
        self._methods = {
            name[6:]: getattr(self, name) for name in dir(self) if name.startswith("visit_")
        }

    def visit(self, node: _Node, *args: Any, **kwargs: Any) -> Any:
        self._budget.units -= 1
        if self._budget.units < 0:
            raise _OverBudgetError
        return self._methods[node["type"]](node, *args, **kwargs)

    def visit_multi_select_dict(self, node: _Node, value: Any) -> Any:
        self._budget.spend(_DICT_UNITS)
        return super().visit_multi_select_dict(node, value)

    def visit_flatten(self, node: _Node, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if isinstance(base, list):
            self._budget.spend(sum(len(item) for item in base if isinstance(item, list)) // 2)
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
            self._budget.spend_size_of(right)  # a comparison meets each part once at most
        name = node["value"]
        if name not in self._EQUALITY_OPS and not {type(left), type(right)} <= {int, float, str}:
            return None  # only numbers and texts have an order
        return self.COMPARATOR_FUNC[name](left, right)


def _literal(value: Any) -> _Node:
    return {"type": "literal", "value": value, "children": []}


class _PaidFunctions(Functions):  # type: ignore[misc]
    """JMESPath's functions; a call pays for the size of its arguments before it runs."""

    def __init__(self, budget: _Budget) -> None:
        self._budget = budget

    def call_function(self, function_name: str, resolved_args: list[Any]) -> Any:
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
        """Pays for what a call does beyond going through its arguments once."""
        spend = self._budget.spend
        match name, arguments:
            case ("sort_by", [list(items), _]):
                spend(len(items) * len(items).bit_length() // 8)
            case (("sort" | "max" | "min"), [list(items)]):
                spend(len(items) * len(items).bit_length() // 16 + _count_chars(items) // 64)
            case "join", [str(separator), list(items)]:
                spend((len(separator) * len(items) + _count_chars(items)) // 16)
            case "contains", [str(text), str(part)]:
                spend(len(text) * min(len(part), _MAX_NEEDLE_CHARS) // 256)
            case (("reverse" | "to_number"), [str(text)]):
                spend(len(text) // 16)
            case ("contains", [list(argument), _]) | ("to_string", [argument]):
                self._budget.spend_size_of(argument)


def _count_chars(items: list[Any]) -> int:
    return sum(len(item) for item in items if isinstance(item, str))
