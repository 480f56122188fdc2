"""Filters of read-back: JMESPath with a budget of work, because a model writes the filter.

jmespath parses and has the functions. It evaluates without a limit, and `[@,@,@]|[@,@,@]|…` grows threefold with each
step. Here an expression becomes closures, which are three times as fast and spend units of a budget. Work is counted
instead of time, so a busy machine changes no answer. The count is sound, because

- an expression without a loop evaluates each of its nodes once, and it has at most as many nodes as characters;
- a loop, in a projection or in a function that takes `&expression`, pays before it runs: its elements times the nodes
  of what it evaluates for each of them. A loop in a loop pays each time it is reached;
- any other step whose cost grows with its input pays for it before it runs: for the elements that it copies, compares
  or sorts, and for the characters that it compares or writes. A part that occurs twice in a value is paid twice;
- the answer is measured in the same way before it becomes text.

So one unit stands for less than a microsecond and less than 250 bytes, and the units of one filter are limited.
"""

import operator
from collections.abc import Callable
from math import isfinite
from typing import Any, TypeAlias

from jmespath.functions import Functions  # type: ignore[import-untyped]
from jmespath.parser import Parser  # type: ignore[import-untyped]

__all__ = ["apply_filter"]

_Node: TypeAlias = dict[str, Any]
_Evaluate: TypeAlias = Callable[[Any], Any]

_BASE_UNITS = 300_000
_MAX_UNITS = 10_000_000  # about two seconds
_DICT_UNITS = 4  # a dict takes the memory of three lists
_BASE_SIZE = 1_000_000
_SIZE_PER_BYTE = 5  # JSON of empty lists has three bytes for each value, which counts as eight
_VALUE_SIZE = 8
_MAX_NEEDLE_CHARS = 100  # CPython searches for a longer text in linear time
_ORDER = {"lt": operator.lt, "lte": operator.le, "gt": operator.gt, "gte": operator.ge}


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
    budget = _Budget(min(_BASE_UNITS + payload_bytes, _MAX_UNITS))
    try:
        found = _Compiler(budget).compile(Parser().parse(expression).parsed)(value)
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


