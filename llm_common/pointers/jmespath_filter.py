"""Filters of read-back: JMESPath with a budget of work, because a model writes the filter.

jmespath itself has no limit, and `[@,@,@]|[@,@,@]|…` grows threefold with each step. The budget counts work instead of
time, so a busy machine changes no answer. It is sound, because

- each evaluation of a node costs one unit, and every value comes from such an evaluation;
- a step whose cost grows with its input pays for that input before it runs: for the elements that it copies, compares
  or sorts, and for the characters that it compares or writes. A part that occurs twice in a value is paid twice;
- the answer is measured in the same way before it becomes text.

So one unit stands for less than a microsecond and less than 250 bytes, and the units of one filter are limited.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any

from jmespath.functions import Functions
from jmespath.parser import Parser
from jmespath.visitor import Options, TreeInterpreter

__all__ = ["apply_filter"]

_BASE_UNITS = 300_000
_MAX_UNITS = 3_000_000  # a second or two
_BASE_SIZE = 1_000_000
_SIZE_PER_BYTE = 5  # JSON of empty lists has three bytes for each value, which counts as eight
_VALUE_SIZE = 8
_MAX_NEEDLE_CHARS = 100  # CPython searches for a longer text in linear time


def apply_filter(value: Any, expression: str, *, payload_bytes: int) -> Any:
    """What a JMESPath expression gives for a value: plain JSON data.

    Args:
        value: Decoded JSON.
        expression: At most some thousand characters.
        payload_bytes: Size of the stored result. A filter over a larger result may do more work.

    Raises:
        ValueError: The expression is wrong, does not fit the data, takes too much work, or gives something that is
            not JSON. The text repeats neither the expression nor the data.
    """
    try:
        interpreter = _Interpreter(min(_BASE_UNITS + payload_bytes, _MAX_UNITS))
        found = interpreter.visit(Parser().parse(expression).parsed, value)
        _measure(found, max_size=_BASE_SIZE + _SIZE_PER_BYTE * payload_bytes)
    except _OverBudgetError as exc:
        raise ValueError(
            "the filter took too much work and was stopped; use a simpler filter, or narrow it with a path"
        ) from exc
    except RecursionError as exc:
        raise ValueError("the filter took too much depth and was stopped; use a simpler filter") from exc
    except _NotJsonError as exc:
        raise ValueError("what the filter gives is no JSON data") from exc
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as exc:
        raise ValueError(f"the filter is no JMESPath expression that fits the data ({type(exc).__name__})") from exc
    return found


class _OverBudgetError(Exception):
    pass


class _NotJsonError(Exception):
    pass


def _measure(value: Any, *, max_size: int) -> int:
    """The size of a value as JSON, roughly in characters; each occurrence of a shared part counts."""
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


class _Interpreter(TreeInterpreter):  # type: ignore[misc]
    """Evaluates an expression and stops when its units are spent."""

    def __init__(self, units: int) -> None:
        super().__init__(Options(custom_functions=_BudgetedFunctions(self)))
        self._units = units
        compare = TreeInterpreter.COMPARATOR_FUNC
        self.COMPARATOR_FUNC = compare | {name: self._budgeted(compare[name]) for name in ("eq", "ne")}

    def spend(self, units: int) -> None:
        self._units -= units
        if self._units < 0:
            raise _OverBudgetError

    def spend_size_of(self, value: Any) -> None:
        self.spend(_measure(value, max_size=self._units * _VALUE_SIZE) // _VALUE_SIZE)

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self.spend(1)
        found = super().visit(node, *args, **kwargs)
        if type(found) is str:  # the next step may compare it, or sort by it
            self.spend(len(found) // 256)
        return found

    def visit_flatten(self, node: Any, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        self.spend(len(base) // 2)
        self.spend(sum(len(item) for item in base if isinstance(item, list)) // 2)
        return [inner for item in base for inner in (item if isinstance(item, list) else (item,))]

    def visit_slice(self, node: Any, value: Any) -> Any:
        if isinstance(value, list):
            self.spend(len(range(*slice(*node["children"]).indices(len(value)))) // 2)
        return super().visit_slice(node, value)

    def _budgeted(self, compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def compared(left: Any, right: Any) -> Any:
            if isinstance(right, list | dict) and type(left) is type(right) and len(left) == len(right):
                self.spend_size_of(right)  # a comparison meets each part of it once at most
            return compare(left, right)

        return compared


class _BudgetedFunctions(Functions):  # type: ignore[misc]
    """JMESPath's functions; a call pays for the size of its arguments before it runs."""

    def __init__(self, interpreter: _Interpreter) -> None:
        self._interpreter = interpreter

    def call_function(self, function_name: str, resolved_args: list[Any]) -> Any:
        spend, spend_size_of = self._interpreter.spend, self._interpreter.spend_size_of
        for argument in resolved_args:
            if isinstance(argument, list | dict):
                spend(len(argument) // 2 if isinstance(argument, list) else len(argument))
        match function_name, resolved_args:
            case (("sort" | "sort_by"), [list(items), *_]):
                spend(len(items) * len(items).bit_length() // 16 + _count_chars(items) // 64)
            case (("max" | "min"), [list(items)]):
                spend(_count_chars(items) // 256)
            case "join", [str(separator), list(items)]:
                spend((len(separator) * len(items) + _count_chars(items)) // 16)
            case "contains", [str(text), str(part)]:
                spend(len(text) * min(len(part), _MAX_NEEDLE_CHARS) // 256)
            case "contains", [list(items), _]:
                spend_size_of(items)
            case (("reverse" | "to_number"), [str(text)]):
                spend(len(text) // 16)
            case "to_string", [argument]:
                spend_size_of(argument)
        return super().call_function(function_name, resolved_args)


def _count_chars(items: list[Any]) -> int:
    return sum(len(item) for item in items if isinstance(item, str))
