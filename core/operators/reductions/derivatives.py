"""Derivatives of reductions, Softmax and quantisation; equal extremes share a gradient evenly."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
from onnx import helper

from graft.core.operators.definition.adjoint import Adjoint, Vjp


def _as_rows(f: Adjoint, value: str) -> str:
    """Return what has the shape of the result with the axes that are reduced, of extent 1."""
    x, axes = f.input(0), f.input(1)
    if f.attribute("keepdims", 1) or _does_nothing(f):
        return value
    if axes:
        return f("Unsqueeze", value, axes)
    return f("Unsqueeze", value, f.ints(*range(f.rank(x)))) if f.rank(x) else value


def _does_nothing(f: Adjoint) -> bool:
    given = f.numbers(f.input(1)) if f.input(1) else []
    return bool(f.attribute("noop_with_empty_axes", 0)) and given == []


def _reduction(rule: Callable[[Adjoint, str, str, str], str]) -> Vjp:
    """The rule of a reduction, of input, gradient and result as rows; what it gives is as large as the input."""

    def vjp(f: Adjoint) -> list[str]:
        x = f.input(0)
        found = rule(f, x, _as_rows(f, f.gradient), _as_rows(f, f.result()))
        return [f.typed(f("Expand", found, f("Shape", x)), x)]

    return vjp


def _share(f: Adjoint, x: str, gradient: str, y: str) -> str:
    """Return the gradient of a mean: divided by how many elements a row has."""
    count = f("Div", f("Size", x), f("Size", f.result()))
    return f("Div", gradient, f("Cast", count, to=f.dtype(x)))


def _unless_zero(f: Adjoint, y: str, value: str) -> str:
    return f("Where", f("Equal", y, f.like(0.0, y)), f.like(0.0, value), value)


def _norm(f: Adjoint, x: str, gradient: str, y: str) -> str:
    """``g x / y``, and 0 where all elements are."""
    safe = f("Where", f("Equal", y, f.like(0.0, y)), f.like(1.0, y), y)
    return _unless_zero(f, y, f("Mul", gradient, f("Div", x, safe)))


def _rows_of(f: Adjoint, operator: str, value: str) -> str:
    """Return a reduction over the axes of the node, which are kept."""
    axes = f.input(1)
    return f(operator, value, *([axes] if axes else []), keepdims=1, **f.attributes("noop_with_empty_axes"))


def _extreme(f: Adjoint, x: str, gradient: str, y: str) -> str:
    taken = f.where(f("Equal", x, y), x)
    return f("Mul", taken, f("Div", gradient, _rows_of(f, "ReduceSum", taken)))


def _product(f: Adjoint, x: str, gradient: str, y: str) -> str:
    """Each factor has the product of the others: where one is 0 it alone has any, where two are nothing has."""
    zero = f("Equal", x, f.like(0.0, x))
    zeros = _rows_of(f, "ReduceSum", f.where(zero, x))
    others = f("Where", zero, f.like(1.0, x), x)
    product = _rows_of(f, "ReduceProd", others)
    alone = f.masked(f("Equal", zeros, f.like(1.0, x)), product)
    without = f.masked(f("Equal", zeros, f.like(0.0, x)), product)
    return f("Mul", gradient, f("Where", zero, alone, f("Div", without, others)))


def _log_sum_exp(f: Adjoint, x: str, gradient: str, y: str) -> str:
    return f("Mul", gradient, f("Exp", f("Sub", x, y)))


total = _reduction(lambda f, x, g, y: g)
mean = _reduction(_share)
product = _reduction(_product)
extreme = _reduction(_extreme)
magnitudes = _reduction(lambda f, x, g, y: f("Mul", g, f("Sign", x)))
norm = _reduction(_norm)
squares = _reduction(lambda f, x, g, y: f("Mul", g, f.scaled(x, 2.0)))
log_sum = _reduction(lambda f, x, g, y: f("Div", g, f("Exp", y)))
log_sum_exp = _reduction(_log_sum_exp)

# ---- Rows ---------------------------------------------------------------------------------------------------------


def softmax(f: Adjoint) -> list[str]:
    """``y (g - sum of g y)``."""
    y = f.result()
    weighted = f("Mul", f.gradient, y)
    rows = f("ReduceSum", weighted, f.ints(f.attribute("axis", -1)), keepdims=1)
    return [f("Sub", weighted, f("Mul", y, rows))]


def log_softmax(f: Adjoint) -> list[str]:
    """``g - softmax sum of g``."""
    rows = f("ReduceSum", f.gradient, f.ints(f.attribute("axis", -1)), keepdims=1)
    return [f("Sub", f.gradient, f("Mul", f("Exp", f.result()), rows))]


# ---- Quantisation -------------------------------------------------------------------------------------------------


def _parameter(f: Adjoint, number: int, like: str, dtype: int) -> str:
    """Return a scale or zero point as numbers that broadcast to a value."""
    one, rank = f.input(number), f.rank(like)
    f.require(not f.attribute("block_size", 0), "of scales of blocks no derivative is known")
    value = f.cast(one, dtype)
    if f.rank(one) != 1 or f.shape(one) == (1,):
        return f.reshaped(value, *[1] * rank) if f.rank(one) == 1 else value
    axis = f.attribute("axis", 1) % rank
    others = [place for place in range(rank) if place != axis]
    return f.unsqueezed(value, *others) if others else value


def _summed_to(f: Adjoint, gradient: str, number: int) -> str:
    """Return a gradient summed to the shape of a scale."""
    one, rank = f.input(number), f.rank(gradient)
    axis = f.attribute("axis", 1) % max(rank, 1)
    whole = f.rank(one) != 1 or f.shape(one) == (1,)
    axes = [place for place in range(rank) if whole or place != axis]
    total = f("ReduceSum", gradient, f.ints(*axes), keepdims=0) if axes else gradient
    return f.cast(f.reshaped_like(total, one) if whole else total, f.dtype(one))


def quantized(f: Adjoint) -> list[str]:
    """Straight through: as if nothing were rounded, and nothing where the result is at a bound that it was cut to.

    The gradient of the whole numbers is that of what they are taken for, so with `dequantized` a scale learns (LSQ,
    arXiv 1902.08153).
    """
    x, y = f.input(0), f.result()
    kind = f.dtype(x)
    scale = _parameter(f, 1, x, kind)
    point = _parameter(f, 2, x, kind) if f.input(2) else f.like(0.0, x)
    steps = f("Div", x, scale)
    low, high = _range_of(f.dtype(y))
    place = f("Add", f("Round", steps), point)
    inside = f("And", f("GreaterOrEqual", place, f.like(low, x)), f("LessOrEqual", place, f.like(high, x)))
    gradient = f("Div", f.masked(inside, f.cast(f.gradient, kind)), scale)
    if not f.wanted(1):
        return [gradient]
    return [gradient, _summed_to(f, f("Neg", f("Mul", gradient, steps)), 1)]


def _range_of(dtype: int) -> tuple[float, float]:
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(dtype))
    is_integer = kind.kind in "iu" or "int" in kind.name
    info = ml_dtypes.iinfo(kind) if is_integer else ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
    return float(info.min), float(info.max)


def dequantized(f: Adjoint) -> list[str]:
    """``(x - zero point) scale``, of whole numbers taken for any."""
    x, gradient = f.input(0), f.gradient
    kind = f.dtype(gradient)
    found = [f("Mul", gradient, _parameter(f, 1, x, kind))]
    if f.wanted(1):
        steps = f.cast(x, kind)
        steps = f("Sub", steps, _parameter(f, 2, x, kind)) if f.input(2) else steps
        found.append(_summed_to(f, f("Mul", gradient, steps), 1))
    return found
