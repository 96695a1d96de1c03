"""Extents: integer expressions over named symbols, as shapes have them in manifests.

An extent is a number, a `Symbol`, or an `Operation` on two extents; equal expressions are equal and hashable, so a
table holds each once. The native runtime evaluates the same expressions per call (`native/src/state/extents.c`).
Whether two different expressions always agree is not decided here: that is the compiler's algebra
(`graft.core.affine.expressions`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from graft.errors import GraftError

ExtentOperator = Literal["add", "sub", "mul", "floordiv", "mod", "min", "max"]
Agreement = Literal["equal", "broadcast", "expand", "at most"]
"""How two extents agree: equal; equal or either 1; equal or the left 1; the left at most the right."""
MAXIMUM = 1 << 62
"""No extent, and no product of extents on the way to one, may be larger."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A number that is known when a program runs, by its name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Operation:
    """``floordiv`` rounds towards minus infinity, ``mod`` has the sign of the divisor; neither divides by zero."""

    operator: ExtentOperator
    left: Extent
    right: Extent

    def __str__(self) -> str:
        match self.operator:
            case "min" | "max":
                return f"{self.operator}({self.left}, {self.right})"
            case _:
                return f"{_inside(self.left)} {_SIGNS[self.operator]} {_inside(self.right)}"


Extent: TypeAlias = int | Symbol | Operation


@dataclass(frozen=True, slots=True)
class ExtentEquation:
    """What a node demands of two extents, checked when their symbols are bound."""

    left: Extent
    right: Extent
    kind: Agreement
    says: tuple[str, str, str]
    """The message where they do not agree: what stands before, between and behind the two numbers."""

    def refusal(self, left: int, right: int) -> str:
        """Return the message for sides that do not agree."""
        return f"{self.says[0]}{left}{self.says[1]}{right}{self.says[2]}"


def agree(kind: Agreement, left: int, right: int) -> bool:
    """Whether two numbers agree."""
    match kind:
        case "equal":
            return left == right
        case "broadcast":
            return left == right or left == 1 or right == 1
        case "expand":
            return left in (1, right)
        case "at most":
            return left <= right


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}


def _inside(extent: Extent) -> str:
    is_sum = isinstance(extent, Operation) and extent.operator not in ("min", "max")
    return f"({extent})" if is_sum else str(extent)


def symbols_of(extent: Extent) -> Iterator[Symbol]:
    """Yield the symbols of an extent, from left to right, once for each place."""
    waiting = [extent]
    while waiting:
        match waiting.pop():
            case Symbol() as symbol:
                yield symbol
            case Operation(_, left, right):
                waiting += (right, left)


def evaluate(extent: Extent, values: Mapping[str, int]) -> int:
    """Return the number that an extent is for values of its symbols.

    Raises GraftError for a symbol without a value, a division by zero, and a number beyond `MAXIMUM`.
    """
    match extent:
        case int():
            return extent
        case Symbol(name):
            if name not in values:
                raise GraftError(f"dimension '{name}' has no value; give it one", dimension=name)
            return values[name]
    left, right = evaluate(extent.left, values), evaluate(extent.right, values)
    result = 0
    match extent.operator:
        case "add":
            result = left + right
        case "sub":
            result = left - right
        case "mul":
            result = left * right
        case "min":
            result = min(left, right)
        case "max":
            result = max(left, right)
        case "floordiv" | "mod" if right == 0:
            raise GraftError(f"extent '{extent}' divides by zero")
        case "floordiv":
            result = left // right
        case "mod":
            result = left % right
    if abs(result) > MAXIMUM:
        raise GraftError(f"extent '{extent}' is {result}, beyond 2**62")
    return result


def replaced(extent: Extent, values: Mapping[str, Extent]) -> Extent:
    """Return an extent with symbols replaced, as it is written: the compiler's algebra makes it canonical."""
    match extent:
        case Symbol(name):
            return values.get(name, extent)
        case Operation(operator, left, right):
            return Operation(operator, replaced(left, values), replaced(right, values))
        case _:
            return extent


def limits(extent: Extent, ranges: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Return bounds of an extent for symbols within their ranges, from those of its operands: infinite if it has none.

    The compiler's algebra (`graft.core.affine.expressions.interval`) knows more; this will do for what it made.
    """
    match extent:
        case int():
            return extent, extent
        case Symbol(name):
            return ranges[name]
    left, right = limits(extent.left, ranges), limits(extent.right, ranges)
    if extent.operator == "mod" and right[0] > 0:
        return 0, right[1] - 1
    if extent.operator in ("mod", "floordiv") and right[0] <= 0:
        return -math.inf, math.inf
    if extent.operator == "sub":
        right = -right[1], -right[0]
    if extent.operator in ("add", "sub"):  # of infinities, those of one sign
        return left[0] + right[0], left[1] + right[1]
    corners = [_corner(extent.operator, a, b) for a in left for b in right]  # in each operand alone it is monotone
    return min(corners), max(corners)


def _corner(operator: ExtentOperator, left: float, right: float) -> float:
    match operator:
        case "mul":
            return left * right if left and right else 0
        case "min":
            return min(left, right)
        case "max":
            return max(left, right)
        case _ if math.isinf(left):
            return left
        case _:
            return 0 if math.isinf(right) else left // right
