"""Products as libraries take them, for tables of plugins: ``anchor`` is the product, ``bias`` what is added.

An operand that is not given may be any value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graft.core.reject import Reject
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.patterns import is_constant, is_op, wildcard
from graft.patterns.language import Pattern

if TYPE_CHECKING:
    from graft.core.graph.view import ValueView


def matmul(right: Pattern | None = None) -> Pattern:
    """Return a product of matrices."""
    return is_op("MatMul")(wildcard(), wildcard() if right is None else right).named("anchor")


def matmul_bias(right: Pattern | None = None) -> Pattern:
    """Return a product of matrices and an addition of one value per column."""
    return is_op("Add")(matmul(right), is_constant().named("bias"))


def gemm(right: Pattern | None = None) -> Pattern:
    """Return a Gemm, with or without its third operand."""
    return is_op("Gemm")(wildcard(), wildcard() if right is None else right, ...).named("anchor")


def misshapen(left: ValueView, right: ValueView, library: str) -> Reject | None:
    """Return why a library's product of matrices does not take these shapes, None if it does."""
    a, b = dimensions_of(left.value) or (), dimensions_of(right.value) or ()
    if len(a) < 2 or len(b) < 2:
        vector = left if len(a) < 2 else right
        return Reject("rank", f"'{vector.name}' has {vector.rank} axes; {library} multiplies matrices")
    if len(a) > 2 and len(b) > 2 and a[:-2] != b[:-2]:
        return Reject("shape", f"'{left.name}' and '{right.name}' are broadcast to each other's matrices")
    return None
