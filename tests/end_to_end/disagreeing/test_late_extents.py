"""Equations of what data decide, and of what bodies demand: checked where their extents are known."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.errors import InputError

Sizes = dict[str, tuple[int, ...]]
TEXTS: dict[str, tuple[str, Sizes, Sizes, str]] = {
    "NonZero": (
        "g (float[n] x, int64[m, 1] z) => (int64[?, 2] y) { i = NonZero (x) t = Transpose (i)"
        " y = Concat <axis = 1> (t, z) }",
        {"x": (3,), "z": (3, 1)}, {"x": (3,), "z": (4, 1)},
        "Concat (node 'y'): axis 0 of 't' is 3 and axis 0 of 'z' is 4; they must be equal",
    ),
    "Compress": (
        "g (float[n, c] x, bool[n] p, float[d, 2] w, float[r, 2] b) => (float[?, 2] y) {"
        " a = Compress <axis = 0> (x, p) m = MatMul (a, w) y = Concat <axis = 1> (m, b) }",
        {"x": (4, 3), "p": (4,), "w": (3, 2), "b": (4, 2)}, {"x": (4, 3), "p": (4,), "w": (3, 2), "b": (3, 2)},
        "Concat (node 'y'): axis 0 of 'm' is 4 and axis 0 of 'b' is 3; they must be equal",
    ),
    "If": (
        "g (bool p, float[n, k] x, float[j, m] w) => (float[?, ?] y) { y = If (p) <"
        "then_branch = t () => (float[?, ?] a) { a = MatMul (x, w) },"
        " else_branch = e () => (float[?, ?] b) { b = Neg (x) }> }",
        {"p": (), "x": (2, 3), "w": (3, 2)}, {"p": (), "x": (2, 3), "w": (4, 2)},
        "MatMul (node 'a'): axis 1 of 'x' is 3 and axis 0 of 'w' is 4; they must be equal",
    ),
    "Loop": (
        "g (float[n, c] x, float[m, d] w) => (float[?, ?] y, float[?, ?, ?] z) {"
        " k = Constant <value = int64 {2}> () t = Constant <value = bool {1}> () y, z = Loop (k, t, x) <"
        "body = b (int64 i, bool ci, float[?, ?] s) => (bool co, float[?, ?] u, float[?, ?] v) {"
        " co = Identity (ci) u = Neg (s) v = Concat <axis = 1> (s, w) }> }",
        {"x": (2, 3), "w": (2, 2)}, {"x": (2, 3), "w": (5, 2)},
        "Concat (node 'v'): axis 0 of 's' is 2 and axis 0 of 'w' is 5; they must be equal",
    ),
    "Scan": (
        "g (float[a, k] s, float[t, b, j] x) => (float[?, ?] y, float[?, ?, ?] z) { y, z = Scan <num_scan_inputs = 1,"
        " body = b (float[?, ?] p, float[?, ?] q) => (float[?, ?] u, float[?, ?] v) {"
        " u = Neg (p) v = Concat <axis = 0> (p, q) }> (s, x) }",
        {"s": (2, 3), "x": (4, 2, 3)}, {"s": (2, 3), "x": (4, 2, 5)},
        "Concat (node 'v'): axis 1 of 'p' is 3 and axis 1 of 'q' is 5; they must be equal",
    ),
}  # fmt: skip


@pytest.mark.parametrize("backends", [None, ["c_source", "irregular", "reference"]], ids=["default", "c_source"])
@pytest.mark.parametrize("name", TEXTS)
def test_late_extents_are_compared(name: str, backends: list[str] | None) -> None:
    text, right, wrong, message = TEXTS[name]
    program = graft.compile(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}'), backends)
    dtypes = {one.name: one.dtype for one in program.inputs}
    program.run({key: np.ones(shape, dtypes[key]) for key, shape in right.items()})
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            program.run({key: np.ones(shape, dtypes[key]) for key, shape in wrong.items()})
        assert caught.value.message == message


def test_a_branch_that_is_not_taken_demands_nothing() -> None:
    text = TEXTS["If"][0]
    program = graft.compile(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}'), ["reference"])
    x, w = np.ones((2, 3), np.float32), np.ones((4, 2), np.float32)
    np.testing.assert_array_equal(program(np.array(False), x, w), -x)
