"""One expression of each kind of the tensor IR, and of each operator, for tables that must have a row for each."""

from __future__ import annotations

from typing import get_args

from graft.core.tensor_ir import ir
from graft.core.types import BOOL, FLOAT32, INT64

KINDS = frozenset(get_args(ir.Expression))
OF_VECTORS = frozenset({ir.Ramp, ir.Broadcast, ir.Shuffle, ir.Horizontal})
"""The kinds that make or take lanes."""
OF_FLOATS = ("sqrt", "floor", "ceil", "trunc", "round_even", "fmod")
OF_INTEGERS = ("bitnot", "clz", "popcount", "mod", "and", "or", "xor", "shl", "shr")
X, PLACE = ir.Buffer("x", "float32", (ir.Constant(8, INT64),)), ir.Variable("i")


def expressions(lanes: int) -> dict[type, ir.Expression]:
    """Return an expression of each kind over `X` and `PLACE`; those of vectors where there are several lanes."""
    x: ir.Expression = ir.Load(X, (PLACE if lanes == 1 else ir.Ramp(PLACE, 1, lanes),))
    one = ir.Constant(1.5, FLOAT32.with_lanes(lanes))
    found: list[ir.Expression] = [
        one, PLACE, x, ir.Unary("abs", x), ir.Binary("add", x, one), ir.Select(ir.Binary("lt", x, one), x, one),
        ir.Cast(x, "int32"), ir.Bitcast(x, "int32"), ir.Intrinsic("fma", (x, x, one), one.type),
    ]  # fmt: skip
    if lanes > 1:
        some = tuple(range(lanes - 1, -1, -1))
        found += [
            ir.Ramp(PLACE, 2, lanes), ir.Broadcast(ir.Load(X, (PLACE,)), lanes), ir.Shuffle((x,), some),
            ir.Horizontal("add", x),
        ]  # fmt: skip
    kinds = {type(one): one for one in found}
    assert kinds.keys() == (KINDS if lanes > 1 else KINDS - OF_VECTORS), "each kind has its expression here"
    return kinds


def operations(lanes: int) -> list[ir.Expression]:
    """Return each operator on elements of a type that has it."""
    found: list[ir.Expression] = []
    for operator in (*get_args(ir.UnaryOperator), *get_args(ir.BinaryOperator)):
        kind = BOOL if operator == "not" else INT64 if operator in OF_INTEGERS else FLOAT32
        value = ir.Variable("v", kind.with_lanes(lanes))
        is_unary = operator in get_args(ir.UnaryOperator)
        found.append(ir.Unary(operator, value) if is_unary else ir.Binary(operator, value, value))
    return found
