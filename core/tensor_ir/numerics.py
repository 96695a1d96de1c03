"""The element operations of the tensor IR in NumPy: what every operator and intrinsic means, element by element.

Arrays hold an element type as `numpy_dtype` gives it (custom datatypes as their storage type). Transcendental
functions of float16, bfloat16 and float32 are computed in float64 and rounded once, so they stand for the exact value
that generated code is measured against. Callers silence NumPy's floating-point warnings (`numpy.errstate`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, assert_never

import numpy as np

from graft.core.machine.instructions import DOTS
from graft.core.tensor_ir.ir import BinaryOperator, UnaryOperator
from graft.core.types import INTEGERS, element_bits, storage_dtype
from graft.errors import GraftError
from graft.runtime.dtypes import numpy_dtype

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_SMALL_FLOATS = frozenset({"float16", "bfloat16"})


def storage(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype that carries the element type ``dtype``."""
    return numpy_dtype(storage_dtype(dtype))


def constant(value: int | float | bool, dtype: str) -> Array:
    """Return a constant as a zero-dimensional array; integers wrap into their type.

    Raise GraftError for a custom datatype.
    """
    if dtype in INTEGERS:
        bits = element_bits(dtype)
        return np.array(int(value) & ((1 << bits) - 1), f"uint{bits}").astype(dtype)
    if storage_dtype(dtype) != dtype:
        raise GraftError(f"a constant of '{dtype}' has no meaning in the interpreter; lower the datatype first")
    return np.array(value, storage(dtype))


def unary(operator: UnaryOperator, value: Array, dtype: str) -> Array:
    """Apply a `Unary` operator to elements of type ``dtype``."""
    match operator:
        case "neg":
            return np.asarray(np.negative(value))
        case "abs":
            return np.asarray(np.abs(value))
        case "not":
            return np.asarray(np.logical_not(value))
        case "bitnot":
            return np.asarray(np.invert(value))
        case "clz":
            return _count_leading_zeros(value)
        case "popcount":
            bits = value.dtype.itemsize * 8
            return np.asarray(np.bitwise_count(value.view(f"uint{bits}")).astype(value.dtype))
        case "sqrt" | "floor" | "ceil" | "trunc" | "round_even":
            function = {
                "sqrt": np.sqrt,
                "floor": np.floor,
                "ceil": np.ceil,
                "trunc": np.trunc,
                "round_even": np.rint,
            }[operator]
            return _through(function, (value,), "float32" if dtype in _SMALL_FLOATS else dtype)
        case _:
            assert_never(operator)


def binary(operator: BinaryOperator, left: Array, right: Array) -> Array:
    """Apply a `Binary` operator; both sides have one dtype and shapes that broadcast."""
    if operator == "div" and left.dtype.kind in "iu":
        return _divide_integers(left, right)
    if operator == "mod":
        assert left.dtype.kind in "iu", f"mod of {left.dtype}; floats use fmod"
    return np.asarray(_BINARY[operator](left, right))


def _divide_integers(left: Array, right: Array) -> Array:
    """Truncate towards zero as C does; the smallest integer by -1 wraps."""
    divisor = np.where(right == 0, np.ones_like(right), right)
    return np.asarray(np.floor_divide(left - np.fmod(left, divisor), divisor))


_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "mod": np.fmod,
    "fmod": np.fmod,
    "min": np.minimum,
    "max": np.maximum,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reduce(operator: BinaryOperator, value: Array, axes: tuple[int, ...]) -> Array:
    """Reduce ``axes`` of an array that is not empty along them; the order is NumPy's."""
    function: Any = _BINARY[operator]
    return np.asarray(function.reduce(value, axis=axes, dtype=value.dtype))


def _count_leading_zeros(value: Array) -> Array:
    bits = value.dtype.itemsize * 8
    smeared = value.view(f"uint{bits}").copy()
    shift = 1
    while shift < bits:
        smeared |= smeared >> smeared.dtype.type(shift)
        shift *= 2
    return np.asarray((bits - np.bitwise_count(smeared).astype(np.int64)).astype(value.dtype))


def cast(value: Array, source: str, target: str) -> Array:
    """Convert elements: float to integer truncates and saturates (NaN gives 0), integers wrap, bool tests for zero."""
    if source == target:
        return value
    if target in INTEGERS and source not in INTEGERS and source != "bool":
        return _saturate(value.astype(np.float64), storage(target))
    if target == "bool":
        return np.asarray(value != value.dtype.type(0))
    return np.asarray(value).astype(storage(target))


def _saturate(value: Array, dtype: np.dtype[Any]) -> Array:
    limits = np.iinfo(dtype)
    whole = np.trunc(value)
    above, below = whole >= float(limits.max) + (0.0 if limits.bits == 64 else 1.0), whole < float(limits.min)
    inside = np.where(above | below | np.isnan(whole), 0.0, whole).astype(dtype)
    return np.asarray(np.where(above, dtype.type(limits.max), np.where(below, dtype.type(limits.min), inside)))


def bitcast(value: Array, target: str) -> Array:
    """Read the same bits as another element type; of another width, a scalar or vector becomes one of other lanes."""
    array = np.ascontiguousarray(value)
    if array.itemsize == storage(target).itemsize:
        return array.view(storage(target)).reshape(np.shape(value))
    return array.reshape(-1).view(storage(target)).reshape(-1)


