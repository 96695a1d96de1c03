"""Small quantised models, written node by node, and what ONNX's reference evaluator makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.partition.region import regions
from graft.plugins.codegen.quantized_regions import in_integers

TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "float32": TensorProto.FLOAT}


class Quantized:
    """A graph under construction, with constants from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, np.ndarray] = {}

    def input(self, *shape: int, dtype: str = "float32") -> str:
        """An input with contents: normal floats, or bytes of all values."""
        name = f"x{len(self.inputs)}"
        if dtype == "float32":
            self.inputs[name] = self.random.standard_normal(shape).astype(np.float32)
        else:
            self.inputs[name] = self.bytes(dtype, *shape)
        return name

    def bytes(self, dtype: str, *shape: int) -> np.ndarray:
        limits = np.iinfo(dtype)
        return self.random.integers(limits.min, limits.max, shape, dtype, endpoint=True)

    def constant(self, array: Any, dtype: str = "float32") -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=f"n{len(self.nodes)}", **attributes))
        return name

    def quantize(self, x: str, scale: float, zero: int = 0, dtype: str = "uint8") -> str:
        return self.add("QuantizeLinear", x, self.constant(scale), self.constant(zero, dtype))

    def dequantize(self, x: str, scale: Any, zero: Any = 0, dtype: str = "uint8", axis: int = 1) -> str:
        points = np.broadcast_to(np.asarray(zero, dtype), np.shape(scale))
        return self.add("DequantizeLinear", x, self.constant(scale), self.constant(points, dtype), axis=axis)

    def activation(self, *shape: int, scale: float = 0.02, zero: int = 120, dtype: str = "uint8") -> str:
        """A float input that is quantised and dequantised."""
        return self.dequantize(self.quantize(self.input(*shape), scale, zero, dtype), scale, zero, dtype)

    def weights(self, *shape: int, axis: int | None = 0, scale: float = 0.01) -> tuple[str, np.ndarray]:
        """Dequantised int8 weights, and their scales: one, or one for each place along ``axis``."""
        scales = np.float32(scale) if axis is None else self.scales(shape[axis], scale)
        array = self.constant(self.bytes("int8", *shape), "int8")
        return self.dequantize(array, scales, 0, "int8", axis or 0), np.asarray(scales)

    def scales(self, count: int, scale: float) -> np.ndarray:
        return (scale * self.random.uniform(0.5, 1.5, count)).astype(np.float32)

    def model(self, result: str, dtype: str, opset: int = 21) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, TYPES[str(array.dtype)], array.shape)
            for name, array in self.inputs.items()
        ]
        output = helper.make_tensor_value_info(result, TYPES[dtype], None)
        graph = helper.make_graph(self.nodes, "g", inputs, [output], self.constants)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(proto, strict_mode=True)

    def expected(self, model: onnx.ModelProto) -> np.ndarray:
        return np.asarray(ReferenceEvaluator(model).run(None, self.inputs)[0])


def operators(model: onnx.ModelProto, disable: Sequence[str] = ()) -> list[str]:
    """The operators that the built-in compiler makes kernels of."""
    partitioned = compile_model(model, Request(["llvm"], threads=1)).partitioned
    found = [in_integers(region, disable) for region in regions(partitioned)]
    return [node.op_type for region in found for node in region.function]
