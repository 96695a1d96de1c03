"""Products as libraries take them, for tables of plugins: ``anchor`` is the product, ``bias`` what is added.

An operand that is not given may be any value.
"""

from __future__ import annotations

from graft.patterns import is_constant, is_op, wildcard
from graft.patterns.language import Pattern


def matmul(right: Pattern | None = None) -> Pattern:
    """Return a product of matrices."""
    return is_op("MatMul")(wildcard(), wildcard() if right is None else right).named("anchor")


def matmul_bias(right: Pattern | None = None) -> Pattern:
    """Return a product of matrices and an addition of one value per column."""
    return is_op("Add")(matmul(right), is_constant().named("bias"))


def gemm(right: Pattern | None = None) -> Pattern:
    """Return a Gemm, with or without its third operand."""
    return is_op("Gemm")(wildcard(), wildcard() if right is None else right, ...).named("anchor")