def regroup(values: Array, target: str) -> Array:
    """Read the bits of every element as several of a narrower type, along a new last axis."""
    return np.ascontiguousarray(values)[..., None].view(storage(target))


def check_bounds(buffer: str, places: Iterable[Array | int], shape: tuple[int, ...]) -> None:
    """Raise AssertionError, naming the buffer, the dimension and the index, if any index lies outside."""
    for dimension, (place, extent) in enumerate(zip(places, shape, strict=True)):
        if isinstance(place, int):
            worst = place
        elif place.size:
            worst = int(place.min()) if place.min() < 0 else int(place.max())
        else:
            continue
        if not 0 <= worst < extent:
            raise AssertionError(f"index {worst} is outside dimension {dimension} of '{buffer}' ({extent})")


# ---- Intrinsics ---------------------------------------------------------------------------------------------------


def _erf(value: Array) -> Array:
    flat = np.asarray(value, np.float64).ravel()
    return np.fromiter(map(math.erf, flat.tolist()), np.float64, flat.size).reshape(np.shape(value))


def _sigmoid(value: Array) -> Array:
    small = np.exp(-np.abs(value))
    return np.asarray(np.where(value >= 0, 1.0, small) / (1.0 + small))


_FLOAT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp_nonpositive": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "pow": np.power,
    "rsqrt": lambda value: 1.0 / np.sqrt(value),
}


FLOAT_INTRINSICS = frozenset(_FLOAT_FUNCTIONS) | {"fma", "muladd"}
"""The intrinsics on floats whose arguments and result have one type."""
INTRINSIC_ARGUMENTS = {name: 2 if name == "pow" else 1 for name in _FLOAT_FUNCTIONS} | {"fma": 3, "muladd": 3}


def intrinsic(name: str, arguments: tuple[Array, ...], dtype: str) -> Array:
    """Apply an intrinsic; ``dtype`` is the element type of the result.

    ``dot4_u8s8(sum, a, b)`` adds to each int32 lane the products of four neighbouring uint8 and int8 lanes;
    ``dot2_s16(sum, a, b)`` the products of two neighbouring int16 lanes;
    ``dot2_bf16(sum, a, b)`` adds to each float32 lane the products of two neighbouring bfloat16 lanes.

    Raise GraftError for an unknown intrinsic.
    """
    if name == "round_bf16":
        return cast(arguments[0], "float32", "bfloat16")
    if name in ("fma", "muladd"):
        return _fused_multiply_add(*arguments)
    if name in _FLOAT_FUNCTIONS:
        return _through(_FLOAT_FUNCTIONS[name], arguments, "float64")
    if name in DOTS:
        total, left, right = arguments
        groups = np.broadcast_arrays(left, right)
        return dot(total, *(side.reshape(*np.shape(total), DOTS[name].width) for side in groups))
    raise GraftError(f"unknown intrinsic '{name}' of type {dtype}; the interpreter knows those that `verify` accepts")


def dot(total: Array, left: Array, right: Array) -> Array:
    """Add to ``total`` the products of ``left`` and ``right`` along their last axis."""
    products = left.astype(total.dtype) * right.astype(total.dtype)
    return np.asarray(total + products.sum(-1, dtype=total.dtype))


def _through(function: Callable[..., Any], arguments: tuple[Array, ...], wide: str) -> Array:
    """Compute in the element type ``wide`` and round once to the arguments' own."""
    own = arguments[0].dtype
    return np.asarray(function(*(argument.astype(wide, copy=False) for argument in arguments))).astype(own, copy=False)


def _fused_multiply_add(left: Array, right: Array, addend: Array) -> Array:
    own = left.dtype
    if own == np.float64:
        return _fused_float64(left, right, addend)
    a, b, c = (operand.astype(np.float64) for operand in (left, right, addend))
    product = a * b
    total, error = _two_sum(product, c)
    # Round to odd in float64, so that rounding again to the narrow type gives the correctly rounded result.
    bits = np.asarray(total).view(np.int64)
    away = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    return np.asarray(np.where(inexact, away, total)).astype(own)


def _two_sum(left: Array, right: Array) -> tuple[Array, Array]:
    """Return the rounded sum and its exact error (Knuth)."""
    total = np.asarray(left + right)
    virtual = total - left
    return total, np.asarray((left - (total - virtual)) + (right - virtual))


def _fused_float64(left: Array, right: Array, addend: Array) -> Array:
    """Multiply and add with an error-free product (Dekker); within one ulp of the correctly rounded result."""
    product = np.asarray(left * right)
    (left_high, left_low), (right_high, right_low) = _split(left), _split(right)
    error = left_low * right_low - (
        ((product - left_high * right_high) - left_low * right_high) - left_high * right_low
    )
    total, sum_error = _two_sum(product, addend)
    fused = total + (error + sum_error)
    return np.asarray(np.where(np.isfinite(fused), fused, product + addend))


def _split(value: Array) -> tuple[Array, Array]:
    scaled = value * 134217729.0
    high = np.asarray(scaled - (scaled - value))
    return high, np.asarray(value - high)
