"""Expressions with Python's operators, for writing formulas: `Value` wraps one, constants take its type and lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.core.tensor_ir import ir


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An expression in a formula. Numbers on the other side of an operator become constants of its type."""

    expression: ir.Expression

    def constant(self, number: float | int | bool) -> Value:
        """Return a constant of this value's type and lanes."""
        kind = self.expression.type
        number = float(number) if kind.is_float else number
        scalar = ir.Constant(number, kind.with_lanes(1))
        return Value(scalar if kind.lanes == 1 else ir.Broadcast(scalar, kind.lanes))

    def _with(self, operator: ir.BinaryOperator, other: Value | float | int, swapped: bool = False) -> Value:
        right = other if isinstance(other, Value) else self.constant(other)
        first, second = (right, self) if swapped else (self, right)
        return Value(ir.Binary(operator, first.expression, second.expression))

    def __add__(self, other: Value | float) -> Value:
        return self._with("add", other)

    def __radd__(self, other: float) -> Value:
        return self._with("add", other, swapped=True)

    def __sub__(self, other: Value | float) -> Value:
        return self._with("sub", other)

    def __rsub__(self, other: float) -> Value:
        return self._with("sub", other, swapped=True)

    def __mul__(self, other: Value | float) -> Value:
        return self._with("mul", other)

    def __rmul__(self, other: float) -> Value:
        return self._with("mul", other, swapped=True)

    def __truediv__(self, other: Value | float) -> Value:
        return self._with("div", other)

    def __rtruediv__(self, other: float) -> Value:
        return self._with("div", other, swapped=True)

    def __lshift__(self, bits: Value | int) -> Value:
        return self._with("shl", bits)

    def __rshift__(self, bits: Value | int) -> Value:
        return self._with("shr", bits)

    def __and__(self, other: Value | int) -> Value:
        return self._with("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._with("or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._with("xor", other)

    def __neg__(self) -> Value:
        return Value(ir.Unary("neg", self.expression))

    def __abs__(self) -> Value:
        return Value(ir.Unary("abs", self.expression))

    def __lt__(self, other: Value | float) -> Value:
        return self._with("lt", other)

    def __gt__(self, other: Value | float) -> Value:
        return self._with("gt", other)

    def __ge__(self, other: Value | float) -> Value:
        return self._with("ge", other)

    def equals(self, other: Value | float) -> Value:
        """Return whether both are equal, lane by lane."""
        return self._with("eq", other)

    def differs(self, other: Value | float) -> Value:
        """Return whether both differ, lane by lane; a NaN differs from itself."""
        return self._with("ne", other)

    def clamp(self, low: float, high: float) -> Value:
        """Return the value moved into ``[low, high]``; NaN stays NaN."""
        return self._with("max", low)._with("min", high)

    def at_least(self, low: float) -> Value:
        """Return the larger of the value and ``low``; NaN stays NaN."""
        return self._with("max", low)

    def at_most(self, high: float) -> Value:
        """Return the smaller of the value and ``high``; NaN stays NaN."""
        return self._with("min", high)

    def unary(self, operator: str) -> Value:
        """Return ``sqrt``, ``floor``, ``trunc`` or ``round_even`` of the value."""
        return Value(ir.Unary(operator, self.expression))  # type: ignore[arg-type]

    def cast(self, dtype: str) -> Value:
        """Return the value converted to another element type."""
        return Value(ir.Cast(self.expression, dtype))

    def bits(self, dtype: str) -> Value:
        """Return the same bits as another element type."""
        return Value(ir.Bitcast(self.expression, dtype))

    def times_plus(self, factor: Value | float, addend: Value | float) -> Value:
        """Return ``self * factor + addend``, rounded once."""
        arguments = (self, *(part if isinstance(part, Value) else self.constant(part) for part in (factor, addend)))
        return Value(ir.Intrinsic("fma", tuple(part.expression for part in arguments), self.expression.type))

    def polynomial(self, coefficients: Sequence[float]) -> Value:
        """Return ``c0 + c1 x + c2 x^2 + ...`` by Horner's rule."""
        result = self.constant(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = result.times_plus(self, coefficient)
        return result


def select(condition: Value, on_true: Value | float, on_false: Value) -> Value:
    """Return ``on_true`` where the condition holds, else ``on_false``."""
    first = on_true if isinstance(on_true, Value) else on_false.constant(on_true)
    return Value(ir.Select(condition.expression, first.expression, on_false.expression))
