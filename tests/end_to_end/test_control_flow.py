"""If, Loop and Scan through the whole way: compiled, saved and loaded, against onnx.reference and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from graft.runtime.loading import load

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'

Array = np.ndarray
F = np.float32

CASES: dict[str, tuple[str, Sequence[dict[str, Array]]]] = {
    "if with captured values": (
        """g (float[4] x, bool c) => (float[4] y) {
             a = Relu(x)
             b = If(c) <
               then_branch = t () => (float[4] u) { v = Exp(a)  u = Add(v, x) },
               else_branch = e () => (float[4] w) { k = Constant <value = float[4] {1, 2, 3, 4}> ()  w = Mul(a, k) }>
             y = Tanh(b)
           }""",
        [
            {"x": np.array([1, -2, 3, 0.5], F), "c": np.array(True)},
            {"x": np.array([1, -2, 3, 0.5], F), "c": np.array(False)},
        ],
    ),
    "if whose branches return outer values": (
        """g (float[2] x, float[2] z, bool c) => (float[2] y, float[2] w) {
             y, w = If(c) <
               then_branch = t () => (float[2] p, float[2] q) { p = Identity(x) q = Identity(z) },
               else_branch = e () => (float[2] r, float[2] s) { r = Identity(z) s = Add(x, z) }>
           }""",
        [
            {"x": np.array([1, 2], F), "z": np.array([3, 4], F), "c": np.array(True)},
            {"x": np.array([1, 2], F), "z": np.array([3, 4], F), "c": np.array(False)},
        ],
    ),
    "if nested in if": (
        """g (float[2] x, bool c, bool d) => (float[2] y) {
             y = If(c) <
               then_branch = t () => (float[2] p) {
                 h = Exp(x)
                 p = If(d) <
                   then_branch = tt () => (float[2] a) { a = Add(h, x) },
                   else_branch = te () => (float[2] b) { b = Sub(h, x) }>
               },
               else_branch = e () => (float[2] q) { q = Neg(x) }>
           }""",
        [{"x": np.array([1, 2], F), "c": np.array(c), "d": np.array(d)} for c in (True, False) for d in (True, False)],
    ),
    "if whose branches differ in shape": (
        """g (float[4] x, bool c) => (float[N] y) {
             y = If(c) <
               then_branch = t () => (float[4] p) { p = Relu(x) },
               else_branch = e () => (float[1] q) { k = Constant <value = int64[1] {0}> ()  q = ReduceSum(x, k) }>
           }""",
        [{"x": np.array([1, -2, 3, 4], F), "c": np.array(c)} for c in (True, False)],
    ),
    "loop with scan output": (
        """g (float[2] x, int64 n, bool c) => (float[2] y, float[N, 2] all) {
             w = Constant <value = float[2] {0.5, 2}> ()
             y, all = Loop(n, c, x) <
               body = step (int64 i, bool go, float[2] s) => (bool more, float[2] t, float[2] u) {
                 more = Identity(go)
                 t = Mul(s, w)
                 f = Cast <to = 1> (i)
                 u = Add(t, f)
               }>
           }""",
        [{"x": np.array([1, 3], F), "n": np.array(n), "c": np.array(c)} for n in (0, 1, 5) for c in (True, False)],
    ),
    "loop that ends by its condition": (
        """g (float[1] x) => (float[1] y, float[N, 1] all) {
             n = Constant <value = int64 {100}> ()
             c = Constant <value = bool {1}> ()
             y, all = Loop(n, c, x) <
               body = step (int64 i, bool go, float[1] s) => (bool more, float[1] t, float[1] u) {
                 two = Constant <value = float[1] {2}> ()
                 limit = Constant <value = float[1] {40}> ()
                 t = Mul(s, two)
                 u = Identity(t)
                 one = Less(t, limit)
                 shape = Constant <value = int64[0] {}> ()
                 more = Reshape(one, shape)
               }>
           }""",
        [{"x": np.array([value], F)} for value in (1, 30, 1000)],
    ),
    "loop without trip count": (
        """g (float x) => (float y) {
             c = Constant <value = bool {1}> ()
             y = Loop(, c, x) <
               body = step (int64 i, bool go, float s) => (bool more, float t) {
                 two = Constant <value = float {2}> ()
                 limit = Constant <value = float {40}> ()
                 t = Mul(s, two)
                 more = Less(t, limit)
               }>
           }""",
        [{"x": np.array(1, F)}, {"x": np.array(100, F)}],
    ),
    "loop in a loop with captured values of both": (
        """g (float[2] x, int64 n) => (float[2] y) {
             c = Constant <value = bool {1}> ()
             m = Constant <value = int64 {3}> ()
             b = Sin(x)
             y = Loop(n, c, x) <
               body = outer (int64 i, bool go, float[2] s) => (bool more, float[2] t) {
                 more = Identity(go)
                 h = Add(s, b)
                 t = Loop(m, go, s) <
                   body = inner (int64 j, bool on, float[2] p) => (bool again, float[2] q) {
                     again = Identity(on)
                     r = Mul(h, b)
                     q = Add(p, r)
                   }>
               }>
           }""",
        [{"x": np.array([0.1, 2], F), "n": np.array(n)} for n in (0, 1, 4)],
    ),
    "loop whose carried values change places": (
        """g (float[2] x, float[2] z, int64 n) => (float[2] y, float[2] w) {
             c = Constant <value = bool {1}> ()
             y, w = Loop(n, c, x, z) <
               body = step (int64 i, bool go, float[2] a, float[2] b) => (bool more, float[2] p, float[2] q) {
                 more = Identity(go) p = Identity(b) q = Identity(a)
               }>
           }""",
        [{"x": np.array([1, 2], F), "z": np.array([3, 4], F), "n": np.array(n)} for n in (0, 1, 2, 3)],
    ),
    "loop whose carried value grows": (
        """g (float[1] x, int64 n) => (float[N] y) {
             c = Constant <value = bool {1}> ()
             y = Loop(n, c, x) <
               body = step (int64 i, bool go, float[M] s) => (bool more, float[K] t) {
                 more = Identity(go)
                 t = Concat <axis = 0> (s, x)
               }>
           }""",
        [{"x": np.array([3], F), "n": np.array(n)} for n in (0, 1, 4)],
    ),
    "loop with a trip count that depends on data": (
        """g (float[6] x) => (float[1] y) {
             c = Constant <value = bool {1}> ()
             zero = Constant <value = float[1] {0}> ()
             found = NonZero(x)
             size = Size(found)
             y = Loop(size, c, zero) <
               body = step (int64 i, bool go, float[1] s) => (bool more, float[1] t) {
                 more = Identity(go)
                 one = Constant <value = float[1] {1.5}> ()
                 t = Add(s, one)
               }>
           }""",
        [{"x": np.array([0, 1, 0, 2, 3, 0], F)}, {"x": np.zeros(6, F)}],
    ),
    "if in a loop": (
        """g (float[2] x, int64 n) => (float[2] y) {
             c = Constant <value = bool {1}> ()
             y = Loop(n, c, x) <
               body = step (int64 i, bool go, float[2] s) => (bool more, float[2] t) {
                 more = Identity(go)
                 two = Constant <value = int64 {2}> ()
                 zero = Constant <value = int64 {0}> ()
                 r = Mod(i, two)
                 even = Equal(r, zero)
                 t = If(even) <
                   then_branch = a () => (float[2] p) { p = Add(s, x) },
                   else_branch = b () => (float[2] q) { q = Mul(s, s) }>
               }>
           }""",
        [{"x": np.array([1, 0.5], F), "n": np.array(n)} for n in (0, 3, 4)],
    ),
    "scan": (
        """g (float[2] init, float[3, 2] x) => (float[2] last, float[3, 2] sums) {
             last, sums = Scan <num_scan_inputs = 1,
               body = step (float[2] s, float[2] v) => (float[2] t, float[2] u) { t = Add(s, v) u = Exp(t) }> (init, x)
           }""",
        [{"init": np.array([0, 1], F), "x": np.arange(6, dtype=F).reshape(3, 2) / 4}],
    ),
    "scan backwards along the second axis": (
        """g (float[2] init, float[2, 3] x) => (float[2] last, float[2, 3] sums) {
             last, sums = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
               scan_input_directions = [1], scan_output_directions = [1],
               body = step (float[2] s, float[2] v) => (float[2] t, float[2] u) { t = Add(s, v) u = Mul(t, v) }>
               (init, x)
           }""",
        [{"init": np.array([0, 1], F), "x": np.arange(6, dtype=F).reshape(2, 3)}],
    ),
    "values whose shape depends on data": (
        """g (float[6] x, bool[6] keep) => (float[N] y, int64[1, M] where, float[K] sorted) {
             kept = Compress <axis = 0> (x, keep)
             y = Relu(kept)
             where = NonZero(x)
             unique = Unique(x)
             sorted = Neg(unique)
           }""",
        [
            {"x": np.array([3, 0, -1, 3, 0, 2], F), "keep": np.array([1, 0, 1, 1, 0, 0], bool)},
            {"x": np.zeros(6, F), "keep": np.zeros(6, bool)},
        ],
    ),
}


NOT_IN_REFERENCE = {"loop with scan output", "scan backwards along the second axis"}
"""What onnx.reference cannot run: a Loop with scan outputs and no trip, a Scan with axes and directions."""


def by_reference(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    results: list[Array] = ReferenceEvaluator(model).run(None, inputs)
    return results


def by_runtime(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results: list[Array] = session.run(None, inputs)
    return results


@pytest.mark.parametrize("backends", [["llvm", "reference"], ["reference"]], ids=["llvm", "reference"])
@pytest.mark.parametrize("name", CASES)
def test_control_flow_gives_what_its_peer_gives(name: str, backends: list[str], tmp_path: Path) -> None:
    text, rows = CASES[name]
    model = onnx.parser.parse_model(HEAD + text)
    onnx.checker.check_model(model)
    program = graft.compile(model, backends, threads=1)
    program.save(tmp_path / "p.graft")
    loaded = load(tmp_path / "p.graft", threads=1, strict=True)
    evaluate = by_runtime if name in NOT_IN_REFERENCE else by_reference
    for inputs in rows:
        expected = evaluate(model, inputs)
        for one in (program, loaded, loaded):  # the second call of one program finds the memory of the first
            results = one.run(inputs)
            for value, wanted in zip(model.graph.output, expected, strict=True):
                assert results[value.name].dtype == wanted.dtype
                np.testing.assert_allclose(results[value.name], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(set(CASES) - NOT_IN_REFERENCE))
def test_onnx_runtime_agrees_with_the_reference(name: str) -> None:
    text, rows = CASES[name]
    model = onnx.parser.parse_model(HEAD + text)
    for inputs in rows:
        for result, wanted in zip(by_runtime(model, inputs), by_reference(model, inputs), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
