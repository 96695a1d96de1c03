"""Networks in posit16 by NumPy and the oracle alone: one rounding after every product and every sum."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.runtime.program import Program
from tests.datatypes.oracle import PositOracle

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def image(shape: tuple[int, ...] = (1, 1, 8, 8), seed: int = 0) -> np.ndarray:
    """Return seeded numbers from 0 to 1."""
    return np.random.default_rng(seed).uniform(0, 1, shape).astype(np.float32)


def compiled(model: ir.Model) -> Program:
    """Compile for two threads with the built-in compiler alone."""
    return graft.compile(model, backends=["llvm"], threads=2, strict=True)


def run(model: ir.Model, *inputs: np.ndarray) -> np.ndarray:
    """Compile and run a model of one output."""
    result = compiled(model)(*inputs)
    assert isinstance(result, np.ndarray)
    return result


def residual_block() -> onnx.ModelProto:
    """Two 3x3 convolutions with seeded weights and a shortcut, as in a ResNet."""
    rng = np.random.default_rng(3)
    weights = {
        "w1": rng.normal(0, 0.2, (12, 8, 3, 3)), "b1": rng.normal(0, 0.1, 12),
        "w2": rng.normal(0, 0.2, (8, 12, 3, 3)), "b2": rng.normal(0, 0.1, 8),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "x"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    return model_of(nodes, {"x": [1, 8, 10, 10]}, {"y": [1, 8, 10, 10]}, weights)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int]],
    outputs: dict[str, list[int]],
    weights: dict[str, np.ndarray],
) -> onnx.ModelProto:
    """Return a float32 model; ``weights`` are its initialisers."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def rounded(oracle: PositOracle, numbers: np.ndarray) -> np.ndarray:
    """Return the nearest posits as float64."""
    return oracle.numbers[oracle.round_floats(numbers)]


class ReferenceNetwork:
    """Runs a converted model node by node; values are float64 numbers of the format."""

    def __init__(self, model: ir.Model, oracle: PositOracle) -> None:
        self.model, self.oracle = model, oracle

    def run(self, image: np.ndarray) -> np.ndarray:
        """Return the only output for the only input."""
        graph, known = self.model.graph, {}
        known[graph.inputs[0]] = image.astype(np.float64)
        for name, value in graph.initializers.items():
            assert value.const_value is not None, name
            array = value.const_value.numpy()
            known[value] = self.oracle.numbers[array] if array.dtype.kind == "u" else array
        for node in graph:
            attributes = {key: attribute.value for key, attribute in node.attributes.items()}
            operands = [known[value] for value in node.inputs if value is not None]
            known[node.outputs[0]] = getattr(self, node.op_type.lower())(*operands, **attributes)
        return known[graph.outputs[0]]

    def _round(self, numbers: np.ndarray) -> np.ndarray:
        return rounded(self.oracle, numbers)

    def cast(self, x: np.ndarray, to: int) -> np.ndarray:
        return x if to == ir.DataType.FLOAT.value else self._round(x)

    def relu(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0)

    def add(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self._round(x + y)

    def flatten(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(x.shape[0], -1)

    def maxpool(self, x: np.ndarray, kernel_shape: list[int], strides: list[int]) -> np.ndarray:
        assert kernel_shape == strides == (2, 2) or list(kernel_shape) == list(strides) == [2, 2]
        n, c, h, w = x.shape
        return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))

    def gemm(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray, transB: int) -> np.ndarray:
        assert transB, "weights [out, in]"
        total = np.zeros((x.shape[0], w.shape[0]))
        for k in range(x.shape[1]):
            total = self._round(total + self._round(x[:, None, k] * w[None, :, k]))
        return self._round(total + bias)

    def conv(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, **attributes: object) -> np.ndarray:
        top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))  # type: ignore[misc]
        x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
        height, width = x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1
        total = np.zeros((x.shape[0], w.shape[0], height, width))
        for i in range(w.shape[2]):
            for j in range(w.shape[3]):
                for c in range(w.shape[1]):  # channels innermost
                    window = x[:, None, c, i : i + height, j : j + width]
                    total = self._round(total + self._round(w[None, :, c, i, j, None, None] * window))
        return total if bias is None else self._round(total + bias[None, :, None, None])


def posit_library(folder: Path) -> str:
    """Compile the scalar C library; skip the test where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = folder / "libposit16.so"
    source = Path(__file__).with_name("posit16.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-lm"], check=True)
    return str(library)
