"""Rounding to odd, held against exact fractions."""

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graft.core.tensor_ir.arithmetic.exact_rounding import (
    add_to_odd,
    divide_to_odd,
    integer_to_odd,
    multiply_to_odd,
    narrow_to_odd,
    root_to_odd,
    sum_error,
)
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Buffer, Constant, Load, Stage, Variable
from graft.core.tensor_ir.scalar_math import Value
from graft.core.types import INT64

FLOATS = st.floats(1e-100, 1e100) | st.floats(-1e100, -1e-100)


def computed(formula: Callable[..., Value], *numbers: float, dtype: str = "float64") -> np.generic:
    size, i = (Constant(1, INT64),), Variable("i")
    sources = [Buffer(f"x{place}", dtype, size) for place in range(len(numbers))]
    made = formula(*(Value(Load(source, (i,))) for source in sources)).expression
    target = Buffer("y", made.type.dtype, size)
    contents = {source: np.array([number], dtype) for source, number in zip(sources, numbers, strict=True)}
    return run_stages([Stage(target, (i,), made)], contents)[target][0]


def odd(exact: Fraction) -> float:
    """A number rounded to odd in float64: truncated, with the last bit set if anything was cut off."""
    near = float(exact)
    if Fraction(near) == exact:
        return near
    if abs(Fraction(near)) > abs(exact):
        near = float(np.nextafter(near, 0))
    return float((np.float64(near).view(np.int64) | 1).view(np.float64))


@pytest.mark.parametrize(
    ("formula", "exact"),
    [
        (add_to_odd, lambda x, y: x + y),
        (multiply_to_odd, lambda x, y: x * y),
        (divide_to_odd, lambda x, y: x / y),
    ],
)
@given(left=FLOATS, right=FLOATS)
def test_operations_are_rounded_to_odd(
    formula: Callable[..., Value], exact: Callable[..., Fraction], left: float, right: float
) -> None:
    assert computed(formula, left, right) == odd(exact(Fraction(left), Fraction(right)))


@given(st.floats(1e-100, 1e100))
def test_a_root_is_rounded_to_odd(value: float) -> None:
    shift = 2 ** (2 * 600)
    scaled = Fraction(value) * shift
    whole = isqrt(int(scaled))
    assume(Fraction(whole**2) != scaled or True)
    inside = Fraction(whole, 2**600) + (Fraction(1, 2**601) if Fraction(whole**2) != scaled else 0)
    assert computed(root_to_odd, value) == odd(inside)


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_integer_that_is_rounded_to_odd_rounds_to_float32_as_itself(value: int) -> None:
    rounded = int(computed(integer_to_odd, value, dtype="int64"))
    assert np.float32(rounded) == np.float32(value)


@given(FLOATS.filter(lambda x: 1e-30 < abs(x) < 1e30))
def test_a_number_that_is_narrowed_to_odd_rounds_to_bfloat16_once(value: float) -> None:
    found = computed(narrow_to_odd, value)
    assert found.dtype == np.float32
    assert abs(Fraction(float(found)) - Fraction(value)) < Fraction(float(np.spacing(abs(found))))
    assert float(found) == value or int(found.view(np.int32)) & 1


@given(FLOATS, FLOATS)
def test_the_error_of_a_sum_is_exact(left: float, right: float) -> None:
    total = left + right
    error = computed(lambda x, y: sum_error(x, y, x + y), left, right)
    assert Fraction(total) + Fraction(float(error)) == Fraction(left) + Fraction(right)
