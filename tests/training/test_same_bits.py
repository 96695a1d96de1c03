"""Gradients have the same bits whatever the number of threads, and in another process."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import graft

NET = """<ir_version: 10, opset_import: ["" : 22]>
    net (float[4,8,33,31] x, float[16,8,3,3] w, float[7,40] table, float[4,9,9,2] points, int64[257] rows)
        => (float loss) {
        c = Conv <pads = [1, 1, 1, 1]> (x, w) p = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (c)
        a = AveragePool <kernel_shape = [5, 5], strides = [2, 2]> (p) s = GridSample (p, points)
        g = Gather (table, rows) n = Softmax <axis = 0> (g)
        i = ReduceSumSquare <keepdims = 0> (a) j = ReduceSumSquare <keepdims = 0> (s)
        k = ReduceSumSquare <keepdims = 0> (n) loss = Sum (i, j, k) }"""
"""What many add to: images under windows that overlap, points, rows that come often, sums over batches and channels."""


def digest(threads: int) -> str:
    """Return a digest of the bits of all gradients."""
    rng, feeds = np.random.default_rng(0), {}
    proto = onnx.parser.parse_model(NET)
    for value in proto.graph.input:
        shape = [one.dim_value for one in value.type.tensor_type.shape.dim]
        drawn = rng.integers(0, 7, shape) if value.name == "rows" else rng.uniform(-1, 1, shape).astype(np.float32)
        feeds[value.name] = drawn
    proto.graph.initializer.append(numpy_helper.from_array(feeds.pop("rows"), "rows"))
    del proto.graph.input[4]
    program = graft.compile(graft.grad(proto, wrt=list(feeds)), ["llvm", "reference"], threads=threads, cache=False)
    found = program.run(feeds)
    again = program.run(feeds)
    assert all(found[name].tobytes() == again[name].tobytes() for name in found)
    assert sorted(found) == ["loss", "points_grad", "table_grad", "w_grad", "x_grad"]
    return hashlib.sha256(b"".join(np.asarray(found[name]).tobytes() for name in sorted(found))).hexdigest()


@pytest.mark.slow
def test_threads_and_processes_give_the_same_bits() -> None:
    script = f"from {__name__} import digest; print(digest(2))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {digest(1), digest(2), digest(8)} == {done.stdout.strip()}
