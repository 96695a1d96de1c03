"""What operators and intrinsics mean, held against exact arithmetic and NumPy."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graft.core.tensor_ir import numerics


def array(*values: float, dtype: str = "int32") -> numerics.Array:
    return np.array(values, dtype)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"), [(300, "uint8", 44), (200, "int8", -56), (-1, "uint16", 65535)]
)
def test_integer_constants_wrap_into_their_type(value: int, dtype: str, expected: int) -> None:
    found = numerics.constant(value, dtype)
    assert (int(found), found.dtype) == (expected, np.dtype(dtype))


@given(st.integers(-100, 100), st.integers(-100, 100).filter(bool))
def test_integers_are_divided_as_in_c(left: int, right: int) -> None:
    quotient = int(numerics.binary("div", array(left), array(right))[0])
    rest = int(numerics.binary("mod", array(left), array(right))[0])
    assert quotient == int(Fraction(left, right))  # towards zero
    assert quotient * right + rest == left
    assert rest == 0 or (rest < 0) == (left < 0)


def test_the_larger_of_a_number_and_nan_is_nan() -> None:
    pair = np.array([1, np.nan], np.float32), np.array([np.nan, 2], np.float32)
    for operator in ("min", "max"):
        assert np.isnan(numerics.binary(operator, *pair)).all()  # type: ignore[arg-type]


@given(st.integers(-(2**31), 2**31 - 1))
def test_bits_are_counted_in_the_width_of_the_type(value: int) -> None:
    unsigned = value & (2**32 - 1)
    assert int(numerics.unary("clz", array(value), "int32")[0]) == 32 - unsigned.bit_length()
    assert int(numerics.unary("popcount", array(value), "int32")[0]) == unsigned.bit_count()


@pytest.mark.parametrize(
    ("value", "expected"), [(1e10, 2**31 - 1), (-1e10, -(2**31)), (np.inf, 2**31 - 1), (-1.9, -1), (np.nan, 0)]
)
def test_a_float_that_becomes_an_integer_saturates_and_truncates(value: float, expected: int) -> None:
    assert int(numerics.cast(np.array([value], np.float64), "float64", "int32")[0]) == expected


def test_the_same_bits_are_regrouped_from_the_lowest() -> None:
    word = array(0x04030201)
    assert numerics.regroup(word, "uint8").reshape(-1).tolist() == [1, 2, 3, 4]
    assert numerics.bitcast(np.array([1.0], np.float32), "int32").tolist() == [0x3F800000]


@given(st.tuples(*[st.floats(-1e3, 1e3, width=32)] * 3))
def test_a_fused_multiply_add_in_float32_is_rounded_once(values: tuple[float, float, float]) -> None:
    found = numerics.intrinsic("fma", tuple(np.array([value], np.float32) for value in values), "float32")[0]
    exact = Fraction(values[0]) * Fraction(values[1]) + Fraction(values[2])
    below, above = (np.nextafter(found, np.float32(side)) for side in (-np.inf, np.inf))
    assert all(abs(Fraction(float(found)) - exact) <= abs(Fraction(float(other)) - exact) for other in (below, above))


@given(st.tuples(*[st.floats(-1e10, 1e10)] * 3))
def test_a_fused_multiply_add_in_float64_is_rounded_once(values: tuple[float, float, float]) -> None:
    found = float(numerics.intrinsic("fma", tuple(np.array([value]) for value in values), "float64")[0])
    exact = Fraction(values[0]) * Fraction(values[1]) + Fraction(values[2])
    if exact == 0 or abs(exact) > Fraction(1, 2**900):
        assert found == float(exact)


def test_a_dot_product_adds_groups_of_products() -> None:
    left, right = np.arange(8, dtype=np.uint8), np.arange(-4, 4, dtype=np.int8)
    expected = 5 + (left.astype(np.int32) * right).reshape(2, 4).sum(1)
    found = numerics.dot(array(5, 5), left.reshape(2, 4), right.reshape(2, 4))
    np.testing.assert_array_equal(found, expected)


def test_a_reduction_keeps_its_type() -> None:
    found = numerics.reduce("add", np.full((2, 3), 100, np.int8), (1,))
    assert found.dtype == np.int8 and found.tolist() == [44, 44]
    assert numerics.reduce("max", np.array([[1.0, np.nan]]), (0, 1)).tolist() != [1.0]


def test_a_place_outside_is_named_with_its_buffer() -> None:
    numerics.check_bounds("x", [np.array([0, 3])], (4,))
    with pytest.raises(AssertionError, match="'x'"):
        numerics.check_bounds("x", [np.array([0, 4])], (4,))
    with pytest.raises(AssertionError, match="'x'"):
        numerics.check_bounds("x", [np.array([-1])], (4,))
