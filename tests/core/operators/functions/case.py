"""Operators of other domains with what ONNX Runtime computes of them: nodes, inputs and constants of every form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

Tensors = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One node as a model, and how far its results may be off: in steps of integers of 8 bits, else relative."""

    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    tolerance: float


def case_of(
    node: onnx.NodeProto,
    feeds: Mapping[str, np.ndarray],
    outputs: Sequence[str | tuple[Any, ...]],
    constants: Tensors | None = None,
    *,
    opset: int = 17,
    symbols: Mapping[str, Sequence[str | None]] | None = None,
    tolerance: float = 2e-4,
) -> Case:
    """Return the case of a node; ``symbols`` name axes of inputs, outputs are names with type and shape."""
    values = []
    for name, array in feeds.items():
        names = (symbols or {}).get(name, ())
        shape = [(names[axis] if axis < len(names) else None) or extent for axis, extent in enumerate(array.shape)]
        values.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape))
    rows = [(one, TensorProto.FLOAT) if isinstance(one, str) else one for one in outputs]
    results = [helper.make_tensor_value_info(row[0], row[1], row[2] if len(row) > 2 else None) for row in rows]
    tensors = [
        onnx.numpy_helper.from_array(one, name) if isinstance(one, np.ndarray) else one
        for name, one in (constants or {}).items()
    ]
    graph = helper.make_graph([node], "g", values, results, tensors)
    imports = [helper.make_opsetid(*one) for one in (("", opset), ("com.microsoft", 1), ("ai.onnx.ml", 3))]
    return Case(helper.make_model(graph, opset_imports=imports, ir_version=10), dict(feeds), tolerance)


class Cases(dict[str, Case]):
    """Cases by name, on random numbers from one seed."""

    def __init__(self, domain: str, seed: int) -> None:
        super().__init__()
        self.domain, self.random = domain, np.random.default_rng(seed)

    def node(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
        """Return a node of the domain."""
        domain = attributes.pop("domain", self.domain)
        return helper.make_node(op_type, inputs, outputs, name="n", domain=domain, **attributes)

    def add(self, name: str, node: onnx.NodeProto, *arguments: Any, **options: Any) -> None:
        """Add a case."""
        assert name not in self, name
        self[name] = case_of(node, *arguments, **options)

    def floats(self, *shape: int) -> np.ndarray:
        """Return numbers around 0."""
        return (self.random.standard_normal(shape) * 0.5).astype(np.float32)

    def unsigned(self, *shape: int) -> np.ndarray:
        """Return numbers of uint8."""
        return self.random.integers(0, 256, shape).astype(np.uint8)

    def signed(self, *shape: int) -> np.ndarray:
        """Return numbers of int8, of 7 bits: ONNX Runtime's sums of two products saturate on some processors."""
        return self.random.integers(-64, 64, shape).astype(np.int8)
