"""Operations of the machine: a row for each kind of expression, int64 as in C, lanes that are off."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.tensor_ir import ir, numerics
from graft.core.tensor_ir.interpreting.machine_operations import (
    INDEX_OPERATIONS,
    active_lanes,
    as_array,
    as_python,
    elements,
    pure,
)
from graft.core.tensor_ir.ir import BinaryOperator
from graft.core.types import BOOL, FLOAT32, INT64
from tests.core.tensor_ir.kinds import KINDS, expressions, operations

OF_MEMORY = {ir.Load, ir.Ramp, ir.Constant, ir.Variable}
FLOATS = np.array([1, 2, 3, 4], np.float32)


def test_every_kind_of_expression_without_memory_is_a_function_on_arrays() -> None:
    nodes = expressions(4)
    wanted = {
        ir.Broadcast: ([FLOATS[:1]], [1] * 4), ir.Unary: ([-FLOATS], FLOATS), ir.Binary: ([FLOATS, FLOATS], 2 * FLOATS),
        ir.Select: ([FLOATS < 3, FLOATS, -FLOATS], [1, 2, -3, -4]), ir.Cast: ([FLOATS + 0.5], [1, 2, 3, 4]),
        ir.Bitcast: ([FLOATS], FLOATS.view(np.int32)), ir.Intrinsic: ([FLOATS, FLOATS, FLOATS], FLOATS**2 + FLOATS),
        ir.Shuffle: ([FLOATS], FLOATS[::-1]), ir.Horizontal: ([FLOATS], 10),
    }  # fmt: skip
    assert wanted.keys() == KINDS - OF_MEMORY
    for kind, (arrays, result) in wanted.items():
        np.testing.assert_array_equal(pure(nodes[kind])(*arrays), result, err_msg=kind.__name__)
    for kind in OF_MEMORY:
        with pytest.raises(KeyError):
            pure(nodes[kind])


def test_every_operator_is_a_function_on_arrays() -> None:
    for node in operations(4):
        kind = (node.value if isinstance(node, ir.Unary) else node.left).type  # type: ignore[union-attr]
        array = np.array([1, 1, 1, 0] if kind.dtype == "bool" else [1, 2, 3, 4], kind.dtype)
        found = pure(node)(*[array] * (1 if isinstance(node, ir.Unary) else 2))
        assert (found.shape, found.dtype) == ((4,), np.dtype(node.type.dtype)), node


@pytest.mark.parametrize(
    ("operator", "left", "right", "wanted"),
    [
        ("add", 2**63 - 1, 1, -(2**63)), ("sub", -(2**63), 1, 2**63 - 1), ("mul", 2**62, 2, -(2**63)),
        ("add", 2**63 - 2, 1, 2**63 - 1), ("sub", 1 - 2**63, 1, -(2**63)), ("mul", 3, -5, -15),
        ("div", -7, 2, -3), ("div", 7, -2, -3), ("div", -7, -2, 3), ("div", 7, 0, 7), ("div", -(2**63), -1, -(2**63)),
        ("div", 0, -3, 0), ("mod", -7, 2, -1), ("mod", 7, -2, 1), ("mod", 7, 0, 0), ("min", -1, 2, -1),
        ("max", -1, 2, 2),
        ("eq", 1, 1, True), ("ne", 1, 1, False), ("lt", 1, 1, False), ("le", 1, 1, True), ("gt", 1, 1, False),
        ("ge", 1, 1, True), ("eq", 1, 2, False), ("ne", 1, 2, True), ("lt", 1, 2, True), ("ge", 1, 2, False),
    ],
)  # fmt: skip
def test_indices_are_int64_of_c(operator: str, left: int, right: int, wanted: int | bool) -> None:
    assert INDEX_OPERATIONS[operator](left, right) == wanted


@pytest.mark.parametrize("operator", INDEX_OPERATIONS)
def test_indices_are_what_arrays_of_int64_are(operator: BinaryOperator) -> None:
    numbers = [-(2**63), -7, -1, 0, 1, 2, 7, 2**63 - 1]
    for left in numbers:
        for right in numbers:
            with np.errstate(all="ignore"):
                array = numerics.binary(operator, np.array([left]), np.array([right]))
            assert INDEX_OPERATIONS[operator](left, right) == array[0], (left, right)


def test_lanes_that_are_off_have_no_place() -> None:
    place, on = np.arange(3), np.array([True, False, True])
    for every in (True, np.array([True] * 3)):
        places, which = active_lanes([place, 7], every, 3)
        assert places is not None and which is None
        assert [list(one) for one in places] == [[0, 1, 2], [7, 7, 7]]
    assert active_lanes([5], True, 1) == ([5], None)
    for none in (False, np.array([False] * 3)):
        assert active_lanes([place], none, 3) == (None, None)
    places, which = active_lanes([place, 7], on, 3)
    assert places is not None and which is on
    assert [list(one) for one in places] == [[0, 2], [7, 7]]


def test_elements_are_indices_lane_by_lane() -> None:
    assert list(elements([np.array([3]), 4], 1)) == [(3, 4)]
    assert list(elements([np.array([0, 1]), np.array([5, 5])], 2)) == [(0, 5), (1, 5)]


def test_int64_and_bool_scalars_are_pythons_own() -> None:
    assert type(as_python(np.array(3), INT64)) is int and type(as_python(np.array(True), BOOL)) is bool
    kept = np.array([1.5], np.float32)
    assert as_python(kept, FLOAT32) is kept
    assert as_array(3, INT64).dtype == np.int64 and as_array(kept, FLOAT32).dtype == np.float32


def test_constants_among_shuffled_vectors_have_all_lanes() -> None:
    zeros, ones = (ir.Constant(value, FLOAT32.with_lanes(4)) for value in (0.0, 1.0))
    shuffled = pure(ir.Shuffle((zeros, ones), (3, 7, 0, 4)))
    np.testing.assert_array_equal(shuffled(np.float32(0), np.ones(1, np.float32)), [0, 1, 0, 1])
