"""Slices whose bounds lie outside, forward and back: clamped as ONNX says, by every backend; a bias of Shrink."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft


def expected(x: np.ndarray, start: int, end: int, step: int) -> np.ndarray:
    """The rows that ONNX's Slice takes: bounds count from the front, then are clamped."""
    extent, low = len(x), -1 if step < 0 else 0
    first, last = (one + extent if one < 0 else one for one in (start, end))
    first, last = min(max(first, 0), extent + low), min(max(last, low), extent + low)
    return x[list(range(first, last, step))]


def sliced(rows: str, start: int, end: int, step: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[{rows},2] x) => (float[m,2] y) <int64[1] s = {{{start}}}, int64[1] e = {{{end}}}, int64[1] a = {{0}},
        int64[1] t = {{{step}}}> {{ y = Slice (x, s, e, a, t) }}""")


@pytest.mark.parametrize("backends", [None, ["llvm", "irregular"], ["reference"]], ids=["default", "compiled", "numpy"])
@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("step", [-3, -1, 2])
def test_bounds_are_clamped(step: int, is_open: bool, backends: list[str] | None) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for start in (-9, -4, -1, 0, 9):
        for end in (-99, -3, 0, 99):
            model = sliced("n" if is_open else "3", start, end, step)
            (found,) = graft.compile(model, backends=backends, threads=1, cache=False).run({"x": x}).values()
            np.testing.assert_array_equal(found, expected(x, start, end, step), err_msg=f"{start}:{end}:{step}")


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
def test_a_bias_of_whole_numbers_need_not_be_one(dtype: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({dtype}[5] x) => ({dtype}[5] y) {{ y = Shrink <bias = 0.6, lambd = 1.5> (x) }}""")
    x = np.arange(5).astype(dtype)
    found = graft.compile(model, backends=["llvm"], threads=1, cache=False).run({"x": x})["y"]
    np.testing.assert_array_equal(found, [0, 0, 1, 2, 3])
