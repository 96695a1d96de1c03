"""Quantised and bfloat16 models with symbolic extents beside the same models with numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import onnx
import pytest

import graft
from graft.runtime.program import Program

SIZES = [(2, 9, 6), (0, 5, 4)]


def quantized() -> onnx.ModelProto:
    """Convolutions in QDQ form: of few channels with strides, depthwise, of single pixels."""
    random = np.random.default_rng(0)
    nodes, tensors = [], [("s", np.float32(0.05)), ("z", np.uint8(120)), ("ws", np.float32(0.01)), ("wz", np.int8(0))]
    value = "x"
    shapes = {"first": (8, 3, 3, 3), "depthwise": (8, 1, 3, 3), "point": (12, 8, 1, 1)}
    for name, shape in shapes.items():
        tensors.append((f"{name}_w", random.integers(-127, 128, shape).astype(np.int8)))
        nodes += [
            f"{name}_q = QuantizeLinear({value}, s, z)",
            f"{name}_x = DequantizeLinear({name}_q, s, z)",
            f"{name}_v = DequantizeLinear({name}_w, ws, wz)",
        ]
        strides, group = 2 if name == "first" else 1, 8 if name == "depthwise" else 1
        pads = [shape[-1] // 2] * 4
        nodes.append(f"{name} = Conv<strides=[{strides},{strides}],pads={pads},group={group}>({name}_x, {name}_v)")
        value = name
    body = "\n".join([*nodes, "last = QuantizeLinear(point, s, z)", "y = DequantizeLinear(last, s, z)"])
    header = '<ir_version: 10, opset_import: ["" : 20]> g (float[n, 3, h, w] x) => (float[n, 12, p, q] y)'
    model = onnx.parser.parse_model(f"{header} {{ {body} }}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in tensors)
    return model


def rounded() -> onnx.ModelProto:
    """A convolution and a product of its pixels in float32."""
    random = np.random.default_rng(0)
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[n, 3, h, w] x) => (float[n, p, q, 5] y) {
      c = Conv<pads=[1, 1, 1, 1]>(x, k)
      r = Relu(c)
      t = Transpose<perm=[0, 2, 3, 1]>(r)
      y = MatMul(t, m)
    }"""
    model = onnx.parser.parse_model(text)
    for name, shape in (("k", (16, 3, 3, 3)), ("m", (16, 5))):
        array = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


@pytest.mark.parametrize(("kind", "precision"), [("quantized", "float32"), ("rounded", "bf16")])
def test_any_binding_gives_what_the_model_with_these_numbers_gives(
    kind: str, precision: Literal["float32", "bf16"]
) -> None:
    model = quantized() if kind == "quantized" else rounded()
    program = graft.compile(model, ["llvm"], precision=precision, cache=False, strict=True)
    for n, h, w in SIZES:
        x = np.random.default_rng(n).standard_normal((n, 3, h, w)).astype(np.float32)
        static = graft.compile(
            model, ["llvm", "reference"], precision=precision, cache=False, dims={"n": n, "h": h, "w": w}
        )
        tolerance = 1e-6 if kind == "quantized" else 0.05
        np.testing.assert_allclose(program(x), static(x), rtol=tolerance, atol=tolerance)


def pooled() -> onnx.ModelProto:
    """The same convolutions behind which the mean of all pixels is quantised and flattened."""
    model = quantized()
    tail = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]> g (float[n, 12, p, q] y, float s, uint8 z) => (float[n, 12] f) {
          m = GlobalAveragePool(y)
          mq = QuantizeLinear(m, s, z)
          md = DequantizeLinear(mq, s, z)
          f = Flatten(md)
        }"""
    )
    model.graph.node.extend(tail.graph.node)
    del model.graph.output[:]
    model.graph.output.extend(tail.graph.output)
    return model


@pytest.mark.parametrize("make", [quantized, pooled])
def test_an_open_batch_has_the_integers_of_one_image(make: Callable[[], onnx.ModelProto]) -> None:
    size = {"h": 17, "w": 18}
    program = graft.compile(make(), ["llvm"], cache=False, strict=True, dims=size)
    for batch in (1, 3, 0):
        static = graft.compile(make(), ["llvm", "reference"], cache=False, dims={**size, "n": batch})
        x = np.random.default_rng(batch).standard_normal((batch, 3, 17, 18)).astype(np.float32)
        np.testing.assert_array_equal(program(x), static(x))
        if batch == 1:
            assert integer_convolutions(program) == integer_convolutions(static) != []
            assert "blocked_product" in [
                call.schedule["strategy"]
                for one in program.description.procedures
                for call in one.calls
                if call.schedule
            ]


def integer_convolutions(program: Program) -> list[str]:
    """The strategies of an image's convolutions of integers."""
    reports = [call.schedule for one in program.description.procedures for call in one.calls]
    names = [str(one.get("image", one["strategy"])) for one in reports if one]
    return [name for name in names if name.endswith("_nhwc")]
