"""Rules on single operations, each held against Python's or NumPy's own arithmetic."""

import itertools
import operator
from collections.abc import Callable

import numpy as np
import pytest

from graft.core.tensor_ir.ir import (
    Binary,
    BinaryOperator,
    Bitcast,
    Broadcast,
    Cast,
    Constant,
    Expression,
    Intrinsic,
    Select,
    Unary,
    Variable,
)
from graft.core.tensor_ir.rewriting.algebra import binary_bounds, decide, fold, identity, splat_value, unbroadcast
from graft.core.types import BOOL, FLOAT32, INT64, Type

COMPARED: dict[str, Callable[[int, int], bool]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
X, B, F = Variable("x"), Variable("b", BOOL), Variable("f", FLOAT32)
INT32 = Type("int32")


def truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


WHOLE: dict[str, Callable[[int, int], int]] = {
    "min": min, "max": max, "mul": operator.mul, "div": truncated, "mod": lambda a, b: a - truncated(a, b) * b,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARED)
def test_a_comparison_is_decided_where_all_differences_agree(name: str) -> None:
    for low, high in itertools.combinations_with_replacement(range(-2, 3), 2):
        answers = {COMPARED[name](difference, 0) for difference in range(low, high + 1)}
        assert decide(name, low, high) == (answers.pop() if len(answers) == 1 else None), (low, high)


@pytest.mark.parametrize("name", WHOLE)
def test_bounds_hold_every_result(name: str) -> None:
    ends = list(itertools.combinations_with_replacement(range(-3, 4), 2))
    for left, right in itertools.product(ends, ends):
        bounds = binary_bounds(name, left, right)
        if bounds is None:
            assert name in ("div", "mod") and not right[0] == right[1] > 0
            continue
        places = itertools.product(range(left[0], left[1] + 1), range(right[0], right[1] + 1))
        results = [WHOLE[name](one, other) for one, other in places]
        assert bounds[0] <= min(results) and max(results) <= bounds[1]
        if name != "mod":
            assert bounds == (min(results), max(results))


def test_other_operations_have_no_bounds() -> None:
    assert binary_bounds("xor", (0, 1), (0, 1)) is None


def test_neutral_elements_leave_the_other_side() -> None:
    zero, one = Constant(0, INT64), Constant(1, INT64)
    assert identity("add", X, zero) is X and identity("add", zero, X) is X
    assert identity("mul", X, one) is X and identity("mul", one, X) is X
    assert identity("div", X, one) is X and identity("sub", X, zero) is X
    assert identity("min", X, X) is X
    assert identity("add", X, one) is None and identity("div", one, X) is None


def test_floats_keep_the_sign_of_their_zeros() -> None:
    assert identity("add", F, Constant(0.0, FLOAT32)) is None
    assert identity("sub", F, Constant(-0.0, FLOAT32)) is None
    assert identity("sub", F, Constant(0.0, FLOAT32)) is F


@pytest.mark.parametrize(("name", "known", "expected"), [("and", True, "x"), ("or", False, "x"), ("or", True, "known")])
def test_logic_with_a_known_side_is_decided(name: str, known: bool, expected: str) -> None:
    side = Constant(known, BOOL)
    for pair in ((B, side), (side, B)):
        assert identity(name, *pair) is (B if expected == "x" else side)
    assert identity(name, B, B) is B
    assert identity("xor", B, side) is None


FOLDED: list[tuple[Expression, object]] = [
    (Binary("add", Constant(2, INT64), Constant(3, INT64)), 5),
    (Binary("mul", Constant(1 << 62, INT64), Constant(4, INT64)), 0),
    (Binary("add", Constant(2**31 - 1, INT32), Constant(1, INT32)), -(2**31)),
    (Binary("div", Constant(-7, INT64), Constant(2, INT64)), -3),
    (Binary("lt", Constant(1, INT64), Constant(2, INT64)), True),
    (Unary("neg", Constant(1.5, FLOAT32)), -1.5),
    (Cast(Constant(-1.5, FLOAT32), "int64"), -1),
    (Bitcast(Constant(1.0, FLOAT32), "int32"), 0x3F800000),
    (Select(Constant(False, BOOL), Constant(1, INT64), Constant(2, INT64)), 2),
    (Select(Constant(True, BOOL), Constant(1, INT64), Constant(2, INT64)), 1),
    (Intrinsic("fma", tuple(Constant(one, FLOAT32) for one in (2.0, 3.0, 4.0)), FLOAT32), 10.0),
    (Binary("add", Constant(0.1, FLOAT32), Constant(0.2, FLOAT32)), float(np.float32(0.1) + np.float32(0.2))),
]


@pytest.mark.parametrize(("expression", "value"), FOLDED, ids=str)
def test_constants_fold_in_their_own_type(expression: Expression, value: object) -> None:
    folded = fold(expression)
    assert isinstance(folded, Constant)
    assert (folded.value, folded.type, type(folded.value)) == (value, expression.type, type(value))


def test_what_cannot_be_computed_here_stays() -> None:
    unknown = Intrinsic("extern:f", (Constant(1.0, FLOAT32),), FLOAT32)
    assert fold(unknown) is unknown
    pair = Unary("neg", Constant(1.0, FLOAT32.with_lanes(2)))
    assert fold(pair) is pair


def test_an_operation_on_broadcasts_is_one_on_scalars() -> None:
    name: BinaryOperator = "add"
    wide = Binary(name, Broadcast(F, 4), Broadcast(F, 4))
    assert unbroadcast(wide, (wide.left, wide.right)) == Binary(name, F, F)
    assert unbroadcast(wide, (wide.left, F)) is None
    called = Intrinsic("exp", (Broadcast(F, 4),), FLOAT32.with_lanes(4))
    assert unbroadcast(called, called.arguments) == Intrinsic("exp", (F,), FLOAT32)


def test_the_number_of_a_splat_is_that_of_its_scalar() -> None:
    assert splat_value(Broadcast(Constant(3, INT64), 8)) == 3
    assert splat_value(Broadcast(X, 8)) is None
