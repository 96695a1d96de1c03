"""Rewrites of values: what comes out of simplification has the same bits, by the interpreter, on random expressions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import (
    Binary,
    Bitcast,
    Broadcast,
    Buffer,
    Cast,
    Constant,
    Expression,
    Load,
    Select,
    Stage,
    Unary,
    Variable,
)
from graft.core.tensor_ir.rewriting.simplify import simplify
from graft.core.tensor_ir.visit import structural_key
from graft.core.types import BOOL, INT64, Type

PLACE, COUNT = Variable("i"), Constant(8, INT64)
INSIDE = Binary("lt", PLACE, Constant(5, INT64))
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-40])
CONTENTS = {
    "float32": SPECIAL, "float64": SPECIAL,
    "int32": np.array([0, 1, -1, 7, -8, 2**31 - 1, -(2**31), 3]),
    "uint8": np.array([0, 1, 2, 7, 128, 254, 255, 3]), "bool": np.array([0, 1, 1, 0, 1, 0, 0, 1]),
}  # fmt: skip
INPUTS = {dtype: Buffer(dtype, dtype, (COUNT,)) for dtype in CONTENTS}
LOADED = {dtype: Load(buffer, (PLACE,)) for dtype, buffer in INPUTS.items()}
ARRAYS = {INPUTS[dtype]: array.astype(dtype) for dtype, array in CONTENTS.items()}
OPERATORS = {
    "float": ("add", "sub", "mul", "div", "min", "max"),
    "whole": ("add", "sub", "mul", "div", "mod", "min", "max", "and", "or", "xor"),
    "bool": ("and", "or", "xor", "eq", "ne"),
}


@st.composite
def values(draw: st.DrawFn, dtype: str, depth: int = 3) -> Expression:
    """A scalar of a type: trivial constants are likely, since rules are about them."""
    kind = Type(dtype)
    family = "float" if kind.is_float else "bool" if dtype == "bool" else "whole"
    leaves = ["constant", "load", "masked"]
    shape = draw(st.sampled_from(leaves if depth == 0 else [*leaves, "unary", "cast", "select", *["binary"] * 5]))
    inner = values(dtype, depth - 1)
    match shape:
        case "constant":
            numbers = {"float": [0.0, -0.0, 1.0, -1.0], "whole": [0, 1, 2], "bool": [False, True]}
            return Constant(draw(st.sampled_from(numbers[family])), kind)
        case "load":
            return LOADED[dtype]
        case "masked":
            return Load(
                INPUTS[dtype], (PLACE,), draw(st.sampled_from([INSIDE, Constant(True, BOOL), Constant(False, BOOL)]))
            )
        case "unary":
            operator = "not" if family == "bool" else draw(st.sampled_from(["neg", "abs"]))
            value = draw(inner)
            return Unary(operator, Unary(operator, value) if draw(st.booleans()) else value)
        case "cast":
            return Cast(draw(values(draw(st.sampled_from([*CONTENTS])), depth - 1)), dtype)
        case "select":
            return Select(draw(values("bool", depth - 1)), draw(inner), draw(inner))
    left = draw(inner)
    right = left if draw(st.integers(0, 4)) == 0 else draw(inner)
    return Binary(draw(st.sampled_from(OPERATORS[family])), left, right)


def bits(value: Expression, dtype: str) -> np.ndarray:
    stage = Stage(Buffer("y", dtype, (COUNT,)), (PLACE,), value)
    result = run_stages([stage], ARRAYS)[stage.buffer]
    return np.where(np.isnan(result), np.nan, result).view(np.uint8) if Type(dtype).is_float else result


@pytest.mark.parametrize("dtype", CONTENTS)
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_simplified_value_has_the_same_bits(dtype: str, data: st.DataObject) -> None:
    value = data.draw(values(dtype))
    simple = simplify(value)
    assert simple.type == value.type
    np.testing.assert_array_equal(bits(simple, dtype), bits(value, dtype))


RULES = {
    "the product with one": (Binary("mul", LOADED["int32"], Constant(1, Type("int32"))), "int32"),
    "a choice between equal arms": (
        Select(LOADED["bool"], LOADED["float32"], LOADED["float32"]), "float32",
    ),
    "a cast to its own type": (Cast(LOADED["uint8"], "uint8"), "uint8"),
    "a wide cast and back": (Cast(Cast(LOADED["float32"], "float64"), "float32"), "float32"),
    "two negations": (Unary("neg", Unary("neg", LOADED["float32"])), "float32"),
    "two logical negations": (Unary("not", Unary("not", LOADED["bool"])), "bool"),
    "a mask that is on": (Load(INPUTS["float32"], (PLACE,), Constant(True, BOOL)), "float32"),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_what_changes_nothing_goes(rule: str) -> None:
    value, dtype = RULES[rule]
    assert structural_key(simplify(value), structural_key) == structural_key(LOADED[dtype], structural_key)


def test_what_would_change_bits_stays() -> None:
    x = LOADED["float32"]
    narrow = Cast(Cast(LOADED["float64"], "float32"), "float64")
    for value in (narrow, Bitcast(x, "int32"), Binary("add", x, Constant(0.0, x.type)), Unary("abs", Unary("abs", x))):
        assert simplify(value) == value


def test_an_operation_that_is_alike_in_all_lanes_is_done_once() -> None:
    x = LOADED["float32"]
    wide = Binary("mul", Broadcast(x, 4), Broadcast(x, 4))
    assert simplify(wide) == Broadcast(Binary("mul", x, x), 4)