class _Budget:
    """Units that are left to spend."""

    __slots__ = ("_units",)

    def __init__(self, units: int) -> None:
        self._units = units

    def spend(self, units: int) -> None:
        self._units -= units
        if self._units < 0:
            raise _OverBudgetError

    def spend_size_of(self, value: Any) -> None:
        self.spend(_measure(value, max_size=self._units * _VALUE_SIZE) // _VALUE_SIZE)

    def spend_comparison(self, left: Any, right: Any) -> None:
        """Pays for `left == right`, which meets each part of `right` once at most."""
        if type(left) is type(right):
            if isinstance(right, str):
                self.spend(len(right) // 256)
            elif isinstance(right, list | dict) and len(left) == len(right):
                self.spend_size_of(right)


def _count_nodes(node: _Node) -> int:
    own = _DICT_UNITS if node["type"] == "multi_select_dict" else 1
    return own + sum(
        _count_nodes(child) for child in node["children"] if isinstance(child, dict)
    )  # a slice has numbers


def _is_true(value: Any) -> bool:
    """Whether JMESPath takes the value for true: unlike in Python, each number is."""
    return value is not None and value is not False and not (not value and isinstance(value, str | list | dict))


class _Compiler:
    """Turns the nodes of a parsed expression into closures, by a method for each type of node."""

    def __init__(self, budget: _Budget) -> None:
        self._budget = budget
        self._functions = _PaidFunctions(budget)

    def compile(self, node: _Node) -> _Evaluate:
        evaluate: _Evaluate = getattr(self, f"_{node['type']}")(node)
        return evaluate

    def _children(self, node: _Node) -> list[_Evaluate]:
        return [self.compile(child) for child in node["children"]]

    def _identity(self, _: _Node) -> _Evaluate:
        return lambda value: value

    _current = _identity

    def _literal(self, node: _Node) -> _Evaluate:
        literal = node["value"]
        return lambda _: literal

    def _field(self, node: _Node) -> _Evaluate:
        name = node["value"]
        return lambda value: value.get(name) if type(value) is dict else None

    def _index(self, node: _Node) -> _Evaluate:
        index = node["value"]
        return lambda value: value[index] if type(value) is list and -len(value) <= index < len(value) else None

    def _slice(self, node: _Node) -> _Evaluate:
        cut = slice(*node["children"])

        def evaluate(value: Any) -> Any:
            if type(value) is not list:
                return None
            self._budget.spend(len(range(*cut.indices(len(value)))) // 2)
            return value[cut]

        return evaluate

    def _pipe(self, node: _Node) -> _Evaluate:
        steps = self._children(node)

        def evaluate(value: Any) -> Any:
            for step in steps:
                value = step(value)
            return value

        return evaluate

    _subexpression = _index_expression = _pipe

    def _multi_select_list(self, node: _Node) -> _Evaluate:
        members = self._children(node)
        return lambda value: None if value is None else [member(value) for member in members]

    def _multi_select_dict(self, node: _Node) -> _Evaluate:
        members = [(pair["value"], self.compile(pair["children"][0])) for pair in node["children"]]
        return lambda value: None if value is None else {key: member(value) for key, member in members}

    def _projection(self, node: _Node) -> _Evaluate:
        return self._loop(node, list)

    def _value_projection(self, node: _Node) -> _Evaluate:
        return self._loop(node, dict)

    def _filter_projection(self, node: _Node) -> _Evaluate:
        return self._loop(node, list)

    def _loop(self, node: _Node, kind: type[Any]) -> _Evaluate:
        base, body, *condition = self._children(node)
        cost = sum(_count_nodes(child) for child in node["children"][1:])

        def evaluate(value: Any) -> Any:
            items = base(value)
            if type(items) is not kind:
                return None
            self._budget.spend(len(items) * cost)
            if kind is dict:
                items = items.values()
            if condition:
                holds = condition[0]
                items = [item for item in items if (held := holds(item)) is True or _is_true(held)]
            return [found for item in items if (found := body(item)) is not None]

        return evaluate

    def _flatten(self, node: _Node) -> _Evaluate:
        (base,) = self._children(node)

        def evaluate(value: Any) -> Any:
            items = base(value)
            if type(items) is not list:
                return None
            self._budget.spend(len(items) // 2)
            self._budget.spend(sum(len(item) for item in items if type(item) is list) // 2)
            return [inner for item in items for inner in (item if type(item) is list else (item,))]

        return evaluate

    def _comparator(self, node: _Node) -> _Evaluate:
        left, right = self._children(node)
        name = node["value"]
        if name in _ORDER:
            return self._order(left, right, _ORDER[name])
        negated = name == "ne"
        spend_comparison = self._budget.spend_comparison

        def evaluate(value: Any) -> bool:
            first, second = left(value), right(value)
            if type(second) is not int:
                spend_comparison(first, second)
            # Python takes True for 1, JMESPath does not
            return (first == second and (type(first) is bool) is (type(second) is bool)) is not negated

        return evaluate

    def _order(self, left: _Evaluate, right: _Evaluate, compare: Callable[[Any, Any], bool]) -> _Evaluate:
        numbers = (int, float)

        def evaluate(value: Any) -> bool | None:
            first, second = left(value), right(value)
            if type(first) in numbers and type(second) in numbers:
                return compare(first, second)
            if not {type(first), type(second)} <= {int, float, str}:
                return None
            self._budget.spend_comparison(first, second)
            return compare(first, second)

        return evaluate

    def _or_expression(self, node: _Node) -> _Evaluate:
        left, right = self._children(node)
        return lambda value: found if _is_true(found := left(value)) else right(value)

    def _and_expression(self, node: _Node) -> _Evaluate:
        left, right = self._children(node)
        return lambda value: right(value) if _is_true(found := left(value)) else found

    def _not_expression(self, node: _Node) -> _Evaluate:
        (inner,) = self._children(node)
        return lambda value: type(found := inner(value)) not in (int, float) and not found

    def _expref(self, node: _Node) -> _Evaluate:
        expression = _Expression(self.compile(node["children"][0]), _count_nodes(node), self._budget)
        return lambda _: expression

    def _function_expression(self, node: _Node) -> _Evaluate:
        name, arguments = node["value"], self._children(node)
        return lambda value: self._functions.call_function(name, [argument(value) for argument in arguments])


class _Expression:
    """An `&expression`. jmespath's functions know it by the name of its class and by these two names."""

    def __init__(self, expression: _Evaluate, nodes: int, budget: _Budget) -> None:
        self.expression = expression
        self.nodes = nodes
        self._budget = budget

    def visit(self, expression: _Evaluate, value: Any) -> Any:
        found = expression(value)
        if type(found) is str:  # a key to sort by
            self._budget.spend(len(found) // 64)
        return found


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
            case ("map", [_Expression() as body, list(items)]) | (_, [list(items), _Expression() as body]):
                spend(len(items) * (body.nodes + len(items).bit_length() // 8))
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
