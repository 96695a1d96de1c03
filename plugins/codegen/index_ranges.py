"""What numbers the indices of a function may be: where C's own operators compute them, and 32 bits hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from graft.core.affine.linear import Interval
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.algebra import binary_bounds
from graft.core.tensor_ir.visit import children, statement_expressions, walk_expressions, walk_statements
from graft.core.types import INT64

_OF_TYPES = {"bool": 1, "int8": 7, "uint8": 8, "int16": 15, "uint16": 16, "int32": 31}
"""Bits of the greatest number of a type that an index may come from."""


class IndexRanges:
    """The least and the greatest number that scalar int64 expressions of a function may be, as far as loops say them.

    An expression has a range only where all that it is computed from has one that int64 holds: then no step overflows.
    """

    def __init__(self, function: ir.Function) -> None:
        self.variables: dict[ir.Variable, Interval | None] = {}
        self._known: dict[int, tuple[ir.Expression, Interval | None]] = {}
        for statement in walk_statements(function.body):
            match statement:
                case ir.For(variable, extent):
                    self.add_loop(variable, extent)
                case ir.Let(variable, value):
                    self._add(variable, self.of(value))
        self._known.clear()  # what was asked before a variable was bound once more
        self._body = function.body

    @cached_property
    def in_32_bits(self) -> bool:
        """Whether 32 bits hold every number that has a range, and every place of an element."""
        return all(map(self._is_small, walk_statements(self._body)))

    def add_loop(self, variable: ir.Variable, extent: ir.Expression) -> None:
        """Let a variable count up to an extent."""
        count = self.of(extent)
        self._add(variable, None if count is None else (0, max(count[1] - 1, 0)))

    def _add(self, variable: ir.Variable, new: Interval | None) -> None:
        old = self.variables.get(variable, new)
        self.variables[variable] = (min(old[0], new[0]), max(old[1], new[1])) if old and new else None

    def of(self, expression: ir.Expression) -> Interval | None:
        """Return the range of an expression, None where nothing is known."""
        stack = [expression]  # of its own: expressions are as deep as chains of operators are long
        while stack:
            node = stack[-1]
            waiting = [one for one in children(node) if one.type == INT64 and id(one) not in self._known]
            if waiting and type(node) in _ROWS:
                stack += waiting
            else:
                self._known[id(node)] = (node, self._of(node))
                stack.pop()
        return self._known[id(expression)][1]

    def _of(self, expression: ir.Expression) -> Interval | None:
        row = _ROWS.get(type(expression)) if expression.type == INT64 else None
        found = None if row is None else row(self, expression)
        return found if found and found[0] >= -(1 << 63) and found[1] < 1 << 63 else None

    def range_of(self, expression: ir.Expression) -> Interval | None:
        """Return the range of an operand that is known by now."""
        return self._known[id(expression)][1] if id(expression) in self._known else None

    def _is_small(self, statement: ir.Statement) -> bool:
        accesses: list[ir.Store | ir.Load] = [statement] if isinstance(statement, ir.Store) else []
        for node in walk_expressions(*statement_expressions(statement)):
            if (found := self.of(node)) is not None and max(-found[0], found[1]) >= 1 << 31:
                return False
            accesses += [node] if isinstance(node, ir.Load) else []
        return all(self._place(one.buffer, one.indices) < 1 << 31 for one in accesses)

    def _place(self, buffer: ir.Buffer, indices: tuple[ir.Expression, ...]) -> int:
        """Return the most that a place in a buffer, or a part of its sum, may be."""
        most, stride = 0, 1
        for axis in reversed(range(len(indices))):
            own, extent = stride if buffer.strides is None else buffer.strides[axis], buffer.shape[axis]
            if isinstance(own, ir.Constant):
                own = int(own.value)
            found = self.of(indices[axis]) or (0, 0)
            if not isinstance(own, int) or not isinstance(extent, ir.Constant):
                return 1 << 31
            most += max(abs(found[0]), abs(found[1])) * abs(own)
            stride *= int(extent.value)
        return most


def _of_cast(_: IndexRanges, node: ir.Cast) -> Interval | None:
    kind = node.value.type
    if kind.lanes > 1 or kind.dtype not in _OF_TYPES:
        return None
    most = 1 << _OF_TYPES[kind.dtype]
    return (-most if kind.dtype.startswith("int") else 0, most - 1)


def _of_select(ranges: IndexRanges, node: ir.Select) -> Interval | None:
    first, second = ranges.range_of(node.on_true), ranges.range_of(node.on_false)
    return (min(first[0], second[0]), max(first[1], second[1])) if first and second else None


def _of_binary(ranges: IndexRanges, node: ir.Binary) -> Interval | None:
    left, right = ranges.range_of(node.left), ranges.range_of(node.right)
    if left is None or right is None:
        return None
    match node.operator:
        case "add":
            return left[0] + right[0], left[1] + right[1]
        case "sub":
            return left[0] - right[1], left[1] - right[0]
    return binary_bounds(node.operator, left, right)


_ROWS: Mapping[type, Callable[..., Interval | None]] = {
    ir.Constant: lambda _, node: (int(node.value), int(node.value)),
    ir.Variable: lambda ranges, node: ranges.variables.get(node),
    ir.Cast: _of_cast,
    ir.Select: _of_select,
    ir.Binary: _of_binary,
}
"""The range of each kind of expression."""
