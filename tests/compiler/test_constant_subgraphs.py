"""Subgraphs of constants: computed once, when the model is compiled, with the bits that a run would give."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import graft
from graft.compiler.constant_subgraphs import Bounds, fold_constant_subgraphs
from graft.runtime.program import Program

RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((16, 8, 3, 3), np.float32)
SCALE = np.ones(16, np.float32)
POSITIONS = RNG.standard_normal((1, 2, 8, 8), np.float32)


def model(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return proto


STANDARDISED = model(
    """(float[1,8,6,6] x) => (float[1,16,4,4] y) {
        flat = Reshape (w, one)
        even = InstanceNormalization (flat, s, s)
        w2 = Reshape (even, whole)
        y = Conv (x, w2) }""",
    w=WEIGHTS, s=SCALE, one=np.array([1, 16, -1]), whole=np.array([16, 8, 3, 3]),
)  # fmt: skip
RESIZED = model(
    """(float[1,2,16,16] x) => (float[1,2,16,16] y) {
        p = Resize <mode = "cubic"> (positions, , factors)
        y = Add (x, p) }""",
    positions=POSITIONS, factors=np.array([1, 1, 2, 2], np.float32),
)  # fmt: skip


def calls(program: Program) -> list[str]:
    return [call.function for procedure in program.description.procedures for call in procedure.calls]


def without(proto: onnx.ModelProto) -> Program:
    return graft.compile(proto, ["llvm"], without=["constant-subgraphs"])


@pytest.mark.parametrize("proto", [STANDARDISED, RESIZED], ids=["standardised", "resized"])
def test_what_does_not_depend_on_the_input_is_not_computed_at_run_time(proto: onnx.ModelProto) -> None:
    gone = ("instancenormalization", "resize")
    assert any(name in call for call in calls(without(proto)) for name in gone)
    assert not any(name in call for call in calls(graft.compile(proto, ["llvm"])) for name in gone)


def test_constants_have_the_bits_that_a_run_computes() -> None:
    x = np.zeros((1, 2, 16, 16), np.float32)
    np.testing.assert_array_equal(graft.compile(RESIZED, ["llvm"])(x), without(RESIZED)(x))


def test_constants_of_a_body_are_computed_once() -> None:
    proto = model(
        """(float[1,2,16,16] x, int64 n) => (float[1,2,16,16] y) {
            y = Loop (n, , x) <body = b (int64 i, bool c, float[1,2,16,16] v) => (bool d, float[1,2,16,16] u) {
                d = Identity (c)
                p = Resize <mode = "cubic"> (positions, , factors)
                u = Add (v, p) }> }""",
        positions=POSITIONS, factors=np.array([1, 1, 2, 2], np.float32),
    )  # fmt: skip
    program = graft.compile(proto, ["llvm"])
    assert not any("resize" in one for one in calls(program))
    x, n = np.zeros((1, 2, 16, 16), np.float32), np.array(3)
    np.testing.assert_array_equal(program(x, n), without(proto)(x, n))


def test_what_cannot_be_computed_is_left_and_fails_where_it_runs() -> None:
    proto = model(
        "(float[2] x) => (float[2] y) { p = Det (m)  z = Gather (m, far)  q = ReduceSum <keepdims = 0> (z)"
        " y0 = Add (x, p)  y = Add (y0, q) }",
        m=np.eye(3, dtype=np.float32), far=np.array([7]),
    )  # fmt: skip
    with pytest.raises(graft.GraftError, match="7"):
        graft.compile(proto)(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("bounds", "folded"),
    [(Bounds(), True), (Bounds(bytes=2047), False), (Bounds(flops=100), False)],
    ids=["room", "bytes", "flops"],
)
def test_bounds_on_memory_and_work_hold(bounds: Bounds, folded: bool) -> None:
    loaded = graft.load(RESIZED).clone()
    evaluated = {"p": np.zeros((1, 2, 16, 16), np.float32)}
    assert fold_constant_subgraphs(loaded, lambda small: evaluated, bounds) == folded
    assert any(node.op_type == "Resize" for node in loaded.graph) != folded


def test_random_numbers_and_quantised_weights_stay() -> None:
    proto = model(
        "(float[4] x) => (float[4] y) { r = RandomNormal <shape = [4]> ()  q = DequantizeLinear (w, s)"
        " z = Add (x, r)  y = Add (z, q) }",
        w=np.arange(4, dtype=np.int8), s=np.array(0.5, np.float32),
    )  # fmt: skip
    assert not fold_constant_subgraphs(graft.load(proto).clone(), lambda small: {})


def test_a_part_that_only_constants_read_goes_with_the_part_that_others_read() -> None:
    """Both come from one node, and what reads the first is a constant, too."""
    proto = model(
        "(float[64] x) => (float[64] y) { a, b = Split <axis = 0, num_outputs = 2> (w)  c = Sqrt (a)  d = Exp (b)"
        " e = ReduceSum <keepdims = 0> (c)  y0 = Add (x, e)  y = Add (y0, b) }",
        w=RNG.uniform(1, 2, 128).astype(np.float32),
    )  # fmt: skip
    x = np.zeros(64, np.float32)
    loaded = graft.load(proto).clone()
    assert fold_constant_subgraphs(loaded, lambda small: graft.compile(small, ["llvm"], cache=False).run({}))
    assert [node.op_type for node in loaded.graph] == ["Add", "Add"]
    np.testing.assert_array_equal(graft.compile(loaded, ["llvm"])(x), without(proto)(x))
