"""What operators and intrinsics mean, held against exact arithmetic and NumPy."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graft.core.tensor_ir import numerics
from graft.errors import GraftError
from graft.runtime.dtypes import numpy_dtype

TINY = 2.0**-80


def array(*values: float, dtype: str = "int32") -> numerics.Array:
    return np.array(values, dtype)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"), [(300, "uint8", 44), (200, "int8", -56), (-1, "uint16", 65535)]
)
def test_integer_constants_wrap_into_their_type(value: int, dtype: str, expected: int) -> None:
    found = numerics.constant(value, dtype)
    assert (int(found), found.dtype) == (expected, np.dtype(dtype))


def test_a_constant_has_its_type_and_one_of_a_custom_datatype_has_no_meaning() -> None:
    for value, dtype in ((True, "bool"), (1.5, "bfloat16"), (-2.5, "float64")):
        assert (numerics.constant(value, dtype), numerics.constant(value, dtype).dtype) == (value, numpy_dtype(dtype))
    message = "a constant of 'custom[posit]16' has no meaning in the interpreter; lower the datatype first"
    with pytest.raises(GraftError, match=f"^{re.escape(message)}$"):
        numerics.constant(1, "custom[posit]16")


@given(st.integers(-100, 100), st.integers(-100, 100).filter(bool))
def test_integers_are_divided_as_in_c(left: int, right: int) -> None:
    quotient = int(numerics.binary("div", array(left), array(right))[0])
    rest = int(numerics.binary("mod", array(left), array(right))[0])
    assert quotient == int(Fraction(left, right))  # towards zero
    assert quotient * right + rest == left
    assert rest == 0 or (rest < 0) == (left < 0)


def test_logic_is_bit_by_bit_and_a_bool_has_one() -> None:
    bits, truth = (array(12), array(10)), (np.array([True, True, False, False]), np.array([True, False, True, False]))
    for operator, of_bits, of_truth in (("and", 8, 8), ("or", 14, 14), ("xor", 6, 6)):
        assert numerics.binary(operator, *bits).tolist() == [of_bits]  # type: ignore[arg-type]
        found = numerics.binary(operator, *truth)  # type: ignore[arg-type]
        assert found.dtype == np.bool_ and int("".join(map(str, found.astype(int))), 2) == of_truth
    assert [bool(numerics.reduce(one, truth[0], (0,))) for one in ("and", "or")] == [False, True]  # type: ignore[arg-type]
    assert [int(numerics.reduce(one, array(12, 10), (0,))) for one in ("and", "or")] == [8, 14]  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("target", "numbers"),
    [
        ("uint8", {-1.0: 0, -0.9: 0, 254.9: 254, 255.9: 255, 256.0: 255}),
        ("int8", {-129.0: -128, -128.9: -128, 127.9: 127, 128.0: 127}),
        ("int64", {2.0**63: 2**63 - 1, -(2.0**63): -(2**63), -(2.0**64): -(2**63), 2.0**62: 2**62}),
        ("uint64", {2.0**64: 2**64 - 1, 2.0**63: 2**63, -1.0: 0}),
    ],
)
def test_every_integer_type_saturates_at_its_own_ends(target: str, numbers: dict[float, int]) -> None:
    found = numerics.cast(np.array([*numbers]), "float64", target)
    assert (found.tolist(), found.dtype) == ([*numbers.values()], np.dtype(target))


def test_a_cast_to_bool_tests_for_zero_and_one_to_its_own_type_does_nothing() -> None:
    values = np.array([0, 1, 0.5, -0.0, np.nan], np.float32)
    assert numerics.cast(values, "float32", "bool").tolist() == [False, True, True, False, True]
    assert numerics.cast(array(0, 1, 256), "int32", "bool").tolist() == [False, True, True]
    assert numerics.cast(values, "float32", "float32") is values
    assert numerics.cast(array(1, 300), "int32", "uint8").tolist() == [1, 44]
    assert numerics.cast(np.array([True, False]), "bool", "int32").tolist() == [1, 0]


def test_zero_divides_as_one_and_the_least_number_by_minus_one_wraps() -> None:
    assert numerics.binary("div", array(7, -7, 7), array(0, 0, 1)).tolist() == [7, -7, 7]
    with np.errstate(all="ignore"):
        assert numerics.binary("div", array(-128, 100, dtype="int8"), array(-1, -1, dtype="int8")).tolist() == [
            -128,
            -100,
        ]


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


@pytest.mark.parametrize("factor", [1 + 2**-12, 1 + 3 * 2**-12])
def test_what_lies_beside_the_middle_of_two_floats_goes_to_its_own_side(factor: float) -> None:
    values = [np.array([one], np.float32) for one in (factor, factor)]
    middle = Fraction(factor) ** 2
    below, above = (
        numerics.intrinsic("fma", (*values, np.array([one], np.float32)), "float32")[0] for one in (-TINY, TINY)
    )
    assert Fraction(float(below)) < middle < Fraction(float(above)) and above == np.nextafter(below, np.float32(2))


@pytest.mark.parametrize(
    ("name", "arguments", "wanted"),
    [
        ("rsqrt", (4.0,), 0.5), ("pow", (2.0, 3.0), 8.0), ("exp2", (3.0,), 8.0), ("log2", (8.0,), 3.0),
        ("sigmoid", (0.0,), 0.5), ("sigmoid", (-800.0,), 0.0),
        ("sigmoid", (0.5,), float(np.float32(1 / (1 + math.exp(-0.5))))), ("sigmoid", (800.0,), 1.0),
        ("erf", (0.0,), 0.0),
        ("log1p", (0.0,), 0.0), ("expm1", (0.0,), 0.0), ("muladd", (2.0, 3.0, 4.0), 10.0),
    ],
)  # fmt: skip
def test_functions_are_of_as_many_arguments_as_is_said(name: str, arguments: tuple[float, ...], wanted: float) -> None:
    assert numerics.INTRINSIC_ARGUMENTS[name] == len(arguments)
    found = numerics.intrinsic(name, tuple(np.array([one], np.float32) for one in arguments), "float32")
    assert (found.tolist(), found.dtype) == ([wanted], np.float32)


def test_a_dot_product_adds_groups_of_products() -> None:
    left, right = np.arange(8, dtype=np.uint8), np.arange(-4, 4, dtype=np.int8)
    expected = 5 + (left.astype(np.int32) * right).reshape(2, 4).sum(1)
    found = numerics.dot(array(5, 5), left.reshape(2, 4), right.reshape(2, 4))
    np.testing.assert_array_equal(found, expected)


def test_dot_products_of_the_machine_are_of_groups_of_the_last_axis() -> None:
    left, right = np.arange(24, dtype=np.uint8), np.arange(-12, 12, dtype=np.int8)
    groups = (left.astype(np.int32) * right).reshape(6, 4).sum(1)
    found = numerics.intrinsic("dot4_u8s8", (array(*range(6)), left, right), "int32")
    assert (found.tolist(), found.dtype) == ((np.arange(6) + groups).tolist(), np.int32)
    cube = numerics.dot(array(*[0] * 6).reshape(2, 3), left.reshape(2, 3, 4), right.reshape(2, 3, 4))
    assert cube.tolist() == groups.reshape(2, 3).tolist()
    message = "unknown intrinsic 'dot9' of type int32; the interpreter knows those that `verify` accepts"
    with pytest.raises(GraftError, match=f"^{re.escape(message)}$"):
        numerics.intrinsic("dot9", (array(0), left, right), "int32")


def test_a_reduction_keeps_its_type() -> None:
    found = numerics.reduce("add", np.full((2, 3), 100, np.int8), (1,))
    assert found.dtype == np.int8 and found.tolist() == [44, 44]
    assert numerics.reduce("max", np.array([[1.0, np.nan]]), (0, 1)).tolist() != [1.0]


def test_a_place_outside_is_named_with_its_buffer() -> None:
    numerics.check_bounds("x", [np.array([0, 3]), np.array([], np.int64), np.array([0, 1])], (4, 0, 2))
    for places, message in (
        ([[0], [4, 1]], "index 4 is outside dimension 1 of 'x' (4)"),
        ([[3, -1], [0]], "index -1 is outside dimension 0 of 'x' (4)"),
    ):
        with pytest.raises(AssertionError, match=f"^{re.escape(message)}$"):
            numerics.check_bounds("x", [np.array(place) for place in places], (4, 4))
