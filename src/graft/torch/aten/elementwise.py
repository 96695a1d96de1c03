"""Rows of ATen operators that compute each element by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.inductor_prims import fma

from graft.torch.aten.builder import HALVES, Builder, Tensor, onnx_type, require

aten, prims = torch.ops.aten, torch.ops.prims
Number = Any
Row = Callable[..., Any]


def unary(op_type: str, **attributes: Any) -> Row:
    """Return the row of an ONNX operator of one tensor, computed in the type of the result."""

    def row(b: Builder, out: Any, x: Tensor) -> Tensor:
        return b.op(op_type, b.cast(x, out.dtype), **attributes)

    return row


def rounding(op_type: str) -> Row:
    """Return the row of an operator that gives integers back as they are."""

    def row(b: Builder, out: Any, x: Tensor) -> Tensor:
        return b.op(op_type if x.is_float else "Identity", x)

    return row


def formula(compute: Callable[[Builder, Tensor], Tensor]) -> Row:
    """Return the row of a function written with ONNX's, computed in the result's type, float32 for 16-bit floats."""

    def row(b: Builder, out: Any, x: Tensor) -> Tensor:
        wide = torch.float32 if out.dtype in HALVES else out.dtype
        return b.cast(compute(b, b.cast(x, wide)), out.dtype)

    return row


def _scaled_log(base: float) -> Row:
    def compute(b: Builder, x: Tensor) -> Tensor:  # in float64, so that powers of the base stay exact in float32
        found = b.op("Log", b.cast(x, torch.float64))
        return b.cast(b.op("Div", found, b.constant(math.log(base), torch.float64)), x.dtype)

    return formula(compute)


def _log1p(b: Builder, x: Tensor) -> Tensor:
    """Kahan's: log(u) * (x / (u - 1)) for u = 1 + x, which loses nothing where x is small."""
    one = b.constant(1, x.dtype)
    u = b.op("Add", x, one)
    difference = b.op("Sub", u, one)
    is_infinite = b.compare("Equal", u, b.constant(math.inf, x.dtype))
    is_plain = b.op("Or", b.compare("Equal", difference, b.constant(0, x.dtype)), is_infinite)
    safe = b.where(is_plain, one, difference)
    found = b.op("Mul", b.op("Log", b.where(is_plain, one, u)), b.op("Div", x, safe))
    return b.where(is_plain, x, found)


def expm1(b: Builder, x: Tensor) -> Tensor:
    """Kahan's: (u - 1) * x / log(u) for u = exp(x), which loses nothing where x is small."""
    one, zero = b.constant(1, x.dtype), b.constant(0, x.dtype)
    u = b.op("Exp", x)
    difference = b.op("Sub", u, one)
    is_tiny = b.compare("Equal", difference, zero)
    is_far = b.op("Or", b.compare("Equal", difference, b.constant(-1, x.dtype)), b.op("IsInf", u, dtype=torch.bool))
    logarithm = b.op("Log", b.where(b.op("Or", is_tiny, is_far), b.constant(2, x.dtype), u))
    found = b.op("Mul", difference, b.op("Div", x, logarithm))
    return b.where(is_tiny, x, b.where(is_far, difference, found))


def trunc(b: Builder, out: Any, x: Tensor) -> Tensor:
    return b.where(b.compare("Less", x, b.constant(0, x.dtype)), b.op("Ceil", x), b.op("Floor", x)) if x.is_float else x


def is_nan(b: Builder, out: Any, x: Tensor) -> Tensor:
    return b.op("IsNaN", x, dtype=torch.bool) if x.is_float else _filled(b, out, False)


def is_inf(b: Builder, out: Any, x: Tensor) -> Tensor:
    if not x.is_float:
        return _filled(b, out, False)
    return b.compare("Equal", b.op("Abs", x), b.constant(math.inf, x.dtype))


def _filled(b: Builder, out: Any, value: Number) -> Tensor:
    return b.expanded(b.constant(value, out.dtype), out.shape)


