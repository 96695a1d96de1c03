"""Rows of elementwise operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from graft.testkit.models.draw import Draw, Unfit
from graft.testkit.models.rows import Row, a_float, broadcasts, narrowed, of_kind


def unary(
    op_type: str, low: float = -np.inf, high: float = np.inf, *, exact: bool | None = None, **attributes: Any
) -> Row:
    """Return a row of an operator of one operand; ``exact=True`` where its result is; it then reads exact values."""

    def make(draw: Draw) -> None:
        x = a_float(draw, low, high, exact=bool(exact), nonempty=False)
        draw.call(op_type, x, exact=exact, **attributes)

    return Row(op_type, make)


UNARY = (
    *(unary(name) for name in (
        "Relu", "Sigmoid", "Tanh", "Erf", "Sin", "Cos", "Atan", "Asinh", "Softsign", "Elu", "Selu", "Celu", "LeakyRelu",
        "HardSigmoid", "HardSwish", "Mish", "Softplus", "Gelu", "Swish", "Abs", "Neg",
    )),
    *(unary(name, exact=True) for name in (
        "Ceil", "Floor", "Round", "Sign", "IsNaN", "IsInf", "ThresholdedRelu", "Shrink", "Identity",
    )),
    unary("Elu", alpha=0.7), unary("Gelu", approximate="tanh"), unary("Swish", alpha=1.5),
    unary("LeakyRelu", alpha=0.2),
    unary("Exp", -5, 5), unary("Sinh", -4, 4), unary("Cosh", -4, 4), unary("Sqrt", 0.01), unary("Log", 0.01),
    unary("Reciprocal", 0.1), unary("Asin", -0.9, 0.9), unary("Acos", -0.9, 0.9), unary("Atanh", -0.9, 0.9),
    unary("Acosh", 1.1), unary("Tan", -1.2, 1.2),
)  # fmt: skip


def binary(op_type: str, low: float = -np.inf, *, exact: bool = False) -> Row:
    """Return a row of two operands, one of which is broadcast to the other or both to a third shape."""

    def make(draw: Draw) -> None:
        x = a_float(draw, exact=exact, nonempty=False)
        other = draw.pick(
            lambda one: one.dtype == draw.real and broadcasts(one.shape, x.array.shape) and not (one < low).any(),
            exact=exact,
        )
        if other is None or draw.chance(0.4):
            shape = narrowed(draw, x.array.shape)
            if draw.chance(0.15):
                shape = tuple(draw.one_of((1, 2, 3)) if extent == 1 else extent for extent in x.array.shape)
            other = draw.operand(draw.floats(shape, max(low, -2.0), 2.0))
        swap = low == -np.inf and draw.chance(0.4)
        draw.call(op_type, *((other, x) if swap else (x, other)), exact=exact or None)

    return Row(op_type, make, 3.0 if op_type in ("Add", "Mul", "Sub", "Div") else 1.0)


def power(draw: Draw) -> None:
    """A constant exponent, or a computed one over positive bases."""
    exponent = draw.one_of((2.0, 3.0, 0.5, -1.0, 1.0, 1.7))
    x = a_float(draw, 0.1 if exponent not in (1.0, 2.0, 3.0) else -np.inf)
    shape = draw.one_of(((), (1,), (1,) * x.array.ndim))
    draw.Pow(x, draw.constant(np.full(shape, exponent, draw.real)))


def clip(draw: Draw) -> None:
    x = a_float(draw, nonempty=False)
    low = draw.constant(draw.real(-0.5)) if draw.chance(0.7) else None
    high = draw.constant(draw.real(0.6)) if draw.chance(0.7) else None
    draw.Clip(*((x, low, high) if high is not None else (x, low) if low is not None else (x,)), exact=True)


def variadic(op_type: str) -> Row:
    def make(draw: Draw) -> None:
        x = a_float(draw)
        others = [draw.operand(draw.floats(narrowed(draw, x.array.shape))) for _ in range(draw.integer(0, 2))]
        draw.call(op_type, x, *others, x)

    return Row(op_type, make)


def prelu(draw: Draw) -> None:
    x = a_float(draw)
    draw.PRelu(x, draw.constant(draw.floats(narrowed(draw, x.array.shape))))


def where(draw: Draw) -> None:
    x = a_float(draw)
    condition = draw.pick(lambda one: one.dtype == np.bool_ and broadcasts(one.shape, x.array.shape))
    if condition is None:
        condition = draw.constant(draw.rng.random(narrowed(draw, x.array.shape)) < 0.5)
    both = [x, draw.operand(draw.floats(narrowed(draw, x.array.shape)))]
    draw.Where(condition, *(both if draw.chance(0.5) else both[::-1]), exact=True)


def logical(op_type: str) -> Row:
    def make(draw: Draw) -> None:
        x = of_kind(draw, "b")
        if op_type == "Not":
            draw.Not(x)
        else:
            draw.call(op_type, x, draw.constant(draw.rng.random(narrowed(draw, x.array.shape)) < 0.5))

    return Row(op_type, make)


def bitwise(op_type: str) -> Row:
    def make(draw: Draw) -> None:
        dtype = draw.one_of((np.int32, np.uint8, np.int64)) if op_type != "BitShift" else np.uint32
        x = draw.pick(lambda one: one.dtype == dtype) or draw.input(
            draw.rng.integers(0, 100, draw.extents(draw.integer(0, 3))).astype(dtype)
        )
        other = draw.constant(draw.rng.integers(0, 7, narrowed(draw, x.array.shape)).astype(dtype))
        match op_type:
            case "BitwiseNot":
                draw.call(op_type, x)
            case "BitShift":
                draw.call(op_type, x, other, direction=draw.one_of(("LEFT", "RIGHT")))
            case _:
                draw.call(op_type, x, other)

    return Row(op_type, make, 0.5)


def integers(draw: Draw) -> None:
    """Arithmetic on integers."""
    dtype = draw.one_of((np.int32, np.int64))
    x = draw.pick(lambda one: one.dtype == dtype and one.size > 0)
    if x is None or np.abs(x.array).max() > 1000:
        x = draw.input(draw.rng.integers(-50, 50, draw.extents(draw.integer(0, 3))).astype(dtype))
    other = draw.constant(draw.rng.integers(1, 9, narrowed(draw, x.array.shape)).astype(dtype))
    draw.call(draw.one_of(("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")), x, other)


def float_remainder(draw: Draw) -> None:
    x = a_float(draw, exact=True)
    draw.Mod(x, draw.constant(draw.floats(narrowed(draw, x.array.shape), 0.5, 2.0)), fmod=1, exact=True)


def cast(draw: Draw) -> None:
    """To another type and, of numbers, back to float32."""
    x = draw.pick(lambda one: one.dtype in (draw.real, np.int64, np.int32, np.bool_), exact=True)
    if x is None:
        raise Unfit
    real = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(draw.real))
    to = draw.one_of((real, 1, 6, 7, 9, 11))
    y = draw.Cast(x, to=to, exact=True)
    if to != real and draw.chance(0.7):
        draw.Cast(y, to=real, exact=True) if draw.chance(0.6) else draw.CastLike(
            y, draw.constant(draw.real(1)), exact=True
        )


ELEMENTWISE = (
    *UNARY,
    *(binary(name) for name in ("Add", "Sub", "Mul")),
    *(binary(name, exact=True) for name in ("Max", "Min", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")),
    binary("Div", 0.25),
    *(variadic(name) for name in ("Sum", "Mean", "Max", "Min")),
    *(logical(name) for name in ("And", "Or", "Xor", "Not")),
    *(bitwise(name) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift")),
    Row("Pow", power, 2.0), Row("Clip", clip, 2.0), Row("PRelu", prelu), Row("Where", where, 2.0),
    Row("integers", integers, 2.0), Row("Mod", float_remainder), Row("cast", cast, 2.0),
)  # fmt: skip
