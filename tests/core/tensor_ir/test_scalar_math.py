"""Formulas with Python's operators, run in the interpreter."""

import operator
from collections.abc import Callable

import numpy as np
import pytest

from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Broadcast, Buffer, Constant, Load, Stage, Variable
from graft.core.tensor_ir.scalar_math import Value, select
from graft.core.types import FLOAT32, INT64

NUMBERS = np.array([-2.5, -1.0, -0.0, 0.25, 1.0, 3.5], np.float32)


def computed(formula: Callable[[Value], Value], dtype: str = "float32", numbers: np.ndarray = NUMBERS) -> np.ndarray:
    """What a formula gives at each of some numbers."""
    size, i = (Constant(len(numbers), INT64),), Variable("i")
    source = Buffer("x", dtype, size)
    made = formula(Value(Load(source, (i,)))).expression
    target = Buffer("y", made.type.dtype, size)
    return run_stages([Stage(target, (i,), made)], {source: numbers.astype(dtype)})[target]


@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_arithmetic_takes_numbers_on_either_side(operation: Callable[..., Value]) -> None:
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(computed(lambda x: operation(x, 2)), operation(NUMBERS, np.float32(2)))
        np.testing.assert_array_equal(computed(lambda x: operation(2, x)), operation(np.float32(2), NUMBERS))
        np.testing.assert_array_equal(computed(lambda x: operation(x, x)), operation(NUMBERS, NUMBERS))


@pytest.mark.parametrize("operation", [operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor])
def test_bits_are_those_of_integers(operation: Callable[..., Value]) -> None:
    numbers = np.array([-5, 0, 3, 12], np.int32)
    np.testing.assert_array_equal(computed(lambda x: operation(x, 2), "int32", numbers), operation(numbers, 2))


@pytest.mark.parametrize("operation", [operator.lt, operator.gt, operator.ge])
def test_comparisons_give_a_bool_per_lane(operation: Callable[..., Value]) -> None:
    np.testing.assert_array_equal(computed(lambda x: operation(x, 0.25)), operation(NUMBERS, 0.25))


def test_a_nan_differs_from_itself() -> None:
    numbers = np.array([np.nan, 1], np.float32)
    assert computed(lambda x: x.equals(x), numbers=numbers).tolist() == [False, True]
    assert computed(lambda x: x.differs(x), numbers=numbers).tolist() == [True, False]


def test_a_clamped_nan_stays_one() -> None:
    numbers = np.array([np.nan, -3, 0.5, 3], np.float32)
    np.testing.assert_array_equal(computed(lambda x: x.clamp(-1, 1), numbers=numbers), [np.nan, -1, 0.5, 1])
    np.testing.assert_array_equal(computed(lambda x: x.at_least(0), numbers=numbers), [np.nan, 0, 0.5, 3])
    np.testing.assert_array_equal(computed(lambda x: x.at_most(0), numbers=numbers), [np.nan, -3, 0, 0])


def test_a_polynomial_begins_with_the_constant_term() -> None:
    np.testing.assert_array_equal(computed(lambda x: x.polynomial((1, 2, 4))), 1 + 2 * NUMBERS + 4 * NUMBERS**2)
    np.testing.assert_array_equal(computed(lambda x: x.polynomial((3,))), np.full(len(NUMBERS), 3))


def test_a_product_and_a_sum_are_rounded_once() -> None:
    numbers = np.array([1 + 2**-23], np.float32)
    exact = computed(lambda x: x.times_plus(x, -1 - 2**-22), numbers=numbers)
    assert exact.tolist() == [2**-46]


def test_signs_bits_and_casts_are_those_of_each_element() -> None:
    np.testing.assert_array_equal(computed(lambda x: abs(-x)), abs(NUMBERS))
    np.testing.assert_array_equal(computed(lambda x: x.bits("int32")), NUMBERS.view(np.int32))
    np.testing.assert_array_equal(computed(lambda x: x.cast("int64")), [-2, -1, 0, 0, 1, 3])
    np.testing.assert_array_equal(computed(lambda x: x.unary("floor")), np.floor(NUMBERS))
    np.testing.assert_array_equal(computed(lambda x: select(x < 0, 7, x)), np.where(NUMBERS < 0, 7, NUMBERS))


def test_a_constant_has_the_lanes_of_its_value() -> None:
    made = Value(Variable("v", FLOAT32.with_lanes(4))).constant(2).expression
    assert made == Broadcast(Constant(2.0, FLOAT32), 4)