def logical_not(b: Builder, out: Any, x: Tensor) -> Tensor:
    return b.op("Not", b.cast(x, torch.bool))


def bitwise_not(b: Builder, out: Any, x: Tensor) -> Tensor:
    return b.op("Not" if x.dtype == torch.bool else "BitwiseNot", x)


def negated(b: Builder, out: Any, x: Tensor) -> Tensor:
    if x.dtype == torch.uint8:
        return b.op("Sub", b.constant(0, x.dtype), x)
    return b.op("Neg", x)


def absolute(b: Builder, out: Any, x: Tensor) -> Tensor:
    return b.op("Identity" if x.dtype in (torch.bool, torch.uint8) else "Abs", x)


def signum(b: Builder, out: Any, x: Tensor) -> Tensor:
    if x.dtype == torch.bool:
        return x
    found = b.op("Sign", x)
    return b.where(b.op("IsNaN", x, dtype=torch.bool), b.constant(0, x.dtype), found) if x.is_float else found


def signbit(b: Builder, out: Any, x: Tensor) -> Tensor:
    return _is_negative(b, x) if x.dtype != torch.bool else _filled(b, out, False)


def _is_negative(b: Builder, x: Tensor) -> Tensor:
    """Whether a number is below zero, or the zero that is: its reciprocal says which."""
    zero = b.constant(0, x.dtype)
    told = b.where(b.compare("Equal", x, zero), b.op("Reciprocal", x), x) if x.is_float else x
    return b.compare("Less", told, zero)


def copysign(b: Builder, out: Any, x: Tensor, y: Tensor) -> Tensor:
    size = b.op("Abs", b.cast(x, out.dtype))
    return b.where(_is_negative(b, b.cast(y, out.dtype)), b.op("Neg", size), size)


def angle(b: Builder, out: Any, x: Tensor) -> Tensor:
    given = b.cast(x, out.dtype)
    found = b.where(
        b.compare("Less", given, b.constant(0, out.dtype)), b.constant(math.pi, out.dtype), b.constant(0, out.dtype)
    )
    return b.where(b.op("IsNaN", given, dtype=torch.bool), given, found)


def rounded(b: Builder, out: Any, x: Tensor, *, decimals: int = 0) -> Tensor:
    """PyTorch's: scaled by a power of ten, which is divided by where it would be a fraction."""
    require(x.is_float, "decimals of integers")
    kind = torch.float32 if x.dtype in HALVES else x.dtype
    factor = b.constant(10.0 ** abs(decimals), kind)
    there, back = ("Mul", "Div") if decimals >= 0 else ("Div", "Mul")
    return b.cast(b.op(back, b.op("Round", b.op(there, b.cast(x, kind), factor)), factor), x.dtype)


# ---- Two tensors ----


def promoted(b: Builder, x: Tensor | Number, y: Tensor | Number) -> tuple[Tensor, Tensor]:
    """Return two operands in the type that PyTorch computes them in."""
    kind = torch.result_type(_sample(x), _sample(y))
    return b.operand(x, kind), b.operand(y, kind)


def _sample(x: Tensor | Number) -> Any:
    """Return what stands for an operand when types are promoted: ranks and types alone count."""
    return torch.empty((1,) * (1 if x.shape else 0), dtype=x.dtype, device="meta") if isinstance(x, Tensor) else x


def binary(op_type: str) -> Row:
    """Return the row of an operator of two tensors that computes in the type of its result."""

    def row(b: Builder, out: Any, x: Tensor, y: Tensor | Number) -> Tensor:
        return b.op(op_type, b.operand(x, out.dtype), b.operand(y, out.dtype))

    return row


def logic_or(op_type: str, of_bools: str) -> Row:
    """Return the row of an operator that is another one of bools."""

    def row(b: Builder, out: Any, x: Tensor, y: Tensor | Number) -> Tensor:
        return b.op(of_bools if out.dtype == torch.bool else op_type, b.operand(x, out.dtype), b.operand(y, out.dtype))

    return row


