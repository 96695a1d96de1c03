"""Models of one operator, for tests that compare the built-in compiler with NumPy or the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 24


def model_of(
    operator: str,
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, np.ndarray] | None = None,
    order: Sequence[str] | None = None,
    opset: int = OPSET,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node that reads the inputs, then the constants (or ``order``); the outputs are typed by inference."""
    constants = dict(constants or {})
    names = list(order or (*inputs, *constants))
    node = helper.make_node(operator, names, list(outputs), name="it", **attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    fixed = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    graph = helper.make_graph([node], "one", given, results, fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
