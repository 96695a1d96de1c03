"""Regions of the built-in compiler, written as ONNX text with shapes inferred."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

from graft.core.graph.view import ValueView
from graft.partition.region import REGION_DOMAIN, Region

HEADER = '<ir_version: 10, opset_import: ["" : 23]>'


def region_of(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Region:
    """The region of a graph such as ``g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }``.

    Inputs named in ``constants`` have these contents at compile time.
    """
    constants = dict(constants or {})
    proto = onnx.parser.parse_model(f"{HEADER} {text}")
    for name, array in constants.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    proto = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    graph = ir.from_proto(proto).graph
    for name in constants:
        graph.initializers.pop(name, None)
    inputs = list(graph.inputs)
    for value in inputs:
        if value.name in constants:
            value.const_value = ir.tensor(constants[value.name], name=value.name)
    function = ir.Function(REGION_DOMAIN, "r", "", graph=graph, attributes=[])
    run_time = [value for value in inputs if value.name not in constants]
    return Region(
        "r",
        "llvm",
        function,
        {},
        tuple(ValueView(value) for value in run_time),
        tuple(ValueView(value) for value in graph.outputs),
        {value.name: value.const_value for value in inputs if value.const_value is not None},
    )
