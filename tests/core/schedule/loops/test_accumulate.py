"""Reductions into registers, and what makes parts of one into a whole."""

import numpy as np
import pytest

from graft.core.schedule.loops.accumulate import identity_of, joined
from graft.core.tensor_ir import numerics
from graft.core.tensor_ir.ir import Binary, BinaryOperator, Variable
from graft.core.types import BOOL, FLOAT32, Type

NUMBERS = {
    "float32": [-np.inf, -1.5, 0.0, 3.0, np.inf], "int8": [-128, -1, 0, 127], "uint8": [0, 1, 255],
    "int64": [-(2**63), 5, 2**63 - 1],
}  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("operator", ["add", "mul", "min", "max"])
def test_the_identity_of_an_operator_changes_nothing(operator: BinaryOperator, dtype: str) -> None:
    neutral = numerics.constant(identity_of(operator, Type(dtype)).value, dtype)
    for number in NUMBERS[dtype]:
        value = np.array(number, dtype)
        assert numerics.binary(operator, neutral, value) == value


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("operator", ["and", "or", "xor"])
def test_the_identity_of_a_bitwise_operator_changes_nothing(operator: BinaryOperator, dtype: str) -> None:
    neutral = numerics.constant(identity_of(operator, Type(dtype)).value, dtype)
    for number in NUMBERS[dtype]:
        value = np.array(number, dtype)
        assert numerics.binary(operator, neutral, value) == value


@pytest.mark.parametrize(("operator", "neutral"), [("and", True), ("min", True), ("or", False), ("max", False)])
def test_of_bools_all_hold_or_any_does(operator: BinaryOperator, neutral: bool) -> None:
    assert identity_of(operator, BOOL).value is neutral


def test_the_identity_of_a_vector_is_a_scalar() -> None:
    assert identity_of("add", FLOAT32.with_lanes(8)).type == FLOAT32


def test_parts_of_a_sum_are_joined_by_its_operator() -> None:
    left, right = Variable("l", FLOAT32), Variable("r", FLOAT32)
    assert joined("max", left, right) == Binary("max", left, right)


def test_parts_of_a_sum_whose_terms_are_ordered_are_never_joined() -> None:
    custom = Type("custom[posit]16")
    left, right = Variable("l", custom), Variable("r", custom)
    with pytest.raises(AssertionError, match=r"^partial results of custom\[posit\]16 are joined"):
        joined("add", left, right)
