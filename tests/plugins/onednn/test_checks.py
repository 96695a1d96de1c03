"""What oneDNN refuses, and why."""

import numpy as np
import onnx_ir as ir
import pytest

from graft.core.graph.view import NodeView
from graft.core.reject import Reject
from graft.plugins.onednn.checks import supported
from tests.plugins.onednn.cases import integers, number
from tests.plugins.onednn.models import Case

IMAGE = {"x": (1, 4, 8, 8)}
REFUSED = {
    "no primitive": (Case("y = Erf(x)", IMAGE, {}), Reject("no-pattern", "no oneDNN primitive computes Erf")),
    "computed weights": (
        Case("w = Exp(z) y = Conv(x, w)", IMAGE | {"z": (8, 4, 3, 3)}, {}),
        Reject("constant-required", "input 'w' of Conv is computed at run time"),
    ),
    "even window of LRN": (Case("y = LRN<size = 4>(x)", IMAGE, {}), Reject("attribute", "LRN of even size 4")),
    "indices": (
        Case("y, i = MaxPool<kernel_shape = [2, 2]>(x)", IMAGE, {}),
        Reject("dtype", "float32 only, got int64 for 'i'"),
    ),
    "vector": (
        Case("y = MatMul(x, z)", {"x": (3,), "z": (3, 4)}, {}),
        Reject("rank", "MatMul of ranks 1 and 2; oneDNN takes 2 and more"),
    ),
    "scaled product": (
        Case("y = Gemm<alpha = 2.0>(x, w)", {"x": (3, 4)}, {"w": (4, 5)}),
        Reject("attribute", "Gemm with alpha or beta other than 1"),
    ),
    "matrix added by Gemm": (
        Case("y = Gemm(x, w, z)", {"x": (3, 4), "z": (3, 5)}, {"w": (4, 5)}),
        Reject("shape", "Gemm adds [3, 5]; oneDNN takes one value per column"),
    ),
    "several axes normalised": (
        Case("y = LayerNormalization<axis = 1>(x, g)", {"x": (3, 4, 5)}, {"g": (4, 5)}),
        Reject("attribute", "LayerNormalization over more than the last axis"),
    ),
    "first input broadcast": (
        Case("y = Sub(z, x)", {"x": (3, 5)}, {"z": number(1)}),
        Reject("shape", "Sub broadcasts its first input [] to [3, 5]"),
    ),
    "both inputs broadcast": (
        Case("y = Add(x, z)", {"x": (3, 1), "z": (1, 5)}, {}),
        Reject("shape", "Add broadcasts its first input [3, 1] to [3, 5]"),
    ),
    "three inputs": (
        Case("y = Max(x, x, x)", IMAGE, {}),
        Reject("attribute", "Max of 3 inputs; oneDNN takes 2"),
    ),
    "computed bound": (
        Case("y = Clip(x, z)", IMAGE | {"z": ()}, {}),
        Reject("constant-required", "Clip with parameters that are computed at run time"),
    ),
    "computed exponent": (
        Case("y = Pow(x, z)", IMAGE | {"z": (8,)}, {}),
        Reject("constant-required", "Pow with parameters that are computed at run time"),
    ),
    "too many inputs": (
        Case(f"y = Concat<axis = 0>({', '.join(['x'] * 65)})", {"x": (2, 3)}, {}),
        Reject("size", "Concat of 65 inputs; at most 64 are taken"),
    ),
    "cells that ONNX does not count": (
        Case(
            "y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1, count_include_pad = 1>(x)",
            IMAGE,
            {},
        ),
        Reject("attribute", "ceil_mode with count_include_pad counts cells that ONNX does not count"),
    ),
    "steps": (
        Case(
            "y = Slice(x, a, b, c, d)",
            {"x": (6, 4)},
            {"a": integers(0), "b": integers(6), "c": integers(0), "d": integers(2)},
        ),
        Reject("attribute", "Slice with steps [2]"),
    ),
    "mean of channels": (
        Case("y = ReduceMean(x, a)", IMAGE, {"a": integers(1)}),
        Reject("attribute", "ReduceMean over other than the spatial axes, or without keeping them"),
    ),
    "plain rows": (
        Case("y = GlobalAveragePool(x)", {"x": (1, 2, 3, 4, 5, 6)}, {}),
        Reject("rank", "GlobalAveragePool of rank 6; oneDNN takes 3 to 5"),
    ),
    "other type": (
        Case("i = Cast<to = 6>(x) y = Cast<to = 1>(i)", IMAGE, {}),
        Reject("no-pattern", "no oneDNN primitive computes Cast"),
    ),
}


def answer(case: Case) -> bool | Reject:
    """Return what the backend says of the model's last node."""
    return supported(NodeView(ir.serde.deserialize_model(case.proto()).graph[-1]))


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_why(name):
    case, expected = REFUSED[name]
    assert answer(case) == expected


def test_symbolic_shapes_are_taken():
    assert answer(Case("y = Relu(x)", {"x": ("n", 4)}, {})) is True


def test_a_broadcast_of_symbols_that_may_differ_is_refused():
    case = Case("y = Add(x, z)", {"x": ("n", 4), "z": ("m", 4)}, {})
    refusal = answer(case)
    assert refusal.code == "shape"
    assert refusal.text.startswith("Add broadcasts its first input [n, 4] to [")


def test_an_operator_of_another_domain_is_refused():
    node = ir.node("Relu", [ir.Value(name="x")], domain="com.example")
    assert supported(NodeView(node)) == Reject("no-pattern", "no oneDNN primitive computes Relu")


def test_empty_tensors_are_refused():
    case = Case("y = Exp(x)", {"x": (0, 4)}, {})
    assert answer(case) == Reject("size", "'x' has no elements")


def test_a_residual_that_is_broadcast_keeps_the_addition_out_of_the_convolution():
    case = Case("c = Conv(x, w) y = Add(c, z)", IMAGE | {"z": (1, 1, 6, 6)}, {"w": (8, 4, 3, 3)})
    assert [node.op_type for node in case.region().nodes()] == ["Conv", "Add"]


def test_a_convolution_that_is_added_to_itself_is_apart():
    case = Case("c = Conv(x, w) y = Add(c, c)", IMAGE, {"w": (8, 4, 3, 3)})
    assert [node.op_type for node in case.region().nodes()] == ["Conv", "Add"]


def test_parameters_may_have_any_type():
    case = Case("y = Pow(x, p)", IMAGE, {"p": np.array(2, np.int64)})
    assert [node.op_type for node in case.region().nodes()] == ["Pow"]


def test_a_scale_for_rows_is_not_one_for_channels():
    case = Case("m = Mul(x, s) y = Add(m, s)", IMAGE, {"s": (8, 1)})
    assert [node.op_type for node in case.region().nodes()] == ["Mul", "Add"]
