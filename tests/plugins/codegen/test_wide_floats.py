"""Regions of 16-bit floats in float32: which values are held so, and that what comes out is what it was."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.machine.rows import machine_named
from graft.core.machine.target import Target
from graft.core.operators.all import OPERATORS
from graft.partition.region import Region, regions
from graft.plugins.codegen.wide_floats import in_float32, precision_of
from tests.plugins.llvm.models import model_of

V3 = Target(machine_named("x86-64-v3"))
"""With F16C."""
RANDOM = np.random.default_rng(1)
NETWORK = """
<ir_version: 10, opset_import: ["" : 22]>
g (KIND[1,16,12,12] x) => (KIND[1,16,12,12] y, KIND[1,16,12,12] r)
<KIND[16,16,3,3] w = {0}> {
  c = Conv <pads: ints = [1, 1, 1, 1]> (x, w)
  r = Relu (c)
  s = Mul (r, r)
  y = Add (s, x)
}
"""
CACHE = """
<ir_version: 10, opset_import: ["" : 21]>
g (float16[1,7,4] past, float16[1,1,4] x) => (float16[1,8,4] present, float16[1,8,4] y) {
  s = Mul (x, x)
  present = Concat <axis = 1> (past, s)
  y = Exp (present)
}
"""


def normal(*shape: int, dtype: object = np.float16) -> np.ndarray:
    return (RANDOM.standard_normal(shape) / 8).astype(dtype)  # type: ignore[call-overload, no-any-return]


def network(kind: str = "float16") -> onnx.ModelProto:
    model = parser.parse_model(NETWORK.replace("= {0}", "").replace("KIND", kind))
    dtype = np.float16 if kind == "float16" else ml_dtypes.bfloat16
    del model.graph.initializer[:]
    model.graph.initializer.append(numpy_helper.from_array(normal(16, 16, 3, 3, dtype=dtype), "w"))
    return model


def region(model: onnx.ModelProto) -> Region:
    (only,) = regions(compile_model(model, Request(["llvm"], threads=1)).partitioned)
    return only


def test_what_computes_is_rounded_and_what_selects_is_not() -> None:
    found = in_float32(region(network()), V3, OPERATORS)
    assert " ".join(node.op_type for node in found.nodes()) == (
        "Cast Conv Cast Cast Relu Cast Mul Cast Cast Add Cast"  # of x; of c; r; of s; y
    )
    computing = [node for node in found.nodes() if node.op_type != "Cast"]
    assert {value.dtype for node in computing for value in node.inputs if value is not None} == {"float32"}
    assert [(value.name, value.dtype) for value in found.outputs] == [("r", "float16"), ("y", "float16")]


def test_a_cache_grows_as_it_is() -> None:
    found = in_float32(region(parser.parse_model(CACHE)), V3, OPERATORS)
    (concat,) = (node for node in found.nodes() if node.op_type == "Concat")
    assert [value.dtype for value in (*concat.inputs, *concat.outputs) if value is not None] == ["float16"] * 3


@pytest.mark.parametrize(
    "target", [Target(machine_named("x86-64-v2")), Target(V3.machine, without=frozenset({"wide-floats"}))]
)
def test_a_machine_without_the_rounding_and_the_switch_leave_a_region_alone(target: Target) -> None:
    found = in_float32(region(network()), target, OPERATORS)
    assert [node.op_type for node in found.nodes()] == ["Conv", "Relu", "Mul", "Add"]


def test_products_of_bfloat16_alone_are_in_bfloat16() -> None:
    pairs = Target(machine_named("x86-64-v4+avx512bf16"))
    assert precision_of(region(network("bfloat16")), pairs, OPERATORS).precision == "bf16"
    assert precision_of(region(network("bfloat16")), V3, OPERATORS).precision == "float32"
    assert precision_of(region(network("float16")), pairs, OPERATORS).precision == "float32"


def test_a_network_is_rounded_as_it_was() -> None:
    model, x = network(), normal(1, 16, 12, 12)
    ours, before = (graft.compile(model, ["llvm"], strict=True, without=one)(x) for one in ((), ("wide-floats",)))
    for held, narrow in zip(ours, before, strict=True):
        assert held.dtype == np.float16
        np.testing.assert_allclose(held, narrow, rtol=2e-3, atol=1e-3)  # sums in another order round elsewhere


@pytest.mark.parametrize("operator", ["Exp", "Add", "Mul"])
def test_a_chain_is_rounded_at_each_operator(operator: str) -> None:
    x = normal(1000)
    inputs = {"x": x} if operator == "Exp" else {"x": x, "z": normal(1000)}
    model = model_of(operator, inputs)
    found, before = (graft.compile(model, ["llvm"], without=one)(*inputs.values()) for one in ((), ("wide-floats",)))
    np.testing.assert_array_equal(found, before)


@pytest.mark.parametrize(("operator", "gates"), [("GRU", 3), ("LSTM", 4), ("RNN", 1)])
@pytest.mark.parametrize("without", [(), ("wide-floats",)])
def test_recurrent_layers_of_float16_keep_their_state_in_float32(
    operator: str, gates: int, without: tuple[str, ...]
) -> None:
    x, weights = normal(7, 3, 12), {"w": normal(1, gates * 20, 12), "r": normal(1, gates * 20, 20)}
    narrow = model_of(operator, {"x": x}, ("y",), weights, hidden_size=20)
    wide = {name: array.astype(np.float32) for name, array in weights.items()}
    right = graft.compile(model_of(operator, {"x": x.astype(np.float32)}, ("y",), wide, hidden_size=20), ["llvm"])
    found = graft.compile(narrow, ["llvm"], strict=True, without=without)(x)
    np.testing.assert_allclose(found, right(x.astype(np.float32)), atol=5e-4)


def test_results_that_nobody_reads_are_not_rounded() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 17]> g (float16[3,1,5] x, float16[1,16,5] w, float16[1,16,4] r)'
        " => (float16[1,1,4] y) { all, last, y = LSTM <hidden_size = 4> (x, w, r) }"
    )
    program = graft.compile(parser.parse_model(text), ["llvm"], threads=1, cache=False)
    feeds = {"x": normal(3, 1, 5), "w": normal(1, 16, 5), "r": normal(1, 16, 4)}
    wide = {name: value.astype(np.float32) for name, value in feeds.items()}
    (expected,) = ReferenceEvaluator(parser.parse_model(text.replace("float16", "float"))).run(None, wide)
    np.testing.assert_allclose(program.run(feeds)["y"], expected, atol=2e-3)


def test_a_float64_that_becomes_float32_and_then_float16_is_rounded_twice_without_a_call() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 24]>
        g (double[n,2] x, float[1] z) => (float16[n,2] y) {
          third = Constant<value = double[1] {0.1428571428571428}>() part = Mul(x, third) narrow = Cast<to = 1>(part)
          half = Cast<to = 10>(narrow) wide = Cast<to = 1>(half) rest = Sub(z, wide) y = Cast<to = 10>(rest) }"""
    )
    x = np.random.default_rng(3).standard_normal((1000, 2))
    found = graft.compile(model, ["llvm"], strict=True)(x, np.zeros(1, np.float32))
    np.testing.assert_array_equal(found, -(x * 0.1428571428571428).astype(np.float32).astype(np.float16))
