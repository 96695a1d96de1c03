"""Small float networks as text, with seeded weights."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

import graft

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'


def model(text: str, seed: int = 0, **weights: tuple[int, ...] | np.ndarray) -> onnx.ModelProto:
    """A model of a graph's text, with initialisers of these shapes or contents."""
    random = np.random.default_rng(seed)
    proto = onnx.parser.parse_model(HEADER + text)
    for name, given in weights.items():
        array = given if isinstance(given, np.ndarray) else random.normal(0, 0.3, given)
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return proto


def convolutions(seed: int = 0) -> onnx.ModelProto:
    """A convolution, Relu, pooling, a depthwise one, a residual Add, a mean and a matrix; some channels are large."""
    random = np.random.default_rng(seed)
    first = random.normal(0, 0.3, (8, 3, 3, 3)) * np.geomspace(0.05, 4, 8).reshape(-1, 1, 1, 1)
    return model(
        """g (float[n,3,12,12] x) => (float[n,5] y) {
        [c1] a = Conv <pads = [1,1,1,1]> (x, w1, b1)
        [r1] b = Relu (a)
        [p1] c = MaxPool <kernel_shape = [2,2], strides = [2,2]> (b)
        [c2] d = Conv <pads = [1,1,1,1], group = 8> (c, w2, b2)
        [r2] e = Relu (d)
        [c3] f = Conv <kernel_shape = [1,1]> (e, w3, b3)
        [add] g = Add (f, c)
        [mean] h = GlobalAveragePool (g)
        [flat] i = Flatten (h)
        [fc] y = Gemm <transB = 1> (i, w4, b4)
        }""",
        seed, w1=first, b1=(8,), w2=(8, 1, 3, 3), b2=(8,), w3=(8, 8, 1, 1), b3=(8,), w4=(5, 8), b4=(5,),
    )  # fmt: skip


def images(count: int = 16, seed: int = 1) -> np.ndarray:
    """Images for `convolutions`."""
    return np.random.default_rng(seed).normal(size=(count, 3, 12, 12)).astype(np.float32)


def run(one: graft.core.importer.source.Source, **feeds: np.ndarray) -> np.ndarray:
    """The first output of a model, by onnx.reference."""
    import onnx_ir as ir
    from onnx.reference import ReferenceEvaluator

    proto = ir.to_proto(one) if isinstance(one, ir.Model) else one
    return np.asarray(ReferenceEvaluator(proto).run(None, feeds)[0])


def snr(exact: np.ndarray, found: np.ndarray) -> float:
    """The signal-to-noise ratio in decibels."""
    noise = np.sum((found - exact) ** 2)
    return float(10 * np.log10(np.sum(exact**2) / noise)) if noise else np.inf