def scaled(op_type: str, of_bools: str) -> Row:
    """Return the row of a sum or difference with a factor of the second operand."""

    def row(b: Builder, out: Any, x: Tensor | Number, y: Tensor | Number, alpha: Number = 1) -> Tensor:
        left, right = b.operand(x, out.dtype), b.operand(y, out.dtype)
        if out.dtype == torch.bool:
            require(of_bools and alpha == 1, "a difference of bools")
            return b.op(of_bools, left, right)
        if alpha != 1:
            right = b.op("Mul", right, b.constant(alpha, out.dtype))
        return b.op(op_type, left, right)

    return row


def comparison(op_type: str) -> Row:
    """Return the row of a comparison, in the type that both operands are promoted to."""

    def row(b: Builder, out: Any, x: Tensor, y: Tensor | Number) -> Tensor:
        left, right = promoted(b, x, y)
        if left.dtype == torch.bool and op_type != "Equal":
            left, right = b.cast(left, torch.uint8), b.cast(right, torch.uint8)
        return b.compare(op_type, left, right)

    return row


def not_equal(b: Builder, out: Any, x: Tensor, y: Tensor | Number) -> Tensor:
    return b.op("Not", b.compare("Equal", *promoted(b, x, y)))


def logical(op_type: str) -> Row:
    """Return the row of an operator of truths: what is not zero is true."""

    def row(b: Builder, out: Any, x: Tensor, y: Tensor) -> Tensor:
        return b.op(op_type, b.cast(x, torch.bool), b.cast(y, torch.bool))

    return row


def divided(b: Builder, out: Any, x: Tensor | Number, y: Tensor | Number, rounding_mode: str | None = None) -> Tensor:
    left, right = b.operand(x, out.dtype), b.operand(y, out.dtype)
    if rounding_mode is None:
        return b.op("Div", left, right)
    if not left.is_float:
        return _integer_quotient(b, out, left, right, y, rounding_mode)
    if rounding_mode == "floor":
        return _floor_of_quotient(b, left, right)
    return trunc(b, out, b.op("Div", left, right))


def _floor_of_quotient(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Python's, as PyTorch computes it: exact where the quotient rounds up to a whole number."""
    zero, one = b.constant(0, x.dtype), b.constant(1, x.dtype)
    plain = b.op("Div", x, y)
    rest = b.op("Mod", x, y, fmod=1)
    differ = b.op("Xor", b.compare("Less", rest, zero), b.compare("Less", y, zero))
    is_below = b.op("And", differ, b.op("Not", b.compare("Equal", rest, zero)))
    quotient = b.op("Div", b.op("Sub", x, rest), y)
    quotient = b.where(is_below, b.op("Sub", quotient, one), quotient)
    floor = b.op("Floor", quotient)
    is_next = b.compare("Greater", b.op("Sub", quotient, floor), b.constant(0.5, x.dtype))
    floor = b.where(is_next, b.op("Add", floor, one), floor)
    floor = b.where(b.compare("Equal", quotient, zero), b.op("Mul", plain, zero), floor)
    return b.where(b.compare("Equal", y, zero), plain, floor)


def floor_divided(b: Builder, out: Any, x: Tensor, y: Tensor | Number) -> Tensor:
    return divided(b, out, x, y, "floor")


def _integer_quotient(b: Builder, out: Any, left: Tensor, right: Tensor, y: Number, mode: str) -> Tensor:
    require(not isinstance(y, Tensor) and y != 0, "a division by zero of integers is an error of PyTorch's")
    require(out.dtype != torch.bool, "a quotient of bools")
    quotient = b.op("Div", left, right)
    if mode == "floor":  # ONNX's truncates
        is_beyond = b.compare(
            "Less" if y > 0 else "Greater", b.op("Mod", left, right, fmod=1), b.constant(0, out.dtype)
        )
        quotient = b.op("Sub", quotient, b.cast(is_beyond, out.dtype))
    return quotient


def remainder(b: Builder, out: Any, x: Tensor | Number, y: Tensor | Number) -> Tensor:
    left, right = b.operand(x, out.dtype), b.operand(y, out.dtype)
    if not left.is_float:
        require(not isinstance(y, Tensor) and y != 0, "a division by zero of integers is an error of PyTorch's")
        return b.op("Mod", left, right)
    found = b.op("Mod", left, right, fmod=1)
    zero = b.constant(0, out.dtype)
    differ = b.op("Xor", b.compare("Less", found, zero), b.compare("Less", right, zero))
    is_wrong = b.op("And", differ, b.op("Not", b.compare("Equal", found, zero)))
    return b.where(is_wrong, b.op("Add", found, right), found)


def fmod(b: Builder, out: Any, x: Tensor, y: Tensor | Number) -> Tensor:
    if not x.is_float:
        require(not isinstance(y, Tensor) and y != 0, "a division by zero of integers is an error of PyTorch's")
    return b.op("Mod", b.operand(x, out.dtype), b.operand(y, out.dtype), fmod=1)


def power(b: Builder, out: Any, x: Tensor | Number, y: Tensor | Number) -> Tensor:
    if isinstance(x, Tensor) and isinstance(y, int | float):
        base = b.cast(x, out.dtype)
        if y in (1, 2, 3):
            found = base
            for _ in range(int(y) - 1):
                found = b.op("Mul", found, base)
            return found
        if abs(y) == 0.5:
            root = b.op("Sqrt", base)
            return root if y > 0 else b.op("Reciprocal", root)
        if y == -1 and base.is_float:
            return b.op("Reciprocal", base)
    require(out.dtype.is_floating_point or not isinstance(y, Tensor), "integers to a power that may be negative")
    require(out.dtype.is_floating_point or (isinstance(y, int) and y >= 0), "integers to a negative power")
    return b.op("Pow", b.operand(x, out.dtype), b.operand(y, out.dtype))


def ignoring_nan(op_type: str) -> Row:
    """Return the row of the larger or smaller of two elements, the other one where one is no number."""

    def row(b: Builder, out: Any, x: Tensor, y: Tensor) -> Tensor:
        left, right = b.cast(x, out.dtype), b.cast(y, out.dtype)
        require(out.dtype != torch.bool, "the larger of two bools")
        found = b.op(op_type, left, right)
        if not left.is_float:
            return found
        found = b.where(b.op("IsNaN", left, dtype=torch.bool), right, found)
        return b.where(b.op("IsNaN", right, dtype=torch.bool), left, found)

    return row


def clamp(b: Builder, out: Any, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    require(out.dtype != torch.bool, "bools within limits")
    found = b.cast(x, out.dtype)
    for op_type, limit in (("Max", low), ("Min", high)):
        if limit is not None:
            found = b.op(op_type, found, b.operand(limit, out.dtype))
    return found


def atan2(b: Builder, out: Any, y: Tensor, x: Tensor) -> Tensor:
    """The angle of (x, y): the arc tangent in the first quadrant, mirrored by the signs."""
    kind = torch.float32 if out.dtype in HALVES else out.dtype
    x, y = b.cast(x, kind), b.cast(y, kind)
    wide, high = b.op("Abs", x), b.op("Abs", y)
    ratio = b.where(b.compare("Equal", wide, high), b.constant(1, kind), b.op("Div", high, wide))
    ratio = b.where(b.compare("Equal", high, b.constant(0, kind)), high, ratio)
    found = b.op("Atan", ratio)
    found = b.where(_is_negative(b, x), b.op("Sub", b.constant(math.pi, kind), found), found)
    found = b.where(_is_negative(b, y), b.op("Neg", found), found)
    return b.cast(b.where(b.op("IsNaN", x, dtype=torch.bool), x, found), out.dtype)


def hypot(b: Builder, out: Any, x: Tensor, y: Tensor) -> Tensor:
    """The square root of the sum of squares, of numbers that are at most one: the larger is factored out."""
    kind = torch.float32 if out.dtype in HALVES else out.dtype
    x, y = b.op("Abs", b.cast(x, kind)), b.op("Abs", b.cast(y, kind))
    large, small = b.op("Max", x, y), b.op("Min", x, y)
    one, infinite = b.constant(1, kind), b.constant(math.inf, kind)
    is_infinite = b.op("Or", b.compare("Equal", x, infinite), b.compare("Equal", y, infinite))
    is_plain = b.op("Or", b.compare("Equal", large, b.constant(0, kind)), is_infinite)
    ratio = b.op("Div", small, b.where(is_plain, one, large))
    found = b.op("Mul", large, b.op("Sqrt", b.op("Add", one, b.op("Mul", ratio, ratio))))
    return b.cast(b.where(is_infinite, infinite, b.where(is_plain, large, found)), out.dtype)


def where(b: Builder, out: Any, condition: Tensor, x: Tensor | Number, y: Tensor | Number) -> Tensor:
    return b.where(b.cast(condition, torch.bool), b.operand(x, out.dtype), b.operand(y, out.dtype))


def threshold(b: Builder, out: Any, x: Tensor, limit: Number, value: Number) -> Tensor:
    return b.where(comparison("LessOrEqual")(b, out, x, limit), b.constant(value, out.dtype), x)


def fused_product(b: Builder, out: Any, x: Tensor, y: Tensor | Number, z: Tensor) -> Tensor:
    return b.op("Add", b.op("Mul", b.operand(x, out.dtype), b.operand(y, out.dtype)), b.operand(z, out.dtype))


def addcmul(b: Builder, out: Any, x: Tensor, y: Tensor, z: Tensor, value: Number = 1) -> Tensor:
    product = b.op("Mul", b.cast(y, out.dtype), b.cast(z, out.dtype))
    return b.op("Add", b.cast(x, out.dtype), b.op("Mul", product, b.constant(value, out.dtype)))


# ---- Types and copies ----


def converted(b: Builder, out: Any, x: Tensor, *_: Any, **named: Any) -> Tensor:
    require(named.get("device") in (None, torch.device("cpu")), "a tensor of another device")
    require(named.get("layout") in (None, torch.strided), "a tensor that is not strided")
    onnx_type(out.dtype)
    if x.is_float and out.dtype in (torch.uint8, torch.int8, torch.int16):  # the last bits, as PyTorch has it
        x = b.cast(x, torch.int32)
    return b.cast(x, out.dtype) if x.dtype != out.dtype else b.op("Identity", x)


def same(b: Builder, out: Any, x: Tensor, *_: Any, **named: Any) -> Tensor:
    return b.op("Identity", x)


def copied(b: Builder, out: Any, x: Tensor, source: Tensor, *_: Any) -> Tensor:
    return b.expanded(b.cast(source, out.dtype), out.shape)


ROWS: dict[Any, Row] = {
    aten.abs.default: absolute,
    aten.acos.default: unary("Acos"),
    aten.acosh.default: unary("Acosh"),
    aten.add.Scalar: scaled("Add", "Or"),
    aten.add.Tensor: scaled("Add", "Or"),
    aten.addcmul.default: addcmul,
    aten.alias.default: same,
    aten.angle.default: angle,
    aten.asin.default: unary("Asin"),
    aten.asinh.default: unary("Asinh"),
    aten.atan.default: unary("Atan"),
    aten.atan2.default: atan2,
    aten.atanh.default: unary("Atanh"),
    aten.bitwise_and.Scalar: logic_or("BitwiseAnd", "And"),
    aten.bitwise_and.Tensor: logic_or("BitwiseAnd", "And"),
    aten.bitwise_not.default: bitwise_not,
    aten.bitwise_or.Scalar: logic_or("BitwiseOr", "Or"),
    aten.bitwise_or.Tensor: logic_or("BitwiseOr", "Or"),
    aten.bitwise_xor.Scalar: logic_or("BitwiseXor", "Xor"),
    aten.bitwise_xor.Tensor: logic_or("BitwiseXor", "Xor"),
    aten.ceil.default: rounding("Ceil"),
    aten.clamp.Tensor: clamp,
    aten.clamp.default: clamp,
    aten.clone.default: same,
    aten.copy.default: copied,
    aten.copysign.Tensor: copysign,
    aten.cos.default: unary("Cos"),
    aten.cosh.default: unary("Cosh"),
    aten.detach.default: same,
    aten.div.Scalar: divided,
    aten.div.Scalar_mode: divided,
    aten.div.Tensor: divided,
    aten.div.Tensor_mode: divided,
    aten.eq.Scalar: comparison("Equal"),
    aten.eq.Tensor: comparison("Equal"),
    aten.erf.default: unary("Erf"),
    aten.exp.default: unary("Exp"),
    aten.exp2.default: formula(lambda b, x: b.op("Pow", b.constant(2, x.dtype), x)),
    aten.expm1.default: formula(expm1),
    aten.floor.default: rounding("Floor"),
    aten.floor_divide.default: floor_divided,
    aten.fmax.default: ignoring_nan("Max"),
    aten.fmin.default: ignoring_nan("Min"),
    aten.fmod.Scalar: fmod,
    aten.fmod.Tensor: fmod,
    aten.ge.Scalar: comparison("GreaterOrEqual"),
    aten.ge.Tensor: comparison("GreaterOrEqual"),
    aten.gt.Scalar: comparison("Greater"),
    aten.gt.Tensor: comparison("Greater"),
    aten.hypot.default: hypot,
    aten.isinf.default: is_inf,
    aten.isnan.default: is_nan,
    aten.le.Scalar: comparison("LessOrEqual"),
    aten.le.Tensor: comparison("LessOrEqual"),
    aten.lift_fresh_copy.default: same,
    aten.log.default: unary("Log"),
    aten.log10.default: _scaled_log(10),
    aten.log1p.default: formula(_log1p),
    aten.log2.default: _scaled_log(2),
    aten.logical_and.default: logical("And"),
    aten.logical_not.default: logical_not,
    aten.logical_or.default: logical("Or"),
    aten.logical_xor.default: logical("Xor"),
    aten.lt.Scalar: comparison("Less"),
    aten.lt.Tensor: comparison("Less"),
    aten.maximum.default: logic_or("Max", "Or"),
    aten.minimum.default: logic_or("Min", "And"),
    aten.mul.Scalar: logic_or("Mul", "And"),
    aten.mul.Tensor: logic_or("Mul", "And"),
    aten.ne.Scalar: not_equal,
    aten.ne.Tensor: not_equal,
    aten.neg.default: negated,
    aten.pow.Scalar: power,
    aten.pow.Tensor_Scalar: power,
    aten.pow.Tensor_Tensor: power,
    aten.reciprocal.default: unary("Reciprocal"),
    aten.remainder.Scalar: remainder,
    aten.remainder.Scalar_Tensor: remainder,
    aten.remainder.Tensor: remainder,
    aten.round.decimals: rounded,
    aten.round.default: rounding("Round"),
    aten.rsqrt.default: formula(lambda b, x: b.op("Reciprocal", b.op("Sqrt", x))),
    aten.sigmoid.default: unary("Sigmoid"),
    aten.sign.default: signum,
    aten.signbit.default: signbit,
    aten.sin.default: unary("Sin"),
    aten.sinh.default: unary("Sinh"),
    aten.sqrt.default: unary("Sqrt"),
    aten.sub.Scalar: scaled("Sub", ""),
    aten.sub.Tensor: scaled("Sub", ""),
    aten.tan.default: unary("Tan"),
    aten.tanh.default: unary("Tanh"),
    aten.threshold.default: threshold,
    aten.true_divide.Tensor: divided,
    aten.trunc.default: trunc,
    aten.where.self: where,
    aten._to_copy.default: converted,
    prims.convert_element_type.default: converted,
    fma: fused_product,
}
"""Operators by overload."""
